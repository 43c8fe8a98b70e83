"""Projects stamped from the template of this checkout, built once and shared by every test and worker."""

import functools
import hashlib
import inspect
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from build_tools.instantiations import instantiate_line, instantiations

from kernelgen.scaffold.schema.parser import parse
from tests.conftest import locked

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / "build" / "stamped"
ARCHITECTURES = "8.0;9.0a"
# The op whose objects are made as users' are: optimised, and one for each instantiation. `instantiate_together`
# rewrites all others.
BUILT_AS_USERS_DO = "another_swiglu"
# Halves the time to compile device code that no GPU runs, by a flag of CUDA 13; and hands -O0 to g++ alone, which takes
# a fourth of its time then for the code that launches kernels.
QUICK_NVCC = 'NVCC_FLAGS = {"*": ["--Ofast-compile=max", "-O0"]}'
# For the project of every op. -O0 is a second -O, of which nvcc warns: only the ops that gain by it have it.
_LAUNCHED_BY_MUCH_CODE = ("another_layer_norm", "another_linear_activation", "my_attention", "rms_norm")
QUICK_DEVICE_CODE = 'NVCC_FLAGS = {"*": ["--Ofast-compile=max"]'
QUICK_DEVICE_CODE += "".join(f', "{op}": ["-O0"]' for op in _LAUNCHED_BY_MUCH_CODE) + "}"
# Halves the time to compile C++, of which tests look at results and not at speed. HEADER stands for the compiled header
# of `quickly`, which ops have whose C++ is that of another op: the other shows that it includes what it needs.
QUICK_CXX = f'CXX_FLAGS = {{"*": ["-O1"], "{BUILT_AS_USERS_DO}": ["-O3"]'
_LIKE_ANOTHER = ("another_elementwise", "every_type", "keywords", "mutates", "several")
QUICK_CXX += "".join(f', "{op}": ["-include", "HEADER"]' for op in _LIKE_ANOTHER) + "}"


def blank(name: str, schema: str, reference: str | None = None) -> dict[str, Any]:
    """The entry that `add-op --schema` records, or `--from` where there is a reference."""
    return {"name": name, "recipe": "blank", "schema": parse(schema).entry(), "reference": reference}


# Every recipe (those that take long to compile once, under another name) and schemas of every kind.
EVERY_OP = [
    {"name": "another_elementwise", "recipe": "elementwise"},
    {"name": "another_layer_norm", "recipe": "layer_norm"},
    {"name": "another_linear_activation", "recipe": "linear_activation"},
    {"name": "another_swiglu", "recipe": "swiglu"},
    {"name": "elementwise", "recipe": "elementwise"},
    blank(
        "every_type",
        "(Tensor x, Tensor? bias, Tensor[] many, Tensor?[] some, Tensor[]? maybe, int n, SymInt size, SymInt[] sizes,"
        " int[] dims, int[2] pair, int[]? perhaps, float eps, float[] scales, bool flag, bool[] flags, str mode,"
        " str[] modes, ScalarType dtype, ScalarType? other_dtype, Device device, Layout layout, *, int m=3,"
        ' MemoryFormat? format=None, str text="a, b") -> (Tensor y, Tensor[], int, float)',
    ),
    blank(
        "keywords", "(Tensor self, Tensor template, int xor, float double, int await=1, Tensor? torch=None) -> Tensor"
    ),
    # Under another name only: it is the recipe that takes longest to compile.
    {"name": "my_attention", "recipe": "flash_attention"},
    {"name": "my_op", "recipe": "blank"},
    blank("mutates", "(Tensor(a!) x, Tensor! y, *, float alpha=1.0) -> ()"),
    {"name": "rms_norm", "recipe": "rms_norm"},
    blank("several", "(Tensor x, Tensor? weight=None) -> (Tensor, Tensor)"),
]


def stamp(target: Path, **answers: object) -> Path:
    """Stamps a project with stock Copier, from a copy of the working tree's template."""
    from copier import run_copy

    data = {"project_name": "demo-kernels", **answers}
    run_copy(str(_template()), target, data=data, defaults=True, quiet=True)
    return target


@functools.cache
def _template() -> Path:
    """A copy of the working tree's template, not to be changed: of a folder with git Copier takes the last commit."""
    # Among the files of this run of the tests; who stamps without pytest has a folder of its own.
    source = Path(tempfile.mkdtemp(prefix="template-", dir=os.environ.get("KERNELGEN_TEST_RUN")))
    shutil.copytree(REPOSITORY / "template", source / "template")
    shutil.copy(REPOSITORY / "copier.yml", source)
    return source


