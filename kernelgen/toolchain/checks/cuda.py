"""The CUDA toolkit: present, of torch's major version, complete, and fit for the C++ compiler and the architectures."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from kernelgen.toolchain import packages
from kernelgen.toolchain.checks import trial
from kernelgen.toolchain.checks.python import numbers
from kernelgen.toolchain.environment import leaves_cuda_out
from kernelgen.toolchain.facts import Facts
from kernelgen.toolchain.finding import Finding, error, ok

# What compiling a kernel needs besides nvcc and cuda_runtime_api.h: its folders, and the package that brings it.
PARTS = {
    "cuda_fp16.h": (("include", "targets/*/include"), "nvidia-cuda-runtime"),
    "crt/host_defines.h": (("include", "targets/*/include"), "nvidia-cuda-crt"),
    "nv/target": (("include", "include/cccl", "targets/*/include", "targets/*/include/cccl"), "nvidia-cuda-cccl"),
    "ptxas": (("bin",), "nvidia-cuda-nvcc"),
    "cicc": (("nvvm/bin",), "nvidia-nvvm"),
    "libcudart_static.a": (("lib64", "lib", "targets/*/lib"), "nvidia-cuda-runtime"),
}
# Variables that nvcc reads by itself.
_FURTHER_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_SOURCE = "#include <cuda_fp16.h>\n__global__ void kernel(__half* x) {}\n"


def check(facts: Facts) -> Iterator[Finding]:
    toolkit, torch = facts["toolkit"], facts["torch"].value
    if torch is None:
        return
    if toolkit.value is None and leaves_cuda_out(os.environ):
        yield error("nvcc", "USE_CUDA=0 leaves CUDA out.", "unset USE_CUDA", stops="cuda")
        return
    if toolkit.value is None:
        text = _short(toolkit.error or toolkit.notes or "no CUDA toolkit (nvcc) was found")
        yield error("nvcc", text, _cure(facts), stops="cuda", packages=packages.toolkit(facts))
        return
    home, version = Path(toolkit.value["home"]), ".".join(map(str, toolkit.value["version"]))
    match = f", matches torch's CUDA {torch['cuda']}" if torch["cuda"] else ""
    yield ok("nvcc", f"{version} in {home}{match}")
    problems = [*_parts(facts, home), *_host_compiler(facts, home)] or list(_reads_headers(facts, home))
    yield from problems or [ok("toolkit", "headers, tools, static runtime and host compiler fit")]
    yield _architectures(facts)


def _short(text: str) -> str:
    """The build's sentence without its cure: doctor has its own."""
    return re.split(r"; |: building the CPU library only", text)[0].rstrip(".") + "."


def _cure(facts: Facts) -> str:
    cuda, cuda_home = facts["torch"].value["cuda"], os.environ.get("CUDA_HOME")
    if cuda is None:
        return f"{packages.command(facts.python)} --force-reinstall torch (for a build with CUDA), or set CUDA_HOME"
    for home in sorted(Path("/usr/local").glob(f"cuda-{cuda.split('.')[0]}.*"), reverse=True):
        if (home / "bin" / "nvcc").is_file() and str(home) != cuda_home:
            return f"export CUDA_HOME={home}"
    first = "unset CUDA_HOME && " if cuda_home else ""
    if packages.toolkit(facts):
        return f"{first}kernelgen doctor --fix"
    return (
        f"apt-get install cuda-toolkit-{cuda.replace('.', '-')} (from NVIDIA's repository: pip has no nvcc of CUDA "
        f"{cuda}); or {packages.command(facts.python)} --upgrade torch, for one built with CUDA 13"
    )


