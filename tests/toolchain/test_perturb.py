"""Random waits around synchronisation: where they are added, and that nvcc's result holds them."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from build_tools import perturb

from tests.stamped.conftest import REPOSITORY

KERNEL = """
#include "sm90/mbarrier.cuh"
__global__ void kernel(float* x) {
  __shared__ float shared[256];
  __shared__ MBarrier barrier;
  if (threadIdx.x == 0) barrier.init(256);
  shared[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  barrier.arrive();
  barrier.wait(0);
  atomicAdd(&x[threadIdx.x], shared[255 - threadIdx.x]);
}
cudaError_t launch(float* x) {
  kernel<<<1, 256>>>(x);
  return cudaGetLastError();
}
"""


class Always(random.Random):
    """Draws a wait at every place."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 1 if stop is None else start


def places(ptx: str) -> list[str]:
    """The text, with `wait` for each wait in it."""
    text = perturb.perturbed(ptx, Always())
    begin, end = text.find("{ // perturbed"), text.find("nanosleep.u32 time;\n}")
    while begin >= 0:
        text = text[:begin] + "wait" + text[end + len("nanosleep.u32 time;\n}") :]
        begin, end = text.find("{ // perturbed"), text.find("nanosleep.u32 time;\n}")
    return text.split()


@pytest.mark.parametrize(
    ("ptx", "expected"),
    [
        ("\tbar.sync 0;\n", "wait bar.sync 0; wait"),
        ("\t@%p1 atom.global.add.f32 %f1, [%rd1], %f2;\n", "wait @%p1 atom.global.add.f32 %f1, [%rd1], %f2; wait"),
        ("$L1:\n\tmembar.gl;\n", "$L1: wait membar.gl; wait"),
        ("$L1:\n\t.loc 1 17 3\n\tbar.sync 0;\n", "$L1: .loc 1 17 3 wait bar.sync 0; wait"),
        (
            "{ .reg .pred p; mbarrier.arrive.b64 _, [%r1]; }",
            "{ .reg .pred p; wait mbarrier.arrive.b64 _, [%r1]; wait }",
        ),
        ("\tfence.proxy.async;\n", "wait fence.proxy.async;"),
        ("wgmma.fence.sync.aligned;", "wait wgmma.fence.sync.aligned;"),
        ("wgmma.mma_async.sync.aligned\n{%f1},\n%rd1;", "wgmma.mma_async.sync.aligned {%f1}, %rd1;"),
        ("wgmma.commit_group.sync.aligned;", "wgmma.commit_group.sync.aligned; wait"),
        ("\tld.global.f32 %f1, [%rd1];\n", "ld.global.f32 %f1, [%rd1];"),
        ("\tld.volatile.shared.u32 %r1, [flag];\n", "wait ld.volatile.shared.u32 %r1, [flag]; wait"),
        ("\tshfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;\n", "shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;"),
        ('// bar.sync 0;\n.file 1 "bar.sync;"\n', '// bar.sync 0; .file 1 "bar.sync;"'),
    ],
)
def test_waits_stand_around_what_synchronises(ptx, expected):
    assert places(ptx) == expected.split()


def test_a_seed_chooses_the_places():
    ptx = "\tbar.sync 0;\n" * 40
    first, same, other = (perturb.perturbed(ptx, random.Random(seed)) for seed in (1, 1, 2))
    assert first == same != other
    assert 0 < first.count("nanosleep") < 80  # Some places have none.


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_a_kernel_is_compiled_with_the_waits_and_its_dependencies(tmp_path):
    (tmp_path / "kernel.cu").write_text(KERNEL)
    package = next((REPOSITORY / "template" / "src").iterdir())
    include = [f"-I{package / 'include'}", f"-I{package / 'include' / 'cuda'}", f"-I{package / 'include' / 'sm90'}"]
    command = ["nvcc", *include, "-MD", "-MF", "kernel.o.d", "-arch=sm_90a", "-c", "kernel.cu", "-o", "kernel.o"]
    environment = {
        "PYTHONPATH": str(REPOSITORY / "template"),
        "PATH": str(Path(shutil.which("nvcc")).parent) + ":/usr/bin:/bin",
    }
    plain = tmp_path / "plain.o"
    subprocess.run([*command[:-1], plain], cwd=tmp_path, check=True)
    subprocess.run(
        [sys.executable, "-m", "build_tools.perturb", "1", *command], cwd=tmp_path, env=environment, check=True
    )
    dependencies = (tmp_path / "kernel.o.d").read_text()
    assert dependencies.startswith("kernel.o")
    assert "mbarrier.cuh" in dependencies
    assert (tmp_path / "kernel.o").stat().st_size > plain.stat().st_size


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_the_compiler_s_refusal_is_the_exit_code(tmp_path):
    (tmp_path / "kernel.cu").write_text("__global__ void kernel() { nonsense; }")
    command = [sys.executable, "-m", "build_tools.perturb", "1", "nvcc", "-c", "kernel.cu", "-o", "kernel.o"]
    environment = {
        "PYTHONPATH": str(REPOSITORY / "template"),
        "PATH": str(Path(shutil.which("nvcc")).parent) + ":/usr/bin:/bin",
    }
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "nonsense" in done.stderr
    assert not (tmp_path / "kernel.o").exists()
