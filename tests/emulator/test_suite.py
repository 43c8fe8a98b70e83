"""A stamped project's tests know which backend they call, and what an emulated GPU has no time for or refuses."""

import os
import subprocess
import sys

import pytest

from tests.stamped.conftest import stamp


@pytest.fixture(scope="module")
def project(made_once):
    ops = [{"name": "scale", "recipe": "elementwise"}]
    return made_once("backends", lambda folder: stamp(folder / "p", ops=ops)) / "p"


def say(project, variant: str, program: str) -> str:
    """What a program that has the suite prints. No library has to be built."""
    path = f"{project / 'src'}:{project / 'tests'}"
    variables = {**os.environ, "PYTHONPATH": path, "DEMO_KERNELS_VARIANT": variant}
    command = [sys.executable, "-c", f"import torch\nfrom suite import *\n{program}"]
    return subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout.strip()


def test_on_an_emulated_gpu_cpu_tensors_call_the_cuda_backend(project):
    work = "[is_too_large(torch.mm, [torch.ones(n, n)] * 2) for n in (400, 320, 200)]"
    program = f"print(backend_of('cpu'), compute_capability(), *{work})"
    assert say(project, "emulated-sm_90a", program) == "cuda (9, 0) True True False"


def test_without_one_they_call_the_cpu_backend_and_nothing_is_too_large(project):
    program = "print(backend_of('cpu'), backend_of('cuda:1'), is_too_large(torch.neg, [torch.ones(2**20)]))"
    assert say(project, "release", program) == "cpu cuda False"


def test_a_refusal_of_the_gpu_is_known_by_the_words_that_the_op_s_tests_give(project):
    program = """
class TestScale: gpu_refusals = ("below 8.0",)
from suite.refusals import refusal_of_gpu
wrapped = ValueError("wrapped")
wrapped.__cause__ = RuntimeError("scale: the GPU is of compute capability below 8.0")
print(refusal_of_gpu(TestScale(), wrapped), refusal_of_gpu(TestScale(), ValueError("8.0")), sep=", ")
"""
    assert say(project, "release", program) == "scale: the GPU is of compute capability below 8.0, None"
