"""The ways people build a CUDA extension otherwise: torch's own, and what each remedy brings, one after another."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from build_project import ALL_ARCHITECTURES, KERNEL, Project
from build_times import Time, call, say

DEVICE_CODE = """
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
{DEVICE_CODE}
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
{DEVICE_CODE}
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
    site = Path(importlib.util.find_spec("torch").origin).parents[1]
    folders = [str(path) for path in site.glob("nvidia/*/include")]
    # Last in the order: a toolkit's own headers come first.
    return {"CPLUS_INCLUDE_PATH": os.pathsep.join(folders), "NVCC_APPEND_FLAGS": " ".join(f"-I{f}" for f in folders)}


class Stairs(dict):
    """Times of a cold build and of an edit, by the name of a remedy; the remedies of the stairs before it stay."""

    def add(self, name: str, **times: Time) -> None:
        before = list(self.values())[-1] if self else times
        self[name] = times
        cells = "".join(
            f"   {key} {run['wall']:6.1f} s, processor {run['cpu']:6.1f} s ({before[key]['cpu'] / run['cpu']:4.1f} x)"
            for key, run in times.items()
        )
        say(f"{name:52}{cells}")

    def add_setup(self, name: str, peer: Peer, **settings: int) -> None:
        """What setup.py of a peer takes."""
        peer.clean()
        cold = peer.setup(**settings)
        peer.edit()
        self.add(name, cold=cold, edit=peer.setup(**settings))


def peers(home: Path, project: Project) -> dict[str, object]:
    """Each way to build, run once: builds take minutes and differ by factors."""
    report: dict[str, object] = {}
    project.cold()
    toolkit = re.search(r"^nvcc = (.*)/bin/nvcc$", (project.root / "build/release/build.ninja").read_text(), re.M)[1]
    tensor = Peer(home / "tensor", TENSOR_KERNEL, TENSOR_BINDING, toolkit)
    plain = Peer(home / "plain", PLAIN_KERNEL, PLAIN_BINDING, toolkit)
    stairs = Stairs()
    say("\nOne op: to a library from nothing, and after an edit of its kernel (in brackets: the saving, as a factor)")
    tensor.clean()
    # Without Ninja a change of one file compiles all of them: an edit is a cold build.
    slow = tensor.setup(ninja=False, architectures=ALL_ARCHITECTURES)
    stairs.add("torch, no Ninja, 7 architectures", cold=slow, edit=slow)
    tensor.clean()
    one_architecture = tensor.setup(ninja=False)
    stairs.add("+ one architecture", cold=one_architecture, edit=one_architecture)
    stairs.add_setup("+ Ninja, one job", tensor, jobs=1)
    stairs.add_setup("+ jobs for all cores", tensor)
    usual = report["as extension-cpp builds it"] = {**stairs["+ jobs for all cores"], "no-op": tensor.setup()}
    stairs.add_setup("+ no torch header in the .cu", plain)
    cold = project.cold()
    project.edit(KERNEL)
    stairs.add("+ stable ABI, no setuptools: kernelgen build", cold=cold, edit=project.build())
    if shutil.which("ccache"):
        stairs.add("+ ccache, of what it has seen before", **with_warm_ccache(project))
    report["staircase"] = stairs

    say()
    jit = report["torch.utils.cpp_extension.load"] = loaded(tensor)
    say("torch.utils.cpp_extension.load    " + "   ".join(f"{key} {run['wall']:.1f} s" for key, run in jit.items()))
    say("CUDAExtension, as extension-cpp   " + "   ".join(f"{key} {run['wall']:.1f} s" for key, run in usual.items()))
    return report


def with_warm_ccache(project: Project) -> dict[str, Time]:
    """A cold build, and an edit that is undone: ccache has seen all of it."""
    with tempfile.TemporaryDirectory() as cache:
        settings = {"USE_CCACHE": "1", "CCACHE_DIR": cache}
        project.cold(**settings)
        warm = project.cold(**settings)
        kernel = project.root / KERNEL
        text = kernel.read_text()
        project.edit(KERNEL)
        project.build(**settings)
        kernel.write_text(text)
        return {"cold": warm, "edit": project.build(**settings)}


def loaded(peer: Peer) -> dict[str, Time]:
    """What `load` takes, from nothing, after an edit, and where nothing changed."""
    peer.clean()
    cold = peer.load()
    peer.edit()
    return {"cold": cold, "edit": peer.load(), "no-op": peer.load()}
