"""How long builds take: a project with every recipe, over bare nvcc and g++ with the same flags; and its peers.

    python benchmarks/build.py              # a few minutes on two cores
    python benchmarks/build.py --peers      # also torch's own ways to build, and what each remedy brings: half an hour

Run it with a Python that has torch, ninja and kernelgen, on a machine with nvcc; no GPU is needed. Each comparison
alternates between its two sides, and ratios are of neighbouring runs: a machine that slows down slows both. Processor
time is given beside the time that passed, since other programs on the machine prolong the second alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import results_file

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
PACKAGE = Path("src/demo_kernels")
ALL_ARCHITECTURES = "7.5;8.0;8.6;8.9;9.0;10.0;12.0"


# ---- Measuring ------------------------------------------------------------------------------------------------


class Time(dict):
    """Seconds that passed (`wall`) and seconds of processor time (`cpu`)."""

    @classmethod
    def of(cls, call: Callable[[], object]) -> Time:
        before, start = getrusage(RUSAGE_CHILDREN), time.perf_counter()
        call()
        passed, after = time.perf_counter() - start, getrusage(RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return cls(wall=round(passed, 4), cpu=round(used, 4))


def median(times: list[Time]) -> Time:
    return Time({key: round(statistics.median(run[key] for run in times), 4) for key in ("wall", "cpu")})


def ratio(times: list[Time], over: list[Time]) -> dict[str, float]:
    """The median over pairs of neighbouring runs."""
    pairs = list(zip(times, over, strict=True))
    return {key: round(statistics.median(a[key] / b[key] for a, b in pairs), 3) for key in ("wall", "cpu")}


def paired(repeat: int, first: Callable[[], Time], second: Callable[[], Time]) -> tuple[list[Time], list[Time]]:
    """Times of both calls, which take turns to go first."""
    first_times, second_times = [], []
    for turn in range(repeat):
        for index in (0, 1) if turn % 2 == 0 else (1, 0):
            (second_times if index else first_times).append((second if index else first)())
    return first_times, second_times


def call(command: list[str] | str, folder: Path, **variables: str) -> None:
    environment = {**os.environ, **variables}
    shell = isinstance(command, str)
    done = subprocess.run(
        command, cwd=folder, env=environment, shell=shell, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{command}\n{done.stdout}{done.stderr}")


def say(line: str = "") -> None:
    print(line, flush=True)


# ---- This project's own loop ----------------------------------------------------------------------------------


class Project:
    """A stamped project, and what it takes to compile it by hand."""

    def __init__(self, folder: Path, recipes: list[str], architecture: str) -> None:
        from copier import run_copy

        self.root, self.architecture = folder, architecture
        source = folder.parent / "template-copy"
        shutil.copytree(REPOSITORY / "template", source / "template")
        shutil.copy(REPOSITORY / "copier.yml", source)
        ops = [{"name": "my_op" if recipe == "blank" else recipe, "recipe": recipe} for recipe in recipes]
        ops.sort(key=lambda op: op["name"])
        run_copy(str(source), folder, data={"project_name": "demo-kernels", "ops": ops}, defaults=True, quiet=True)

    def build(self, *arguments: str, **variables: str) -> Time:
        """`kernelgen build`, as a process."""
        variables = {"TORCH_CUDA_ARCH_LIST": self.architecture, "USE_CCACHE": "0", **variables}
        variables |= {"PYTHONPATH": str(REPOSITORY), "USE_CUDA": "1"}
        command = [sys.executable, "-m", "kernelgen", "build", "--python", sys.executable, *arguments]
        return Time.of(lambda: call(command, self.root, **variables))

    def cold(self, **variables: str) -> Time:
        shutil.rmtree(self.root / "build", ignore_errors=True)
        for library in (self.root / PACKAGE).glob("*.so"):
            library.unlink()
        return self.build(**variables)

    def configuration(self) -> dict[str, Any]:
        """What the build's definition was written from and for."""
        return json.loads((self.root / "build/release/environment.json").read_text())

    def compile_seconds(self) -> dict[str, list[float]]:
        """How long each kernel's file took in the last build, by op."""
        objects = self.configuration()["objects"]
        seconds: dict[str, list[float]] = {}
        for line in (self.root / "build/release/.ninja_log").read_text().splitlines()[1:]:
            start, end, _, output, _ = line.split("\t")
            label = objects.get(output, "")
            if ".cu" in label:
                op = Path(output).relative_to("build/release").parts[0]
                seconds.setdefault(op, []).append((int(end) - int(start)) / 1000)
        return {op: sorted(times) for op, times in sorted(seconds.items())}

    def bare_commands(self) -> dict[str, str]:
        """Compiler and linker command lines by output, with the flags of the build and nothing else."""
        command = [self.configuration()["ninja"], "-f", "build/release/build.ninja", "-t", "commands"]
        lines = subprocess.check_output(command, cwd=self.root, text=True).splitlines()
        commands = {}
        for line in lines:
            line = re.sub(r"^rm -f \S+; |\$COMPILER_CACHE | -MD -MF \S+| \$\{NVCC_TIMES\S+| -Xptxas=-v", "", line)
            line = re.sub(r" --threads=\S+| 2> .*$| && mv .*$", "", line)
            output = re.search(r" -o (\S+)", line)[1]
            commands[output.removesuffix(".new")] = line.replace(f" -o {output}", " -o /dev/shm/bare.out")
        return commands

    def bare(self, *outputs: str) -> Time:
        commands = self.bare_commands()
        return Time.of(lambda: [call(commands[output], self.root) for output in outputs])

    def bare_at_once(self, *outputs: str) -> Time:
        """The same compilations, as many at once as there are cores, with nothing else done."""
        from concurrent.futures import ThreadPoolExecutor

        bare_commands = self.bare_commands()
        commands = [bare_commands[name].replace("/bare.out", f"/bare{n}.out") for n, name in enumerate(outputs)]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return Time.of(lambda: list(pool.map(lambda command: call(command, self.root), commands)))

    def edit(self, path: Path) -> None:
        with (self.root / path).open("a") as file:
            file.write(f"// {time.time_ns()}\n")