def run(command: list[str], project: Path, **variables: str | None) -> subprocess.CompletedProcess[str]:
    """Runs a command in a project, with environment variables set, or unset where None is given."""
    environment = {**os.environ, **variables}
    environment = {name: value for name, value in environment.items() if value is not None}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def build(project: Path, **variables: str | None) -> subprocess.CompletedProcess[str]:
    variables = {"TORCH_CUDA_ARCH_LIST": ARCHITECTURES, "USE_CUDA": None, "DEBUG": None, **variables}
    return run([sys.executable, "setup.py", "build_ext", "--inplace"], project, **variables)


# What the C++ of ops includes, apart from headers of the project.
HEADERS = (
    *("torch/csrc/stable/library.h", "torch/csrc/stable/macros.h", "torch/csrc/stable/ops.h"),
    *("torch/csrc/stable/tensor.h", "algorithm", "cmath", "optional", "string", "tuple", "type_traits", "vector"),
)


def quickly(level: str = "-O0") -> dict[str, str]:
    """Variables for a build that compiles C++ in less than half the time, for tests that look at results and not at
    speed: the headers are compiled before, once for all projects. Nothing is optimised, unless by a level of -O1. The
    linker reads no symbols of PyTorch, 200,000 of them, which take it three fourths of its time."""
    header = compiled_header(level)
    return {"CXXFLAGS": f"{level} -include {shlex.quote(str(header))}", "LDFLAGS": f"-L{shlex.quote(str(_stubs()))}"}


def compiled_header(level: str) -> Path:
    """A header with all of HEADERS, for `-include`, with its compiled forms beside it."""
    import torch

    # g++ takes the compiled header only where these flags are those of the build; else it reads the text.
    flags = ["-std=c++17", "-fno-math-errno", "-fno-trapping-math", level, "-fPIC", "-fvisibility=hidden"]
    flags += ["-DTORCH_TARGET_VERSION=0x020a000000000000", "-isystem", str(Path(torch.__file__).parent / "include")]
    # The compiler takes the one that fits: glue of a CUDA library defines USE_CUDA.
    kinds = {"cpu.gch": [], "cuda.gch": ["-DUSE_CUDA"]}
    compiler = subprocess.check_output(["g++", "-dumpfullversion"], text=True)
    digest = hashlib.sha256(f"{torch.__version__} {compiler} {flags} {kinds} {HEADERS}".encode()).hexdigest()[:16]
    header = CACHE.parent / "headers" / level / digest / "torch.h"
    with locked(header.parents[1] / "lock"):
        compiled = header.with_suffix(".h.gch")
        if not compiled.exists():
            for old in header.parents[1].glob("????????????????"):
                shutil.rmtree(old)
            header.parent.mkdir(parents=True)
            header.write_text("".join(f"#include <{name}>\n" for name in HEADERS))
            unfinished = header.with_suffix(".unfinished")
            unfinished.mkdir()
            for name, more in kinds.items():
                command = ["g++", *flags, *more, "-x", "c++-header", str(header), "-o", str(unfinished / name)]
                subprocess.run(command, check=True)
            unfinished.rename(compiled)
    return header


@functools.cache
def _stubs() -> Path:
    """Empty libraries of the names of PyTorch's: what is linked with them finds those when it is loaded."""
    folder = CACHE.parent / "stubs"
    with locked(CACHE.parent / "stubs.lock"):
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            unfinished.mkdir(exist_ok=True)
            for name in ("libtorch.so", "libtorch_cpu.so"):
                command = ["g++", "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-x", "c++", os.devnull]
                subprocess.run([*command, "-o", str(unfinished / name)], check=True)
            unfinished.rename(folder)
    return folder


def python(project: Path, code: str, **variables: str | None) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-c", code], project, PYTHONPATH="src", **variables)


def edit(file: Path, *replacements: tuple[str, str]) -> None:
    """Replaces texts in a file, each of which has to be there once."""
    text = file.read_text(encoding="utf-8")
    for old, new in replacements:
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {file}"
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


