"""The emulated device's own objects, compiled once into the user's cache."""

import hashlib
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelgen.cores import usable_cores
from kernelgen.emulator.cache import cache_folder, remove_unused
from kernelgen.emulator.compiler import DEVICE, TORCH_GLUE, Compiler, run
from kernelgen.emulator.lock import locked

# What most of the device's sources include. Read once, they take a third less time to compile.
SHARED_HEADERS = ("<algorithm>", "<cmath>", "<set>", '"accesses.h"', '"machine.h"')


def device_objects(compiler: Compiler, cache: Path | None = None) -> list[Path]:
    """The emulated GPU itself."""
    return _objects("runtime", sorted(DEVICE.glob("*.cpp")), compiler, [], cache, SHARED_HEADERS)


def torch_objects(compiler: Compiler, torch_flags: Sequence[str], cache: Path | None = None) -> list[Path]:
    """The functions of PyTorch's stable ABI as an op's CUDA entry sees them; `torch_flags` find torch's headers."""
    return _objects("torch", sorted(TORCH_GLUE.glob("*.cpp")), compiler, torch_flags, cache)


def _objects(
    name: str,
    sources: Sequence[Path],
    compiler: Compiler,
    flags: Sequence[str],
    cache: Path | None,
    headers: Sequence[str] = (),
) -> list[Path]:
    command = [compiler.command, "-c", *compiler.runtime_flags(), *flags]
    inputs = [path for folder in (DEVICE, TORCH_GLUE) for path in sorted(folder.rglob("*")) if path.is_file()]
    digest = hashlib.sha256(repr((command, headers, run([compiler.command, "-dumpfullversion"]))).encode())
    for path in inputs:
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    cache = cache or cache_folder()
    folder = cache / f"{name}-{digest.hexdigest()[:20]}"
    with locked(cache / f"{folder.name}.lock"), ThreadPoolExecutor(usable_cores()) as pool:
        if not folder.is_dir():
            print("kernelgen: compiling the emulated GPU, once for all projects", file=sys.stderr, flush=True)
            remove_unused(cache)
            folder.mkdir(parents=True)
        os.utime(folder)
        targets = [folder / f"{source.stem}.o" for source in sources]
        if not all(target.exists() for target in targets):
            command += _precompiled(command, headers, folder) if headers else []
            list(pool.map(lambda source, target: _compile(command, source, target), sources, targets))
            (folder / "shared.h.gch").unlink(missing_ok=True)  # It is far larger than the objects.
        return targets


def _precompiled(command: Sequence[str], headers: Sequence[str], folder: Path) -> list[str]:
    """Flags that take headers as the compiler has read them before; where it cannot, it reads the text again."""
    text = folder / "shared.h"
    text.write_text("".join(f"#include {header}\n" for header in headers))
    _compile([*command, "-x", "c++-header"], text, folder / "shared.h.gch")
    return ["-include", str(text)]


def _compile(command: Sequence[str], source: Path, target: Path) -> Path:
    if not target.exists():
        unfinished = target.with_suffix(".unfinished")
        run([*command, "-o", str(unfinished), str(source)])
        unfinished.rename(target)
    return target