def own_loop(project: Project, repeat: int) -> dict[str, object]:
    cores = len(os.sched_getaffinity(0))
    report: dict[str, object] = {}
    project.cold()
    commands = project.bare_commands()
    objects = [output for output in commands if output.endswith(".o")]

    cold, bare = paired(max(2, repeat // 2), project.cold, lambda: project.bare(*objects))
    ideal = [Time(wall=run["wall"] / cores, cpu=run["cpu"]) for run in bare]
    report["cold"] = {"files": len(objects), "time": median(cold), "sum of bare compiles": median(bare)}
    report["cold"]["over bare / cores"] = ratio(cold, ideal)
    show("cold build of every recipe", cold, "bare compiles / cores", ideal)
    # Two compilers are not twice as fast as one where other programs use the machine too; this bound has that in it.
    cold, bare = paired(max(2, repeat // 2), project.cold, lambda: project.bare_at_once(*objects))
    report["cold"]["over bare, at once"] = ratio(cold, bare)
    show("", cold, "bare compiles at once", bare)

    project.cold()
    labels = project.configuration()["objects"]
    report["compile seconds of each kernel's file"] = project.compile_seconds()
    for op, seconds in project.compile_seconds().items():
        say(f"{f'a file of {op}':34} {seconds[0]:8.1f} to {seconds[-1]:.1f} s, {len(seconds)} files")
    # A file that is instantiated several times is edited once, and compared with all of its compilations.
    kernels: dict[str, list[str]] = {}
    for output in objects:
        source = labels[output].partition(" (")[0]
        if source.endswith(".cu"):
            kernels.setdefault(source, []).append(output)
    for source in map(Path, sorted(kernels)):

        def edited(source: Path = source) -> Time:
            project.edit(source)
            return project.build()

        outputs = kernels[str(source)]

        def bare(outputs: list[str] = outputs) -> Time:
            compiled, link = project.bare_at_once(*outputs), project.bare(str(PACKAGE / "_cuda.so"))
            return Time({key: compiled[key] + link[key] for key in ("wall", "cpu")})

        ours, theirs = paired(repeat, edited, bare)
        entry = {"time": median(ours), "bare nvcc -c and link": median(theirs), "over bare": ratio(ours, theirs)}
        report[f"edit {source.relative_to(PACKAGE / 'ops')}"] = entry
        show(f"edit of {source.relative_to(PACKAGE / 'ops')}", ours, "nvcc -c and link", theirs)

    source = PACKAGE / "ops/elementwise/kernel.cu"

    def edit_with(**settings: str) -> Callable[[], Time]:
        def edited() -> Time:
            project.edit(source)
            return project.build(**settings)

        return edited

    seven = {"TORCH_CUDA_ARCH_LIST": ALL_ARCHITECTURES}
    ours, theirs = paired(max(2, repeat // 2), edit_with(**seven, NVCC_THREADS=str(cores)), edit_with(**seven))
    report["threads"] = {"cores": cores, "time": median(ours), "over one": ratio(ours, theirs)}
    show(f"edit, 7 architectures, {cores} threads", ours, "one thread", theirs)
    project.build()

    noop = [project.build() for _ in range(3 * repeat)]
    report["no-op"] = {"time": median(noop)}
    show("nothing edited", noop)

    headers = []
    for _ in range(max(1, repeat // 2)):
        project.edit(PACKAGE / "include/cuda/vector.cuh")
        headers.append(project.build())
    report["header edit"] = {"time": median(headers)}
    show("edit of include/cuda/vector.cuh", headers)

    if shutil.which("ccache"):
        with tempfile.TemporaryDirectory() as cache:
            settings = {"USE_CCACHE": "1", "CCACHE_DIR": cache}
            filling = project.cold(**settings)
            missed, without = paired(repeat, edit_with(**settings), edit_with())
            report["edit that the cache has not seen"] = {"time": median(missed), "over none": ratio(missed, without)}
            show("edit that ccache has not seen", missed, "without a cache", without)
            project.cold(**settings)
            warm, cold_again = paired(max(2, repeat // 2), lambda: project.cold(**settings), project.cold)
            report["warm cache"] = {"time": median(warm), "filling it": filling, "over cold": ratio(warm, cold_again)}
            show("cold build, warm ccache", warm, "cold build", cold_again)
    return report


def show(title: str, times: list[Time], against: str = "", others: list[Time] | None = None) -> None:
    line = f"{title:34} {median(times)['wall']:8.2f} s"
    if others:
        over = ratio(times, others)
        line += (
            f"   {against:24} {median(others)['wall']:8.2f} s   {over['wall']:.2f} x (processor {over['cpu']:.2f} x)"
        )
    say(line)


# ---- The ways people build otherwise --------------------------------------------------------------------------

KERNEL = """
template <typename T>
__global__ void multiply_add(const T* a, const T* b, const T* c, T* out, long n) {
    long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = a[i] * b[i] + c[i];
}
"""

LAUNCH = "multiply_add<float><<<(n + 255) / 256, 256, 0, stream>>>(a, b, c, out, n);"

# One file with kernel and tensors, as tutorials write it.
TENSOR_KERNEL = f"""#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
{KERNEL}
torch::Tensor multiply_add_cuda(torch::Tensor x, torch::Tensor y, torch::Tensor z) {{
    auto result = torch::empty_like(x);
    auto stream = at::cuda::getCurrentCUDAStream();
    long n = x.numel();
    const float *a = x.data_ptr<float>(), *b = y.data_ptr<float>(), *c = z.data_ptr<float>();
    float* out = result.data_ptr<float>();
    {LAUNCH}
    return result;
}}
"""
TENSOR_BINDING = """#include <torch/extension.h>
torch::Tensor multiply_add_cuda(torch::Tensor x, torch::Tensor y, torch::Tensor z);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("multiply_add", &multiply_add_cuda); }
"""

# The kernel's file takes pointers, and includes no torch header.
PLAIN_KERNEL = f"""#include <cuda_runtime.h>
{KERNEL}
void launch(const float* a, const float* b, const float* c, float* out, long n, cudaStream_t stream) {{ {LAUNCH} }}
"""
PLAIN_BINDING = """#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
void launch(const float* a, const float* b, const float* c, float* out, long n, cudaStream_t stream);
torch::Tensor multiply_add(torch::Tensor x, torch::Tensor y, torch::Tensor z) {
    auto out = torch::empty_like(x);
    launch(x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), out.data_ptr<float>(), x.numel(),
           at::cuda::getCurrentCUDAStream());
    return out;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("multiply_add", &multiply_add); }
"""

SETUP = """from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
setup(
    name="peer",
    ext_modules=[CUDAExtension("peer", ["binding.cpp", "kernel.cu"])],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=NINJA)},
)
"""

LOAD = "from torch.utils.cpp_extension import load; load('peer', ['binding.cpp', 'kernel.cu'], build_directory='jit')"


class Peer:
    """The one op as a project of its own, built by torch.utils.cpp_extension."""

    def __init__(self, folder: Path, kernel: str, binding: str, toolkit: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.toolkit = toolkit
        (folder / "kernel.cu").write_text(kernel)
        (folder / "binding.cpp").write_text(binding)

    def edit(self) -> None:
        with (self.folder / "kernel.cu").open("a") as file:
            file.write(f"// {time.time_ns()}\n")

    def setup(self, *, ninja: bool = True, architectures: str = "9.0a", jobs: int | None = None) -> Time:
        (self.folder / "setup.py").write_text(SETUP.replace("NINJA", str(ninja)))
        return self._run([sys.executable, "setup.py", "build_ext", "--inplace"], architectures, jobs)

    def load(self) -> Time:
        (self.folder / "jit").mkdir(exist_ok=True)
        return self._run([sys.executable, "-c", LOAD], "9.0a", None)

    def clean(self) -> None:
        for name in ("build", "jit"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for library in self.folder.glob("*.so"):
            library.unlink()

    def _run(self, command: list[str], architectures: str, jobs: int | None) -> Time:
        variables = {"TORCH_CUDA_ARCH_LIST": architectures, "CCACHE_DISABLE": "1", **extra_headers()}
        variables["CUDA_HOME"] = self.toolkit
        variables |= {"MAX_JOBS": str(jobs)} if jobs else {}
        return Time.of(lambda: call(command, self.folder, **variables))


def extra_headers() -> dict[str, str]:
    """ATen's CUDA headers include cuBLAS's and others', which a toolkit of nvcc alone lacks and torch brings."""
    import importlib.util

    site = Path(importlib.util.find_spec("torch").origin).parents[1]
    folders = [str(path) for path in site.glob("nvidia/*/include")]
    # Last in the order: a toolkit's own headers come first.
    return {"CPLUS_INCLUDE_PATH": os.pathsep.join(folders), "NVCC_APPEND_FLAGS": " ".join(f"-I{f}" for f in folders)}


def peers(home: Path, project: Project) -> dict[str, object]:
    """Each way to build, run once: builds take minutes and differ by factors."""
    report: dict[str, object] = {}
    project.cold()
    toolkit = re.search(r"^nvcc = (.*)/bin/nvcc$", (project.root / "build/release/build.ninja").read_text(), re.M)[1]
    tensor = Peer(home / "tensor", TENSOR_KERNEL, TENSOR_BINDING, toolkit)
    plain = Peer(home / "plain", PLAIN_KERNEL, PLAIN_BINDING, toolkit)
    stairs: dict[str, dict[str, Time]] = {}

    def stair(name: str, **times: Time) -> None:
        before = list(stairs.values())[-1] if stairs else times
        stairs[name] = times
        cells = "".join(
            f"   {key} {run['wall']:6.1f} s, processor {run['cpu']:6.1f} s ({before[key]['cpu'] / run['cpu']:4.1f} x)"
            for key, run in times.items()
        )
        say(f"{name:52}{cells}")

    def torch_stair(name: str, peer: Peer, cold: Time | None = None, **settings: object) -> None:
        if cold is None:
            peer.clean()
            cold = peer.setup(**settings)
        peer.edit()
        stair(name, cold=cold, edit=peer.setup(**settings))

    say("\nOne op: to a library from nothing, and after an edit of its kernel (in brackets: the saving, as a factor)")
    tensor.clean()
    # Without Ninja a change of one file compiles all of them: an edit is a cold build.
    slow = tensor.setup(ninja=False, architectures=ALL_ARCHITECTURES)
    stair("torch, no Ninja, 7 architectures", cold=slow, edit=slow)
    tensor.clean()
    one_architecture = tensor.setup(ninja=False)
    stair("+ one architecture", cold=one_architecture, edit=one_architecture)
    torch_stair("+ Ninja, one job", tensor, jobs=1)
    torch_stair("+ jobs for all cores", tensor)
    report["as extension-cpp builds it"] = {**stairs["+ jobs for all cores"], "no-op": tensor.setup()}
    torch_stair("+ no torch header in the .cu", plain)
    cold = project.cold()
    project.edit(PACKAGE / "ops/elementwise/kernel.cu")
    stair("+ stable ABI, no setuptools: kernelgen build", cold=cold, edit=project.build())
    if shutil.which("ccache"):
        with tempfile.TemporaryDirectory() as cache:
            settings = {"USE_CCACHE": "1", "CCACHE_DIR": cache}
            project.cold(**settings)
            warm = project.cold(**settings)
            kernel = project.root / PACKAGE / "ops/elementwise/kernel.cu"
            text = kernel.read_text()
            project.edit(kernel.relative_to(project.root))
            project.build(**settings)
            kernel.write_text(text)
            stair("+ ccache, of what it has seen before", cold=warm, edit=project.build(**settings))
    report["staircase"] = stairs

    say()
    tensor.clean()
    cold = tensor.load()
    tensor.edit()
    jit = {"cold": cold, "edit": tensor.load(), "no-op": tensor.load()}
    report["torch.utils.cpp_extension.load"] = jit
    say("torch.utils.cpp_extension.load    " + "   ".join(f"{key} {run['wall']:.1f} s" for key, run in jit.items()))
    usual = report["as extension-cpp builds it"]
    say("CUDAExtension, as extension-cpp   " + "   ".join(f"{key} {run['wall']:.1f} s" for key, run in usual.items()))
    return report


# ---- The run --------------------------------------------------------------------------------------------------


def machine() -> dict[str, object]:
    def first_line(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().splitlines()[-1]

    from importlib.metadata import version

    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu[1] if cpu else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory GiB": round(memory, 1),
        "g++": first_line("g++", "-dumpfullversion"),
        "nvcc": first_line("nvcc", "--version"),
        "torch": version("torch"),
        "load before": os.getloadavg()[0],
    }


@contextmanager
def workplace() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="kernelgen-build-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    import yaml

    recipes = yaml.safe_load((REPOSITORY / "copier.yml").read_text())["recipes"]["choices"]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=7, help="runs of each side of an edit (default: 7)")
    parser.add_argument("--arch", default="9.0a", help="the architecture to compile for (default: 9.0a)")
    parser.add_argument("--recipes", nargs="+", default=recipes, help="default: every one")
    parser.add_argument("--peers", action="store_true", help="also build the ways that take minutes, once each")
    parser.add_argument("--output", type=Path, default=RESULTS / "build.json", help="default: %(default)s")
    options = parser.parse_args()

    report: dict[str, object] = {"machine": machine(), "recipes": options.recipes, "architecture": options.arch}
    say("\n".join(f"{key}: {value}" for key, value in report["machine"].items()) + "\n")
    with workplace() as home:
        project = Project(home / "demo", options.recipes, options.arch)
        report["loop"] = own_loop(project, options.repeat)
        if options.peers:
            report["peers"] = peers(home, Project(home / "one" / "demo", ["elementwise"], options.arch))
    report["machine"]["load after"] = os.getloadavg()[0]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    results_file.write(options.output, report)
    say(f"\nwritten: {options.output}")


if __name__ == "__main__":
    main()