def instantiate_together(source: Path) -> None:
    """Rewrites a .cu file, so that a single object holds what would be an object of each instantiation.

    The compiler sees every instantiation, but the headers once, which are more than half of each object's time. Of the
    device code it compiles a part: for sm_90a a few instantiations that have every value, for sm_80 the last alone; of
    activations one in turn, and of two norms, which share their rows, one in every dtype. The project's users compile
    them all, and so does `benchmarks/spills.py`.
    """
    text = source.read_text(encoding="utf-8")
    line = f"// instantiate:{instantiate_line(source)}\n"
    # Names what other objects hold, of which there are none now.
    text = re.sub(r"(// [^\n]*\n)*(extern template [^;]*;\n)+\n", "", text)
    begin = text.rindex("\n\n", 0, text.index("INSTANCE_"))
    end = text.rindex("\n}  // namespace")
    instances = instantiations(source)
    parts = []
    for number, (instance, is_covering) in enumerate(zip(instances, covering(instances), strict=True)):
        is_compiled = is_covering and (_LIKE_LAYER_NORM not in source.parts or instance["T"] == instances[-1]["T"])
        on_device = "__CUDA_ARCH__ >= 900" if is_compiled else "0"
        if instance != instances[-1]:
            parts.append(f"\n\n#if !defined(__CUDA_ARCH__) || {on_device}")
        parts += [f"\n#undef INSTANCE_{name}\n#define INSTANCE_{name} {value}" for name, value in instance.items()]
        parts.append(text[begin:end].replace(_EVERY_ACTIVATION, _activation(number)))
        if instance != instances[-1]:
            parts.append("\n#endif")
    source.write_text(text[:begin].replace(line, "") + "".join(parts) + text[end:], encoding="utf-8")


# Its rows are launched and held as those of layer_norm.
_LIKE_LAYER_NORM = "rms_norm"
# How a source of linear_activation ends, whose kernels differ by activation in a function of single numbers alone.
_EVERY_ACTIVATION = "\nACTIVATIONS(INSTANTIATE)\n"
_ACTIVATIONS = ("None", "Relu", "Gelu", "GeluTanh", "Silu")


def _activation(number: int) -> str:
    """The same with one of them in device code, another for each number."""
    activation = _ACTIVATIONS[number % len(_ACTIVATIONS)]
    return f"\n#ifdef __CUDA_ARCH__\nINSTANTIATE({activation})\n#else{_EVERY_ACTIVATION}#endif\n"


def covering(instances: list[dict[str, str]]) -> list[bool]:
    """For each instantiation whether it is of the few that have every value together: the last, and whichever next has
    most values that none of those before it has."""
    kept, missing = set(), {value for instance in instances for value in instance.items()}
    latest = len(instances) - 1
    while missing:
        kept.add(latest)
        missing -= instances[latest].items()
        latest = max(range(len(instances)), key=lambda number: len(missing & instances[number].items()))
    return [number in kept for number in range(len(instances))]


def leave_one_blank_kernel(project: Path) -> None:
    """Deletes the kernels of blank ops but that of `my_op`, which are the same but for the name: no glue calls them."""
    ops = project / "src" / "demo_kernels" / "ops"
    kernel = (ops / "my_op" / "kernel.cu").read_text(encoding="utf-8")
    for op in EVERY_OP:
        path = ops / op["name"] / "kernel.cu"
        if op["recipe"] == "blank" and op["name"] != "my_op":
            assert path.read_text(encoding="utf-8") == kernel.replace("my_op", op["name"])
            path.unlink()


def write_cpu(folder: Path, body: str, helpers: str = "") -> None:
    """Writes the CPU kernel of a blank op as its file says to: the body, and REGISTER_KERNEL."""
    edit(
        folder / "cpu.cpp",
        (f'throw std::runtime_error("{folder.name}: CPU kernel not written yet");', body),
        ("NOT_WRITTEN(", "REGISTER_KERNEL("),
        ("\nnamespace {\n", f"{helpers}\nnamespace {{\n"),
    )


# Memory of large tensors is not given back to the system, which cleared it again for each: a tenth of a suite's time.
KEPT_MEMORY = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(2**30))


@dataclass(frozen=True)
class Outcome:
    """How one of a stamped project's own tests ended; `op` is None for those of the whole project."""

    op: str | None
    test: str
    case: str
    status: str
    message: str