def _parts(facts: Facts, home: Path) -> Iterator[Finding]:
    from_pip, cuda = home.parent.name == "nvidia", facts["torch"].value["cuda"]
    for name, (folders, package) in PARTS.items():
        if any(path.is_file() for folder in folders for path in home.glob(f"{folder}/{name}")):
            continue
        text = f"{home} has no {name}, which building a kernel needs."
        requirement = f"{package}=={facts.installed(package) or f'{cuda}.*'}"
        if from_pip and cuda and facts.installed(package) is None:
            yield error("toolkit", text, "kernelgen doctor --fix", stops="cuda", packages=[requirement])
        elif from_pip and cuda:
            cure = f"{packages.command(facts.python)} --force-reinstall --no-deps '{requirement}'"
            yield error("toolkit", text, cure, stops="cuda")
        else:
            cure = f"reinstall the toolkit in {home}, or point CUDA_HOME at a whole one"
            yield error("toolkit", text, cure, stops="cuda")


def _host_compiler(facts: Facts, home: Path) -> Iterator[Finding]:
    """nvcc refuses C++ compilers that are newer than a bound, which one of its headers holds."""
    header = home / "include" / "crt" / "host_config.h"
    if facts["compiler"].value is None or not header.is_file():
        return
    kind, version = trial.identify(facts["compiler"].value)
    pattern = r"__clang_major__ >= (\d+)" if kind == "clang++" else r"__GNUC__ >=? (\d+)"
    bounds = [int(bound) for bound in re.findall(pattern, header.read_text(errors="replace"))]
    newest = max(bounds, default=0) - (kind == "clang++")
    if bounds and numbers(version)[0] > newest:
        text = f"this nvcc takes {kind} up to {newest}, and '{facts['compiler'].value}' is {version}."
        cure = f"apt-get install g++-{newest} && export CXX=g++-{newest}" if kind == "g++" else "export CXX=g++"
        if kind == "g++" and "conda" in facts["compiler"].value:
            cure = f"conda install 'gxx<{newest + 1}'"
        yield error("host compiler", text, cure, stops="cuda")


def _reads_headers(facts: Facts, home: Path) -> Iterator[Finding]:
    if facts["compiler"].value is None:
        return
    host = shlex.split(facts["compiler"].value)[-1]
    command = [str(home / "bin" / "nvcc"), f"-ccbin={host}", "-x", "cu"]
    problem = trial.preprocess(command, _SOURCE)
    further = [variable for variable in _FURTHER_FLAGS if os.environ.get(variable)]
    if problem and further and not trial.preprocess(["env", *(f"-u{name}" for name in further), *command], _SOURCE):
        text = f"nvcc stops at the flags in {' or '.join(further)}: {problem}"
        yield error("nvcc flags", text, f"unset {' '.join(further)}, or leave out what is wrong there", stops="cuda")
    elif problem:
        cure = f"reinstall the toolkit in {home}, or point CUDA_HOME at another"
        yield error("toolkit", f"nvcc cannot read its headers: {problem}", cure, stops="cuda")


def _architectures(facts: Facts) -> Finding:
    if refusal := facts["nvcc_flags"].error:
        return error("nvcc flags", refusal, "edit the flags that it names", stops="cuda")
    answer = facts["architectures"]
    if answer.error:
        cure = "unset TORCH_CUDA_ARCH_LIST" if os.environ.get("TORCH_CUDA_ARCH_LIST") else "edit it in setup.py"
        return error("architectures", answer.error, cure, stops="cuda")
    return ok("architectures", f"{' '.join(answer.value)}, {_origin(facts)}")


def number(architecture: str) -> str:
    """90 for "9.0", "9.0a" and "9.0+PTX"."""
    return re.sub(r"\D", "", architecture.removesuffix("+PTX"))


def _origin(facts: Facts) -> str:
    if os.environ.get("TORCH_CUDA_ARCH_LIST"):
        return "from TORCH_CUDA_ARCH_LIST"
    if str(facts["pinned"].value).lower() != "native":
        return "pinned in setup.py"
    return "a portable choice, as there is no GPU" if facts["architectures"].notes else "for the GPU here"
