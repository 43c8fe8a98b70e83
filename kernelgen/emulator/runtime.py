"""The emulated device's own objects, compiled once into the user's cache."""

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelgen.emulator.compiler import DEVICE, TORCH_GLUE, Compiler, run
from kernelgen.emulator.lock import locked

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelgen" / "emulator"


def device_objects(compiler: Compiler, cache: Path = CACHE) -> list[Path]:
    """The emulated GPU itself."""
    return _objects("runtime", sorted(DEVICE.glob("*.cpp")), compiler, [], cache)


def torch_objects(compiler: Compiler, torch_flags: Sequence[str], cache: Path = CACHE) -> list[Path]:
    """The functions of PyTorch's stable ABI as an op's CUDA entry sees them; `torch_flags` find torch's headers."""
    return _objects("torch", sorted(TORCH_GLUE.glob("*.cpp")), compiler, torch_flags, cache)


def _objects(name: str, sources: Sequence[Path], compiler: Compiler, flags: Sequence[str], cache: Path) -> list[Path]:
    command = [compiler.command, "-c", *compiler.runtime_flags(), *flags]
    inputs = [path for folder in (DEVICE, TORCH_GLUE) for path in sorted(folder.rglob("*")) if path.is_file()]
    digest = hashlib.sha256(repr((command, run([compiler.command, "-dumpfullversion"]))).encode())
    for path in inputs:
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    folder = cache / f"{name}-{digest.hexdigest()[:20]}"
    with locked(cache / f"{folder.name}.lock"), ThreadPoolExecutor(os.cpu_count()) as pool:
        if not folder.is_dir():
            print("kernelgen: compiling the emulated GPU, once for all projects", file=sys.stderr, flush=True)
            remove_unused(cache)
            folder.mkdir(parents=True)
        os.utime(folder)
        return list(pool.map(lambda source: _compile(command, source, folder / f"{source.stem}.o"), sources))


def _compile(command: Sequence[str], source: Path, target: Path) -> Path:
    if not target.exists():
        unfinished = target.with_suffix(".unfinished")
        run([*command, "-o", str(unfinished), str(source)])
        unfinished.rename(target)
    return target


def remove_unused(cache: Path, days: int = 7) -> None:
    """Removes the folders that nothing has used for so many days."""
    for path in cache.iterdir():
        if path.is_dir() and path.stat().st_mtime < time.time() - days * 86_400:
            shutil.rmtree(path, ignore_errors=True)