def own_tests(
    project: Path, *arguments: str, python: Path | str = sys.executable, **variables: str | None
) -> list[Outcome]:
    """Runs a project's own tests, on the CPU unless told otherwise, and leaves the project as it is."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # With a fixed seed, so that the same tests fail everywhere.
        command = [
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:logging",
            "--tb=line",
            "--seed=1",
            f"--junitxml={report}",
        ]
        variables = {"CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1", **KEPT_MEMORY, **variables}
        result = run([str(python), *command, *arguments], project, **variables)
        assert result.returncode in (0, 1), result.stdout + result.stderr
        return [outcome(case) for case in ElementTree.parse(report).iter("testcase")]


def outcome(case: ElementTree.Element) -> Outcome:
    folders = case.get("classname", "").split(".")
    test, _, rest = case.get("name", "").partition("[")
    problem = next(iter(case), None)
    kind = None if problem is None else problem.get("type") if problem.tag == "skipped" else problem.tag
    status = {None: "passed", "failure": "failed", "error": "failed", "pytest.xfail": "xfailed"}.get(kind)
    message = "" if problem is None else f"{problem.get('message', '')}\n{problem.text}"
    op = folders[3] if folders[0] == "src" else None
    return Outcome(op, test, rest.removesuffix("]"), status or problem.tag, message)


def template_hash() -> str:
    """Differs whenever a stamped project would, or the torch that it is built with."""
    import torch

    flags = QUICK_DEVICE_CODE, QUICK_CXX, compiled_header("-O1")
    digest = hashlib.sha256(f"{torch.__version__} {sys.version} {EVERY_OP} {flags}".encode())
    for rewrite in (instantiate_together, _activation, covering):
        digest.update(inspect.getsource(rewrite).encode())
    for path in sorted([*(REPOSITORY / "template").rglob("*"), REPOSITORY / "copier.yml"]):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(REPOSITORY)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def has_cuda_13() -> bool:
    """Whether torch is built for CUDA 13 or newer, and so the toolkit, which has to match."""
    import torch

    return int((torch.version.cuda or "0").partition(".")[0]) >= 13


@pytest.fixture(scope="session")
def full_project() -> Path:
    """A project that holds every recipe, built with CUDA. Shared: do not change it, copy it (`copy_of`)."""
    home = CACHE / template_hash()
    project = home / "demo-kernels"
    with locked(CACHE / "lock"):
        if not (home / "built").exists():
            shutil.rmtree(CACHE / "unfinished", ignore_errors=True)
            for old in CACHE.glob("????????????????"):
                shutil.rmtree(old)
            unfinished = stamp(CACHE / "unfinished" / "demo-kernels", ops=EVERY_OP)
            cxx_flags = QUICK_CXX.replace("HEADER", str(compiled_header("-O1")))
            edit(unfinished / "setup.py", ("CXX_FLAGS: dict[str, list[str]] = {}", cxx_flags))
            if has_cuda_13():
                edit(unfinished / "setup.py", ("NVCC_FLAGS: dict[str, list[str]] = {}", QUICK_DEVICE_CODE))
            leave_one_blank_kernel(unfinished)
            for source in unfinished.glob("src/*/ops/*/**/*.cu"):
                if instantiate_line(source) and BUILT_AS_USERS_DO not in source.parts:
                    instantiate_together(source)
            (CACHE / "unfinished").rename(home)
            result = build(project, USE_CUDA="1")
            assert result.returncode == 0, result.stdout + result.stderr
            (home / "built").touch()
    return project


def one_op_project(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A project of one op with its CPU library. Shared: do not change it."""

    def fill(folder: Path) -> None:
        project = stamp(folder / "demo", ops=[{"name": "elementwise", "recipe": "elementwise"}])
        build(project, USE_CUDA="0").check_returncode()

    return made_once("one-op", fill) / "demo"


@pytest.fixture(scope="session")
def small_project(made_once) -> Path:
    """A project of two ops, built with CUDA, for tests that would take minutes with every recipe. Shared: copy it."""

    def fill(folder: Path) -> None:
        project = stamp(
            folder / "demo-kernels",
            ops=[{"name": "elementwise", "recipe": "elementwise"}, {"name": "my_op", "recipe": "blank"}],
        )
        # It takes as long as that of `elementwise`, and these tests change and compile nothing of it.
        (project / "src" / "demo_kernels" / "ops" / "my_op" / "kernel.cu").unlink()
        result = build(project, USE_CUDA="1", **quickly())
        assert result.returncode == 0, result.stdout + result.stderr

    return made_once("small", fill) / "demo-kernels"


@pytest.fixture(scope="session")
def outcomes_of(made_once) -> Callable[[str, Path], list[Outcome]]:
    """The outcomes of a project's own tests, which run once for all tests that need them."""

    def outcomes(name: str, project: Path, *arguments: str) -> list[Outcome]:
        def fill(folder: Path) -> None:
            (folder / "outcomes").write_bytes(pickle.dumps(own_tests(project, *arguments)))

        return pickle.loads((made_once(name, fill) / "outcomes").read_bytes())

    return outcomes


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    """Copies a built project, with its objects' times, so that a build there compiles only what a test changes."""

    def copy(project: Path) -> Path:
        return Path(shutil.copytree(project, tmp_path / project.name, symlinks=True))

    return copy
