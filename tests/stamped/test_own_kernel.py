"""A kernel of one's own, from `add-op` to faults that are named, on a machine without a GPU: by documented commands."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.emulator.library import has_toolkit

from .conftest import edit, run

pytestmark = [
    pytest.mark.skipif(not has_toolkit(), reason="needs the headers of a CUDA toolkit, and g++"),
    pytest.mark.slow,  # All of them on one worker: they change one project.
]

KERNEL = """// A block sums a row at a time.
template <typename Tuned>
__global__ void __launch_bounds__(Tuned::threads)
    row_sum_forward(const float32* __restrict__ x, float32* __restrict__ out, Sizes sizes) {
  __shared__ float warp_sums[Tuned::threads / kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int64_t row = blockIdx.x; row < sizes.R; row += gridDim.x) {
    float sum = 0;
    for (int64_t c = threadIdx.x; c < sizes.C; c += Tuned::threads) sum += x[row * sizes.C + c];
    for (int distance = kWarp / 2; distance > 0; distance /= 2) sum += __shfl_down_sync(0xffffffff, sum, distance);
    if (lane == 0) warp_sums[warp] = sum;
    __syncthreads();  // The sums are there.
    if (threadIdx.x == 0) {
      float total = 0;
      for (const float warp_sum : warp_sums) total += warp_sum;
      out[row] = total;
    }
    __syncthreads();  // The sums have been read.
  }
}

}  // namespace

"""
# A fault, and what its report says.
FAULTS = {
    "sums read too early": ("__syncthreads();  // The sums are there.", "", "race on .*warp_sums"),
    "a column too many": ("c < sizes.C", "c <= sizes.C", "past the end of x"),
    "a warp's sum left out": ("if (lane == 0)", "if (lane == 0 && warp > 0)", "uninitialised .*warp_sums"),
    "room for a warp too few": ("warp_sums[Tuned::threads / kWarp]", "warp_sums[Tuned::threads / kWarp - 1]", "shared"),
    "a barrier in a branch": (
        "__syncthreads();  // The sums are",
        "if (warp > 0) __syncthreads();  //",
        "__syncthreads",
    ),
}


def kernelgen(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "kernelgen", *arguments], project)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project with an op of which the reference and the CUDA kernel are written."""
    folder = tmp_path_factory.mktemp("own") / "own-kernels"
    assert kernelgen(folder.parent, "new", folder.name, "--defaults", "--data", "ops=[]").returncode == 0
    shapes = ["--shapes", "x: R C float32 -> R float32"]
    assert kernelgen(folder, "add-op", "row_sum", "--schema", "(Tensor x) -> Tensor", *shapes).returncode == 0
    op = folder / "src/own_kernels/ops/row_sum"
    refusal = 'raise NotImplementedError("reference not written yet: write it in " + __file__)'
    edit(op / "reference.py", (refusal, "return x.sum(dim=1)"))
    edit(op / "cuda.cpp", ("NOT_WRITTEN(", "REGISTER_KERNEL("))
    text = (op / "kernel.cu").read_text()
    begin, end = text.index("// To be written"), text.index("cudaError_t forward(")
    (op / "kernel.cu").write_text(text[:begin] + KERNEL + text[end:])
    edit(op / "kernel.cu", ("std::clamp<int64_t>((rows + per_block - 1) / per_block, 1, kMaxBlocks)", "2"))
    return folder


def fuzz(project: Path) -> tuple[int, dict]:
    options = ["--device", "emulated", "--seed", "2", "--count", "4", "--json"]
    done = kernelgen(project, "fuzz", "row_sum", *options)
    return done.returncode, json.loads(done.stdout)


def test_the_right_kernel_is_built_and_passes(project):
    built = kernelgen(project, "build", "--device", "emulated")
    assert built.returncode == 0, built.stderr
    code, report = fuzz(project)
    assert code == 0, report


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(project, fault):
    old, new, named = FAULTS[fault]
    kernel = project / "src/own_kernels/ops/row_sum/kernel.cu"
    right = kernel.read_text()
    edit(kernel, (old, new))
    try:
        code, report = fuzz(project)
    finally:
        kernel.write_text(right)
    assert code == 1, report
    texts = [failure["text"] for failure in report["ops"][0]["failures"]]
    assert any("kernel.cu:" in text for text in texts), texts
    assert any(re.search(named, text) for text in texts), texts
