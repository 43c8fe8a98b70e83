"""The recipes that quantise to 8 bits pass their own tests, and faults in their kernels are found on the emulated GPU.

They are no part of the project of every recipe, whose build takes longest of all: each has a project of its own.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kernelgen.emulator.library import has_toolkit
from tests.conftest import with_sample

from .conftest import python, stamp
from .recipe_apart import Emulated, assert_passes_its_tests

# Each with the emulated GPU that shows its faults: one that converts to 8 bits in software, or the one with wgmma.
OPS = {
    "flash_attention_fp8": "sm_90a",
    "linear_fp8": "sm_90a",
    "quantize_fp8": "sm_80",
    "rms_norm_fp8": "sm_80",
    "swiglu_fp8": "sm_80",
}

# By recipe and file: what a line is, and what it becomes. Faults that show with several tiles each way alone, or with
# more blocks than a launch has, are not here: cases of the emulated device have up to 16,384 elements.
FAULTS = [
    # Numbers are rounded to nearest. (That ties go to even codes is for the op's own tests: the error is the same.)
    ("quantize_fp8", "fp8.cuh", "(bits + (1u << (dropped - 1)) - 1 + ((bits >> dropped) & 1))", "(bits)"),
    ("quantize_fp8", "fp8.cuh", "if (bits < smallest) {", "if (bits < 0) {"),
    # What is not finite does not count for a scale, and stays so.
    ("quantize_fp8", "fp8_rows.cuh", "if (bits < kFloatInfinity) largest", "largest"),
    ("quantize_fp8", "fp8.cuh", "const float scaled = is_finite ?", "const float scaled = true ?"),
    ("quantize_fp8", "fp8.cuh", "if (largest == 0) return Scale(1.f, 1.f);", ""),
    ("quantize_fp8", "fp8.cuh", "bits = max(bits, 1u << 23);", ""),
    ("quantize_fp8", "fp8.cuh", "(bits + 0x7fffff) & kFloatInfinity", "bits & kFloatInfinity"),
    # A scale is that of its own group, row or block, and lies in its own place.
    ("quantize_fp8", "fp8_rows.cuh", "own_largest<Shape::kLanes>", "own_largest<Shape::kLanes / 2>"),
    ("quantize_fp8", "fp8_rows.cuh", "const bool upper = threadIdx.x & distance;", "const bool upper = false;"),
    ("quantize_fp8", "fp8_rows.cuh", "own, threadIdx.x % kWarp / kCount * kCount + i)", "own, i)"),
    ("quantize_fp8", "fp8_rows.cuh", "return has_row && (kFull ||", "return (kFull ||"),
    ("quantize_fp8", "fp8_rows.cuh", "|| group * kGroupLength < n)", "|| part.left > 0)"),
    ("quantize_fp8", "fp8_matrices.cuh", "__shfl_xor_sync(0xffffffff, own, kAcross)", "own"),
    (
        "quantize_fp8",
        "fp8_matrices.cuh",
        "__byte_perm(rows[2], rows[3], 0x5140)",
        "__byte_perm(rows[3], rows[2], 0x5140)",
    ),
    # The transpose ends with zeros where a product takes more rows than there are.
    ("linear_fp8", "fp8_matrices.cuh", "a.turned_width - column), [&]", "a.rows - column), [&]"),
    ("linear_fp8", "promotion.cuh", "sums.acc[product][i] += half.products", "sums.acc[product][i] = half.products"),
    ("linear_fp8", "promotion.cuh", "current.factors = reader.next(step + 2 == last)", ""),
    ("linear_fp8", "factors.cuh", "block += is_last ? 0 : block_step;", ""),
    ("linear_fp8", "factors.cuh", "first_row() + i / 2 * 64 + i % 2 * 8", "first_row() + i / 2 * 64"),
    (
        "linear_fp8",
        "output.cuh",
        "__shfl_sync(0xffffffff, strip.column_scales[i], holder + block * 4)",
        "strip.column_scales[i]",
    ),
    ("rms_norm_fp8", "kernel.cu", "blockDim.x == kWarp ? warp_sum(squares) : block.sum(squares)", "warp_sum(squares)"),
    ("rms_norm_fp8", "kernel.cu", "squares += squares_of(sum);", "squares = squares_of(sum);"),
    ("rms_norm_fp8", "kernel.cu", "block.sum_and_max(total, largest);", "total = block.sum(total);"),
    ("rms_norm_fp8", "fp8_rows.cuh", "largest >= kLeast &&", ""),
    ("rms_norm_fp8", "fp8_rows.cuh", "largest <= kMost &&", ""),
    ("swiglu_fp8", "kernel.cu", "if (activated.data) fp8::store_part", "if (false) fp8::store_part"),
    # Keys are in the same order in weights and in transposed values, and dimensions in that of the output.
    (
        "flash_attention_fp8",
        "rows.cuh",
        "e4m3_quad(quad[0], quad[1], quad[2], quad[3])",
        "e4m3_quad(quad[2], quad[3], quad[0], quad[1])",
    ),
    (
        "flash_attention_fp8",
        "attention_fp8.cuh",
        "__byte_perm(of_step[2], of_step[3], 0x7531)",
        "__byte_perm(of_step[3], of_step[2], 0x7531)",
    ),
    (
        "flash_attention_fp8",
        "attention_fp8.cuh",
        "sixteen * 8 + i % 2 * 4 + lower * 2 + i / 2",
        "sixteen * 8 + i / 2 * 4 + lower * 2 + i % 2",
    ),
    # A product has the scale of its own tile, and is added to what is rescaled with the row max.
    ("flash_attention_fp8", "sm90/forward.cu", "next_ -= scales.row;", ""),
    (
        "flash_attention_fp8",
        "rows.cuh",
        "__fmaf_rn(product()[i], product_scale, out[i])",
        "product()[i] * product_scale",
    ),
    ("flash_attention_fp8", "rows.cuh", "out[n * 4 + i * 2 + j] *= rescale_by", "out[n * 4 + i * 2 + j] *= 1"),
    ("flash_attention_fp8", "rows.cuh", "__fmul_rn(row_max, factors[i])", "row_max"),
    # Rows have their own scales, and consumers their own part of the mask.
    ("flash_attention_fp8", "rows.cuh", "(lane < 8 ? pair.upper : pair.lower)", "(lane < 8 ? pair.lower : pair.upper)"),
    ("flash_attention_fp8", "sm90/forward.cu", "flags |= KeyTile::masks(consumer)", "flags |= KeyTile::masks(0)"),
    (
        "flash_attention_fp8",
        "sm90/forward.cu",
        "flags |= KeyTile::leaves_out(consumer)",
        "flags |= KeyTile::leaves_out(0)",
    ),
    ("flash_attention_fp8", "work.cuh", "mask.end(last_query)};", "mask.end(first_query)};"),
    # The first exponentials are computed again where the row max was raised.
    ("flash_attention_fp8", "rows.cuh", "[chain] = 0;\n      exponentials<0, kEarlyKeys>(sums);", "[chain] = 0;"),
    ("flash_attention_fp8", "sm90/forward.cu", "fence_async_shared();", ""),
    ("flash_attention_fp8", "sm90/forward.cu", "barriers.empty_turned[stage].wait(position.parity() ^ 1);", ""),
]


EMULATED = Emulated(OPS, "accuracy or rounded or format or each_block", count=120)


@pytest.mark.parametrize("op", with_sample(OPS, {"swiglu_fp8"}))
def test_the_recipe_passes_its_tests(op: str, tmp_path: Path) -> None:
    assert_passes_its_tests(op, tmp_path, "9.0a")


BOUNDS = """
import torch
from demo_kernels.ops.linear_fp8 import lab

