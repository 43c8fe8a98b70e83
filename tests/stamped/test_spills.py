"""Kernels of the norms, of quantize_fp8 and of attention spill no registers, where their sources would spill most.

`benchmarks/spills.py` compiles all recipes for all architectures; that takes an hour.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.toolchain import resources

from .conftest import has_cuda_13, run, stamp
from .test_pointwise import entry


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    attention = (f"flash_attention{name}" for name in ("", "_fp8", "_paged", "_varlen"))
    ops = [{"name": recipe, "recipe": recipe} for recipe in (*attention, "layer_norm", "quantize_fp8", "rms_norm_fp8")]
    return stamp(tmp_path_factory.mktemp("spills") / "demo", ops=ops)


# What spilled: rows held as bfloat16, which 7.5 has no instructions for; two short rows beside their residual; a part
# of a matrix, for 8.6; attention's accumulators of wide heads, beside the addresses that ptxas keeps in code for 10.0
# and 12.0. Where registers are too few for the gradients of wide heads on Hopper, ptxas first makes products wait for
# each other. Of attention with heads of 96, and in 8 bits, three consumers have all but a few registers, and the
# threads that load and transpose 32 each.
@pytest.mark.skipif(not has_cuda_13(), reason="another ptxas allocates registers otherwise")
@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        ("7.5", "layer_norm/forward.cu.bfloat16-kAligned.75.o"),
        ("9.0a", "layer_norm/forward.cu.float16-kAligned.90a.o"),
        ("8.6", "quantize_fp8/matrices.cu.86.o"),
        ("12.0", "flash_attention/sm80/forward.cu.float16-96.120.o"),
        ("10.0", "flash_attention/sm80/decode.cu.float16-192.100.o"),
        pytest.param("10.0", "flash_attention/sm80/backward_keys.cu.float16-128.100.o", marks=pytest.mark.corpus),
        ("10.0", "flash_attention/sm80/backward_keys.cu.float16-256.100.o"),
        ("9.0a", "flash_attention/sm90/forward.cu.bfloat16-96.90a.o"),
        pytest.param("9.0a", "flash_attention_varlen/sm90/forward.cu.float16-96.90a.o", marks=pytest.mark.corpus),
        ("9.0a", "flash_attention/sm90/backward_wide.cu.bfloat16-192-kOrdinary.90a.o"),
        ("9.0a", "flash_attention/sm90/backward_wide.cu.bfloat16-256-kOrdered.90a.o"),
        pytest.param(
            "9.0a", "flash_attention_varlen/sm90/backward_wide.cu.bfloat16-192-false.90a.o", marks=pytest.mark.corpus
        ),
        ("9.0a", "flash_attention_varlen/sm90/backward_wide.cu.bfloat16-256-true.90a.o"),
        # For GPUs of every generation, in code for 9.0: two that spilled there, and one with no register to spare.
        pytest.param("9.0a", "flash_attention/sm80/forward.cu.bfloat16-64.90a.o", marks=pytest.mark.corpus),
        pytest.param("9.0a", "flash_attention/sm80/forward.cu.bfloat16-96.90a.o", marks=pytest.mark.corpus),
        pytest.param(
            "9.0a", "flash_attention_varlen/sm80/backward_keys.cu.bfloat16-128.90a.o", marks=pytest.mark.corpus
        ),
        # In code for 7.5: a bound for three blocks, where one has room; addresses in a loop without a free register.
        pytest.param("7.5", "flash_attention/sm80/backward_keys.cu.float16-64.75.o", marks=pytest.mark.corpus),
        pytest.param(
            "7.5", "flash_attention_varlen/sm80/backward_queries.cu.float16-256.75.o", marks=pytest.mark.corpus
        ),
        # Conversions of bfloat16, beside a row in registers.
        pytest.param("7.5", "rms_norm_fp8/kernel.cu.75.o", marks=pytest.mark.corpus),
        # In code for 8.x: a ring of one stage, of sequences that differ in length.
        pytest.param("8.0", "flash_attention_varlen/sm80/backward_keys.cu.bfloat16-256.80.o", marks=pytest.mark.corpus),
        # In code for 10.0 and 12.0: the first row, until the epilogue, where four blocks share the registers.
        pytest.param("12.0", "flash_attention_paged/sm80/forward.cu.bfloat16-128.120.o", marks=pytest.mark.corpus),
        pytest.param("9.0a", "flash_attention_fp8/sm90/forward.cu.64.90a.o", marks=pytest.mark.corpus),
        ("9.0a", "flash_attention_fp8/sm90/forward.cu.128.90a.o"),
    ],
)
def test_no_kernel_spills(project, architecture, name):
    assert spilling(project, architecture, name) == []


@pytest.mark.corpus
@pytest.mark.skipif(not has_cuda_13(), reason="another ptxas allocates registers otherwise")
def test_no_kernel_of_a_function_of_rows_spills(tmp_path):
    """Three inputs are held in registers, beside a gradient that is a sum over the rows."""
    project = stamp(tmp_path / "demo", ops=[entry("rms")])
    assert spilling(project, "9.0a", "rms/kernel.cu.bfloat16.90a.o") == []


def spilling(project: Path, architecture: str, name: str) -> list[str]:
    """The kernels of an object that spill registers, by its machine code alone: what launches them is not compiled."""
    command = [sys.executable, "-m", "build_tools", "configure"]
    run(command, project, TORCH_CUDA_ARCH_LIST=architecture, USE_CUDA="1").check_returncode()
    configuration = json.loads((project / "build/release/environment.json").read_text())
    path = f"build/release/{name}"
    ninja = [configuration["ninja"], "-f", "build/release/build.ninja", "-t", "commands", "-s", path]
    command = subprocess.check_output(ninja, cwd=project, text=True)
    assert command.count(" -c ") == 1
    (project / path).parent.mkdir(parents=True, exist_ok=True)
    subprocess.check_call(command.replace(" -c ", " -cubin "), shell=True, cwd=project)
    report = (project / f"{path}.txt").read_text()
    kernels = resources.parse(name, report)
    assert kernels
    assert "wgmma.mma_async instructions are serialized" not in report
    return [kernel.name for kernel in kernels if kernel.spill_stores or kernel.spill_loads]
