"""Builds a project's wheel, and checks which Pythons, torches and GPUs it runs on."""

import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernelgen.errors import KernelgenError
from kernelgen.toolchain import elf, fatbin, gpus, packages
from kernelgen.toolchain.build_tools import ask
from kernelgen.toolchain.environment import leaves_cuda_out
from kernelgen.toolchain.finding import Finding, error, ok, warning

TAG = "cp310-abi3"
# What every machine with torch has. libcudart is linked statically; libc10 and libpython tie a wheel to a version.
_ALLOWED = re.compile(r"lib(torch|torch_cpu|torch_cuda|stdc\+\+|gcc_s|c|m|dl|rt|pthread)\.so(\.\d+)*|ld-linux.*")
# The stable ABI is plain C, which is added to and never changed.
_STABLE = re.compile(r"(aoti_)?torch_\w+")
# The C++ library's symbols: unversioned where libtorch holds a copy of them, and any copy will do.
_STANDARD = re.compile(r"_Z(T[ISV])?N?K?(St|S[abdios])")
_CURE = "include only torch/csrc/stable/* and torch/headeronly/*, no ATen, c10, pybind11 or Python.h; build again"


def refuse_native(project: Path, python: Path, environment: Mapping[str, str]) -> None:
    """Refuses a wheel whose GPUs would be whatever the machine has that builds it, unless that was asked for.

    Raises:
        KernelgenError: the project pins "native", nothing else was chosen, and CUDA would be compiled.
    """
    if environment.get("TORCH_CUDA_ARCH_LIST") or leaves_cuda_out(environment):
        return
    facts = ask(project, python, "facts")
    if (facts.get("pinned", {}).get("value") or "").strip().lower() != "native" or not facts["toolkit"]["value"]:
        return
    present = ", ".join(facts["architectures"]["value"] or [])
    raise KernelgenError(
        f'setup.py pins CUDA_ARCHITECTURES = "native", so this wheel would hold code for {present} alone, and its name '
        'would not say so; choose: kernelgen build --wheel --arch "8.0;9.0+PTX" for every GPU from 8.0 on, or --arch '
        "native for the GPUs of this machine."
    )


def build_wheel(project: Path, python: Path, out: Path, environment: Mapping[str, str] | None = None) -> list[Finding]:
    """Builds the wheel of `project` into `out` and returns the findings of its check; the first names the wheel.

    Raises:
        KernelgenError: it does not build.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        if uv := packages.uv_instead(python):
            command = [uv, "build", "--wheel", "--python", str(python), "--out-dir", scratch]
        else:
            command = [str(python), "-m", "pip", "wheel", "--no-deps", "-w", scratch]
        line = [*command, "--no-build-isolation", str(project)]
        if subprocess.run(line, stdout=packages.STDERR, env=environment, check=False).returncode:
            raise KernelgenError("The wheel does not build; the messages are above.")
        (built,) = Path(scratch).glob("*.whl")
        wheel = built.replace(out / built.name)
    return [ok("wheel", str(wheel)), *check_wheel(wheel)]


def check_wheel(wheel: Path) -> list[Finding]:
    """What is wrong with a wheel's tag, its contents and its libraries; or one finding that says all is well.

    Raises:
        KernelgenError: it is no wheel, or a .so in it is no library.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            libraries = {name: archive.read(name) for name in names if name.endswith(".so")}
    except (OSError, zipfile.BadZipFile) as problem:
        raise KernelgenError(f"{wheel} is no wheel: {problem}.") from problem
    findings = []
    if f"-{TAG}-" not in wheel.name:
        text = f"{wheel.name} is not tagged {TAG}, so each Python needs a wheel of its own."
        findings.append(error("tag", text, "restore bdist_wheel's py_limited_api in build_tools/commands.py"))
    backends = {Path(name).name for name in libraries}
    if "_cpu.so" not in backends:
        findings.append(error("contents", f"{wheel.name} holds no _cpu.so.", "kernelgen build"))
    if "_cuda.so" not in backends:
        text = f"{wheel.name} holds no _cuda.so: its ops run on the CPU alone."
        findings.append(warning("contents", text, "USE_CUDA=1 kernelgen build --wheel"))
    for name, data in libraries.items():
        findings += check_library(name, data)
        findings += check_gpus(name, data)
    bad = any(finding.state == "error" for finding in findings)
    fine = f"{TAG}, and its libraries need only the stable ABI: any torch from 2.10 on, any Python from 3.10 on"
    return findings if bad else [*findings, ok("portable", fine)]


def check_library(name: str, data: bytes) -> Iterator[Finding]:
    """What a library needs that not every machine with torch has.

    Raises:
        KernelgenError: it is no library.
    """
    needs = elf.read(data)
    for library in needs.libraries:
        if not _ALLOWED.fullmatch(library):
            text = f"{name} needs {library}, which not every torch brings."
            yield error("libraries", text, "leave it out of LDFLAGS, or link it statically")
    for path in needs.paths:
        if not path.startswith("$ORIGIN"):
            text = f"{name} looks for libraries in {path}, a folder of the machine that built it."
            yield error("libraries", text, "leave -rpath out of LDFLAGS")
    for symbol, versioned in sorted(needs.symbols.items()):
        if not (versioned or _STABLE.fullmatch(symbol) or _STANDARD.match(symbol)):
            text = f"{name} needs {symbol}, which {_owner(symbol)}."
            yield error("symbols", text, _CURE)


def check_gpus(name: str, data: bytes) -> Iterator[Finding]:
    """Which GPUs a library has code for: a wheel's name does not say. Nothing for a library without kernels."""
    architectures = fatbin.architectures(data)
    if not architectures:
        return
    # PTX for one architecture alone, such as 9.0a+PTX, runs on no newer GPU.
    has_ptx = any(re.fullmatch(r"[\d.]+\+PTX", architecture) for architecture in architectures)
    older = [f"{capability} ({gpus.NAMES[capability]})" for capability in gpus.unserved(architectures)]
    newer = "newer GPUs compile the PTX when they load it" if has_ptx else "no PTX: it runs on no newer GPU"
    text = f"{name} holds code for {', '.join(architectures)}, and {newer}"
    text += f"; it does not run on {', '.join(older)}" if older else ""
    if has_ptx:
        yield ok("gpus", text)
    else:
        cure = 'kernelgen build --wheel --arch "8.0;9.0+PTX", or nothing if no other GPU will run it'
        yield warning("gpus", f"{text}; no name says so.", cure)


def _owner(symbol: str) -> str:
    """Why a symbol may not be needed."""
    if re.match(r"_?Py", symbol):
        return "belongs to Python: the libraries of one wheel for every Python hold none"
    if re.match(r"_Z.*(2at|3c10|5torch|6caffe2)", symbol):
        return "belongs to torch's C++ ABI: it changes with every release"
    return "is outside torch's stable ABI and the system's libraries"