torch.manual_seed(0)
for kind in range(len(lab.KINDS)):
    for biased in (0, 1):
        differentiable = []

        def make(shape, differentiable=True, drawn=differentiable):
            tensor = torch.randn(shape, dtype=torch.bfloat16)
            drawn.extend([tensor] * differentiable)
            return tensor

        args = lab.inputs(make, 5, 9, 2, kind, biased, activation=1)
        bounds = lab.cut_off(*args, cotangents=[torch.randn(5, 32)])
        assert bounds["output 0"].shape == (5, 32)
        # As `errors_allowed` of the lab counts: among all tensors of the arguments.
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        for i, tensor in enumerate(tensors):
            expected = any(tensor is drawn for drawn in differentiable)
            assert (f"gradient {i}" in bounds) == expected, (kind, biased, i)
            if expected:
                assert bounds[f"gradient {i}"].shape == tensor.shape
"""


def test_every_gradient_of_the_product_has_a_bound_for_cut_sums(tmp_path: Path) -> None:
    """That of codes has the bias's alone, which cut sums reach through the activation's slope."""
    project = stamp(tmp_path / "demo", ops=[{"name": "linear_fp8", "recipe": "linear_fp8"}])
    result = python(project, BOUNDS)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def emulated(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The recipes, built for their emulated GPUs. Shared: copy it."""

    return made_once("emulated-fp8", partial(EMULATED.fill, count=120)) / "demo"


@pytest.mark.corpus
@pytest.mark.skipif(not has_toolkit(), reason="needs the headers of a CUDA toolkit, and g++")
@pytest.mark.parametrize("op, file, old, new", FAULTS, ids=[f"{op}-{i}" for i, (op, *_) in enumerate(FAULTS)])
def test_a_fault_is_found(
    emulated: Path, copy_of: Callable[[Path], Path], op: str, file: str, old: str, new: str
) -> None:
    """By fuzz or by the op's own tests, which have special numbers that fuzz seldom draws on so slow a device."""
    EMULATED.assert_found(copy_of(emulated), op, file, (old, new))
