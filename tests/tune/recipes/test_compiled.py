"""What the compiler says of the recipes' tunables: candidates compile to what a lab.py estimates."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from build_tools.tuning_header import tuning_header

from kernelgen.toolchain import resources
from kernelgen.tune import gates
from kernelgen.tune.device_limits import DEVICE_LIMITS
from tests.conftest import with_sample
from tests.stamped.conftest import REPOSITORY, edit

from .survey import LIKE_9_0, OPS, STRUCTS, includes

NVCC = shutil.which("nvcc") or next(map(str, Path("/usr/local").glob("cuda/bin/nvcc")), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(NVCC is None, reason="there is no nvcc here")]

# By op, class of shapes and direction: a source that its kernels are compiled in, with one of its instances, and, by a
# part of an estimate's `kernel`, what C++ calls its shared memory, for the struct of values {0}.
COMPILED_IN: dict[tuple[str, str | None, bool], tuple[str, dict[str, str]]] = {
    ("flash_attention", "heads of 64", False): (
        "sm80/forward.cu T=float16 D=64",
        {"forward": "sm80::fwd::Block<float16, 64, 64, {0}>::kSharedBytes"},
    ),
    ("flash_attention", "heads of 128", False): (
        "sm80/forward.cu T=float16 D=128",
        {"forward": "sm80::fwd::Block<float16, 128, 128, {0}>::kSharedBytes"},
    ),
    ("flash_attention", "heads of 64", True): (
        "sm80/backward_keys.cu T=float16 D=64",
        {"backward_keys": "sm80::kKeysSharedBytes<{0}, 64, 64>"},
    ),
    ("flash_attention", "heads of 128", True): (
        "sm80/backward_queries.cu T=float16 D=128",
        {"backward_queries": "sm80::bwd_queries::Block<float16, 128, 128, {0}>::kSharedBytes"},
    ),
    ("flash_attention", "wgmma, heads of 64", False): (
        "sm90/forward.cu T=float16 D=64",
        {"ForwardDefaults<64>": "sm90::fwd::KernelTraits<sm90::ForwardTile<64, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, wide tiles of heads of 64", False): (
        "sm90/forward.cu T=float16 D=64",
        {"WideForwardDefaults<64>": "sm90::fwd::KernelTraits<sm90::ForwardTile<64, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, wide tiles of heads of 96", False): (
        "sm90/forward.cu T=float16 D=96",
        {"WideForwardDefaults<96>": "sm90::fwd::KernelTraits<sm90::ForwardTile<96, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, heads of 128", False): (
        "sm90/forward.cu T=float16 D=128",
        {"ForwardDefaults<128>": "sm90::fwd::KernelTraits<sm90::ForwardTile<128, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, packed heads of 64", False): (
        "sm90/packed.cu T=float16 D=64",
        {"PackedDefaults<64>": "sm90::fwd::KernelTraits<sm90::PackedTile<64, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, few rows of packed heads of 128", False): (
        "sm90/packed.cu T=float16 D=128",
        {"FewRowsDefaults<128>": "sm90::fwd::KernelTraits<sm90::PackedTile<128, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, gradient of heads of 64", True): (
        "sm90/backward.cu T=float16 D=64 KIND=kOrdinary",
        {"BackwardDefaults<64>": "sm90::bwd::KernelTraits<sm90::BackwardTile<64, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, gradient of heads of 128", True): (
        "sm90/backward.cu T=float16 D=128 KIND=kOrdinary",
        {"BackwardDefaults<128>": "sm90::bwd::KernelTraits<sm90::BackwardTile<128, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, deterministic gradient of heads of 128", True): (
        "sm90/backward.cu T=float16 D=128 KIND=kOrdered",
        {"OrderedDefaults<128>": "sm90::bwd::KernelTraits<sm90::OrderedTile<128, {0}>>::kBytes + 1024"},
    ),
    ("linear_activation", "wgmma, large tiles", False): (
        "sm90/forward.cu T=float16 GROUP=UPRIGHT",
        {"::Large>": "sm90::KernelTraits<sm90::Tile<{0}>>::kBytes + 1024"},
    ),
    ("linear_activation", "wgmma, swapped tiles of 192 x 112", False): (
        "sm90/forward.cu T=float16 GROUP=BESIDE",
        {"::Swapped192x112>": "sm90::KernelTraits<sm90::Tile<{0}>>::kBytes + 1024"},
    ),
    ("linear_activation", "wgmma, paired halves of tiles of 64 x 64", False): (
        "sm90/forward.cu T=float16 GROUP=HALVES",
        {"::PairedHalves64x64>": "sm90::KernelTraits<sm90::Tile<{0}>>::kBytes + 1024"},
    ),
    ("linear_activation", "gradient", True): ("backward.cu T=float16", {}),
    ("linear_fp8", "high tiles", False): (
        "sm90/forward.cu CLASSES=PROMOTED",
        {"::High>": "sm90::kSharedBytes<product::Tile<{0}>> + 1024"},
    ),
    ("rms_norm", None, False): ("forward.cu T=bfloat16 ROWS=kAligned", {}),
    ("rms_norm", None, True): (
        "backward.cu T=bfloat16 ROWS=kAligned",
        {"LaneGroup": "(RowPipeline<float16, 8, {0}::backward_accesses, {0}::backward_stages>::bytes(128, 2))"},
    ),
    ("swiglu", None, False): ("kernel.cu T=float32", {}),
    ("swiglu", None, True): ("kernel.cu T=bfloat16", {}),
}


# Both directions, and both generations.
SAMPLE = {("flash_attention", "heads of 128", True), ("flash_attention", "wgmma, heads of 64", False)}
# Classes that a GPU of compute capability 9.0 serves only where it is told to.
PORTABLE = {("flash_attention", "heads of 64"), ("flash_attention", "heads of 128")}


@pytest.mark.parametrize(
    "kind", with_sample(COMPILED_IN, SAMPLE), ids=lambda kind: f"{kind[0]} {kind[1] or ''}{' backward' * kind[2]}"
)
def test_corners_of_the_space_compile_to_what_is_estimated(project, surveys, tmp_path, monkeypatch, kind):
    """Of the points that pass: the one with the least and the one with the most shared memory, then registers."""
    op, shapes, backward = kind
    monkeypatch.chdir(project)
    survey = surveys.of(op, LIKE_9_0 if (op, shapes) in PORTABLE else "9.0", backward)

    def size(values: dict[str, Any]) -> tuple[int, ...]:
        estimates = survey.estimates(shapes, values)
        return tuple(max(estimate.get(key, 0) for estimate in estimates) for key in ("shared", "registers"))

    for values in (min(survey.kept(shapes), key=size), max(survey.kept(shapes), key=size)):
        estimates = survey.estimates(shapes, values)
        kernels = compiled(project, tmp_path, kind, values, estimates)
        for estimate in estimates:
            own_kernels = [kernel for kernel in kernels if re.search(estimate["kernel"], kernel.name)]
            # An estimate is the fewest registers that the largest instantiation needs.
            if own_kernels and "registers" in estimate:
                assert max(kernel.registers for kernel in own_kernels) >= estimate["registers"], (
                    values,
                    estimate,
                    own_kernels,
                )
        spilled = sum(kernel.spill_stores + kernel.spill_loads for kernel in kernels)
        rejection = gates.judge_compiled(
            [kernel.as_dict() for kernel in kernels], estimates, spilled, DEVICE_LIMITS["9.0"]
        )
        assert rejection is None, values


def compiled(
    project: Path,
    folder: Path,
    kind: tuple[str, str | None, bool],
    values: dict[str, Any],
    estimates: list[dict[str, Any]],
) -> list[resources.Kernel]:
    """One source compiled with these values, in which shared memory is asserted to be as estimated."""
    op, shapes, _ = kind
    (source, *instance), shared_bytes = COMPILED_IN[kind][0].split(), COMPILED_IN[kind][1]
    header = folder / "tuned" / "cuda" / f"{op}.h"
    header.parent.mkdir(parents=True, exist_ok=True)
    entry = {"shapes": {shapes: values}} if shapes else {"values": values}
    header.write_text(tuning_header(op, {"": entry}))
    struct = f"tuned::{op}::Values0<{STRUCTS[op, shapes][1]}>"
    shared = [
        f"static_assert({shared_bytes[part].format(struct)} == {estimate['shared']});"
        for part in shared_bytes
        for estimate in estimates
        if part in estimate["kernel"] and "shared" in estimate
    ]
    assert len(shared) == len(shared_bytes)
    lines = [f'#include "{project / OPS / op / source}"', f"using namespace {op}_kernel;", *shared]
    (folder / "asserting.cu").write_text("\n".join(lines) + "\n")
    command = [NVCC, "-std=c++17", "--expt-relaxed-constexpr", "-gencode=arch=compute_90a,code=sm_90a", "-Xptxas=-v"]
    command += [f"-DINSTANCE_{value}" for value in instance]
    command += [f"-I{folder}", *includes(project, op), "-cubin", "asserting.cu", "-o", "asserting.cubin"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{values}: {result.stderr[-2000:]}"
    return resources.demangled(resources.parse(source, result.stderr))


def test_a_dry_run_for_a_gpu_that_is_not_here_shows_the_space_and_what_a_candidate_costs(project, tmp_path):
    project = shutil.copytree(project, tmp_path / "project")
    # One of four dtypes: every object takes seconds, and the program compiles it as it is and with other values.
    types = "T = float32, float64, float16, bfloat16"
    edit(project / OPS / "swiglu" / "kernel.cu", (types, "T = float32"))
    command = [sys.executable, "-m", "kernelgen", "tune", "swiglu", "--dry-run", "--chip", "9.0"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "VIRTUAL_ENV": sys.prefix}
    result = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "compiling swiglu for compute capability 9.0, once as it is" in result.stderr
    assert "swiglu on 9.0: 20 points\n" in result.stdout
    assert "1 rejected by registers, such as swiglu_forward: " in result.stdout
    assert re.search(r"19 trials, each \d+\.\d s to compile .* and no GPU here to measure on", result.stdout)
    result = subprocess.run([*command, "--json"], cwd=project, env=environment, capture_output=True, check=True)
    plan = json.loads(result.stdout)
    assert [len(plan["tunables"]), plan["points"], plan["classes"][0]["kept"]] == [2, 20, 19]
    assert plan["cost"]["measuring_s"] is None
    # The candidates are compiled for that chip alone.
    (reports,) = {path.parent for path in project.glob("build/tune/swiglu-cuda/swiglu/*.txt")}
    assert {path.name.split(".")[-3] for path in reports.iterdir() if path.suffix == ".txt"} == {"90"}
