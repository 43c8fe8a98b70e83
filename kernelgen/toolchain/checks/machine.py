"""The machine: its GPUs and their driver, compiler processes at once, compiler cache, locks, room on the disk."""

import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kernelgen import caches
from kernelgen.toolchain.checks import trial
from kernelgen.toolchain.checks.cuda import number
from kernelgen.toolchain.facts import Facts
from kernelgen.toolchain.finding import Finding, error, ok, warning

# The oldest driver for each major version of the CUDA runtime.
OLDEST_DRIVER = {12: 525, 13: 580}
LITTLE, TOO_LITTLE = 2**30, 100 * 2**20


def check(facts: Facts) -> Iterator[Finding]:
    yield from _gpus(facts)
    yield from _jobs(facts)
    yield _compiler_cache()
    yield from _locks()
    yield from _disk(facts.root)
    yield from _folders_elsewhere()


def _gpus(facts: Facts) -> Iterator[Finding]:
    query = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    rows = [line.split(", ") for line in trial.output(query).splitlines() if line.count(", ") == 2]
    if not rows:
        if Path("/proc/driver/nvidia/version").is_file():
            yield warning("gpu", "there is an NVIDIA driver, and nvidia-smi does not answer.", "nvidia-smi")
        else:
            yield ok("gpu", "none here: kernels compile and do not run, which is all a build needs")
        return
    for name, capability, driver in rows:
        yield ok("gpu", f"{name}, compute capability {capability}, driver {driver}")
        yield from _covered(facts, name, capability)
    yield from _driver(facts, rows[0][2])


def _driver(facts: Facts, driver: str) -> Iterator[Finding]:
    toolkit, torch = facts["toolkit"].value, facts["torch"].value
    major = toolkit["version"][0] if toolkit else int(((torch and torch["cuda"]) or "0").split(".")[0])
    oldest = OLDEST_DRIVER.get(major)
    if oldest and int(driver.split(".")[0]) < oldest:
        what = f"what CUDA {major} builds" if toolkit else f"torch, which is built with CUDA {major}"
        text = f"driver {driver} is too old to run {what}; it takes {oldest} or newer."
        yield error("driver", text, f"apt-get install nvidia-driver-{oldest} (and restart)")


def _covered(facts: Facts, name: str, capability: str) -> Iterator[Finding]:
    architectures = facts["architectures"].value or []
    runs = any(runs_on(architecture, capability) for architecture in architectures)
    if architectures and facts["toolkit"].value and not runs:
        text = f"code for {', '.join(architectures)} does not run on this machine's {name} ({capability})."
        yield warning("architectures", text, f"export TORCH_CUDA_ARCH_LIST={capability}")


def runs_on(architecture: str, capability: str) -> bool:
    """Whether code for an architecture runs on a GPU of a capability: one of the same major version that is not older;
    as PTX, any that is not older; with an a, as in 9.0a, that capability alone."""
    code, gpu = int(number(architecture)), int(number(capability))
    if architecture.endswith("a"):
        return code == gpu
    return code <= gpu and (architecture.endswith("+PTX") or code // 10 == gpu // 10)


def _jobs(facts: Facts) -> Iterator[Finding]:
    answer = facts["jobs"]
    if answer.error:
        yield error("jobs", answer.error, "unset MAX_JOBS", stops="cpu")
    elif answer.value:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        why = "from MAX_JOBS" if os.environ.get("MAX_JOBS") else f"for {os.cpu_count()} cores and {memory:.0f} GiB"
        yield ok("jobs", f"{answer.value} compiler processes at once, {why}")


def _compiler_cache() -> Finding:
    if shutil.which("ccache"):
        counts = dict(re.findall(r"^(\w+)\t(\d+)$", trial.output(["ccache", "--print-stats"]), re.MULTILINE))
        hits = sum(int(counts.get(name, 0)) for name in ("direct_cache_hit", "preprocessed_cache_hit"))
        calls = hits + int(counts.get("cache_miss", 0))
        rate = f"{hits} hits in {calls} calls ({hits / calls:.0%})" if calls else "not used yet"
        return ok("compiler cache", f"ccache, {rate}")
    if shutil.which("sccache"):
        # Asking for its statistics would start its server.
        return ok("compiler cache", "sccache (its hit rate: sccache --show-stats)")
    return ok("compiler cache", "none; ccache would make a rebuild of known sources nearly free")


def _locks() -> Iterator[Finding]:
    """Locks of torch.utils.cpp_extension.load: files that a killed process leaves and the next process waits for."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch_extensions"
    home = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or home)
    # Others write and remove files meanwhile: what is gone by now holds nobody up. os.walk passes over lost folders.
    for lock in sorted(Path(folder) / "lock" for folder, _, files in os.walk(home) if "lock" in files):
        with suppress(FileNotFoundError):
            minutes = (time.time() - lock.stat().st_mtime) / 60
            if not _is_open(lock):
                text = f"{lock} has been there for {minutes:.0f} min and no process holds it"
                text += "; torch's JIT loader hangs on it."
                yield warning("stale lock", text, f"rm {shlex.quote(str(lock))}")


def _is_open(path: Path) -> bool:
    """Whether any process has a file open, of those that this user may look at."""
    target = str(path.resolve())
    for pid in filter(str.isdecimal, _names("/proc")):
        for descriptor in _names(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{descriptor}") == target:
                    return True
    return False


def _names(folder: str) -> list[str]:
    """What is in a folder of /proc; nothing once its process has ended, where it is another user's, or on macOS."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _folders_elsewhere() -> Iterator[Finding]:
    """Where compilers keep what they pass on, and kernelgen what it can make again."""
    temporary = os.environ.get("TMPDIR")
    if temporary and not _takes_files(Path(temporary)):
        text = f"TMPDIR={temporary} is no folder that you can write to, and nvcc writes there."
        yield error("temporary", text, "unset TMPDIR", stops="cuda")
    cache = caches.folder("templates").parent
    nearest = next(folder for folder in (cache, *cache.parents) if folder.exists())
    if not _takes_files(nearest):
        text = f"{cache} cannot be written: the emulated GPU and updates of the template keep files there."
        yield warning("cache", text, "export XDG_CACHE_HOME=DIR, a folder that can be written")


def _takes_files(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _disk(root: Path) -> Iterator[Finding]:
    if not os.access(root, os.W_OK):
        cure = f"cp -r {root} where you may write, or chmod -R u+w {root}"
        yield error("disk", f"{root} is read-only for you, and a build writes there.", cure, stops="cpu")
    free = shutil.disk_usage(root).free
    text, cure = f"{free / 2**30:.1f} GiB free in {root}", f"du -xhd1 {root} | sort -h"
    if free < TOO_LITTLE:
        yield error("disk", f"only {text}; a build needs some 100 MiB.", cure, stops="cpu")
    else:
        yield warning("disk", f"only {text}.", cure) if free < LITTLE else ok("disk", text)
