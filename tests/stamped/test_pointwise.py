"""Ops of the recipes `pointwise` and `row_wise`: formatted, green on the CPU, and right on the emulated GPU."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelgen.emulator.library import has_toolkit
from kernelgen.scaffold.formula.entry import kernels
from kernelgen.scaffold.schema.from_python import reference
from tests.conftest import with_sample
from tests.worker.test_trace import NAMES, POINTWISE, ROW_NAMES, ROWS, trace

from .conftest import REPOSITORY, build, edit, own_tests, quickly, run, stamp

# A vector or masks, several results, a bool argument, no broadcasting, no float64, no gradient, numbers in (0, 1).
BUILT = (
    "gelu_bias",
    "choose",
    "hysteresis",
    "signed_sine",
    "focal",
    "upcast",
    "is_close",
    "entropy",
    "power",
    "awkward",
    # Parts of the last dimension: one after the other, in turns, of results too, and of several results.
    "sliced_swiglu",
    "rotate_half",
    "rotate_pairs",
    "three_parts",
    "rotate_fours",
    # Integers, and values that depend on where an element lies.
    "codes_and_errors",
    "distance_bias",
    # Results of dtypes of their own.
    "rounded_parts",
    # Points: a last dimension of so many numbers.
    "quaternion_product",
    "angular_momentum",
    # A number for each point, a result that has no gradient, numbers of 8 bits, no floating-point numbers at all.
    "box_overlap",
    "held_rewards",
    "float8_codes",
    "unpacked_fours",
    # Numbers beside points, points that are rows of matrices, and another dimension that is cut.
    "turned_points",
    "decoded_boxes",
    "coupled_channels",
    "luma_and_chroma",
    # Numbers that the function refuses; parts of which there are twice as many of one tensor.
    "gaussian_nll",
    "partial_rotary",
    # A matrix for each point, and one that the function is written with.
    "rotation",
    "graded",
    # Neighbours: another row; dimensions that wrap around and do not; a larger result, and a mask; a smaller one, of a
    # dimension that counts from the front.
    "token_shift",
    "diffused",
    "fenced",
    "frame_changes",
    "warped",
)
ROWS_BUILT = (
    "softmax",
    "rms",
    "layer",
    "cross_entropy",
    "running_sum",
    "running_product",
    "running_log_sum",
    "survey",
    "log_sum_exp",
    "mean_squared_error",
    "batch_norm",
    "mean_of",
    "largest",
    "chosen",
    "smooth_cross_entropy",
    "quantized",
    # Results of float32 whatever the rows are, truth values, counts; a mask of rows, and places in them.
    "wide_loss",
    "flags_and_counts",
    "margin_by_pair",
    "padded_softmax",
    # Rows that are parts of longer ones, of results too.
    "gated_halves",
    "turned_norm",
    # Rows that know which row of a plane they are, and tensors that have some of the dimensions.
    "causal_softmax",
    "sloped_softmax",
    "modulated_norm",
    "rotated_heads",
    # The tensor of rows comes second.
    "padded_scores",
    # Groups of a dimension, by number and by size.
    "group_norm",
    "block_codes",
    # Dimensions that come in another order: of a tensor, and of a result; halves of heads that are joined.
    "gated_heads",
    "channels_last",
    "rotated_projection",
    "float8_rows",
    # The epsilon of each dtype, a product of vectors, rows that are counted from the front.
    "plain_rms",
    "weighted_places",
    "scaled_maps",
    "noise_ratio",
)
FUZZED = (
    "gelu_bias",
    "choose",
    "hysteresis",
    "signed_sine",
    "upcast",
    "sliced_swiglu",
    "rotate_half",
    "rotate_pairs",
    "rotate_fours",
    "codes_and_errors",
    "distance_bias",
    "rounded_parts",
    "quaternion_product",
    "turned_points",
    "decoded_boxes",
    "coupled_channels",
    "luma_and_chroma",
    "gaussian_nll",
    "partial_rotary",
    "rotation",
    "graded",
    "token_shift",
    "diffused",
    "fenced",
    "frame_changes",
    "warped",
    *ROWS_BUILT,
)
# A kernel for the emulated GPU takes ten seconds to compile, for its four dtypes.
EMULATED = ("gelu_bias", "hysteresis", "layer", "softmax", "upcast", "batch_norm", "mean_of", "survey", "running_sum")
EMULATED += (
    "smooth_cross_entropy",
    "sliced_swiglu",
    "rotate_pairs",
    "causal_mask",
    "distance_bias",
    "edges",
    "warped",
    "wide_loss",
    "flags_and_counts",
    # Sums over the rows by warps that have parts of rows.
    "margin_by_pair",
    "sloped_softmax",
    "modulated_norm",
    "rotated_heads",
    "running_log_sum",
)
# One of each recipe, with vectors beside the tensors; results of dtypes of their own; and one with sums over all rows,
# products and running totals.
SAMPLE = ("gelu_bias", "rounded_parts", "survey")
in_parts = pytest.mark.parametrize("part", with_sample(("sample", "others"), {"sample"}))

# Cases that fuzz draws seldom or never. Eight lanes share each of many short rows; vectors may be summed over rows that
# have no elements, but lie apart; the mean of equal numbers is one of them.
PLAIN = {"dims": 2, "dtype": "bfloat16", "values": "normal", "alias": "none", "requires_grad": "all", "call": "plain"}
MANY_SHORT_ROWS = PLAIN | {"rows": 2049, "columns": 16, "layout": "contiguous"}
ROWS_OF_NOTHING = PLAIN | {"rows": 33, "columns": 0, "broadcast": 1, "layout": "wide rows"}
EQUAL_NUMBERS = PLAIN | {"rows": 3, "columns": 1025, "dims": 3, "dtype": "float32", "values": "equal", "alias": "same"}
RARE_CASES = {
    "softmax": MANY_SHORT_ROWS,
    "smooth_cross_entropy": MANY_SHORT_ROWS,
    "gelu_bias": ROWS_OF_NOTHING,
    "modulated_norm": EQUAL_NUMBERS,
}

needs_headers = pytest.mark.skipif(not has_toolkit(), reason="needs the headers of a CUDA toolkit, and g++")


def entry(function: str, name: str | None = None) -> dict[str, Any]:
    """What `add-op --from` records."""
    of_rows = function in ROW_NAMES
    path = ROWS if of_rows else POINTWISE
    read = reference.read(path, function)
    facts = kernels(read.schema.entry(), trace(path, function))
    return {"name": name or function, "reference": read.source_as(name or function), **facts}


@pytest.fixture
def every_op(made_once) -> Path:
    """An op of each function of the corpus, and some with names that are as long as they may be, not built."""

    def make(folder: Path) -> None:
        ops = [entry(name) for name in (*NAMES, *ROW_NAMES)] + [
            entry(name, f"{name}_{'x' * (35 - len(name))}") for name in (*BUILT, *ROWS_BUILT)
        ]
        stamp(folder / "p", ops=sorted(ops, key=lambda op: op["name"]))

    return made_once("pointwise-every-op", make) / "p"


def test_what_is_stamped_is_formatted(every_op):
    sources = [path for path in every_op.rglob("*") if path.suffix in (".cpp", ".cu", ".cuh", ".h")]
    style = f"--style=file:{REPOSITORY / 'template' / '.clang-format'}"
    formatted = run(
        [str(Path(sys.executable).parent / "clang-format"), style, "--dry-run", "--Werror", *sources], every_op
    )
    assert formatted.returncode == 0, formatted.stderr


@pytest.mark.parametrize("check", (["check"], ["format", "--check"]))
def test_what_is_stamped_is_clean(every_op, check):
    done = run([sys.executable, "-m", "ruff", *check, "."], every_op)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_left_to_do(every_op):
    for path in (every_op / "src/demo_kernels/ops").rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert "to do" not in text, path
            assert "NOT_WRITTEN" not in text, path


def test_a_tensor_without_a_gradient_is_drawn_without_one(every_op):
    suite = (every_op / "src/demo_kernels/ops/distilled/test_distilled.py").read_text(encoding="utf-8")
    assert "return (make(shapes[0]), make(shapes[1], differentiable=False))" in suite


def members(part: str, functions: Sequence[str]) -> list[str]:
    """The functions of the sample, or all others."""
    return sorted(function for function in functions if (function in SAMPLE) == (part == "sample"))


@pytest.fixture
def project(made_once, part) -> Path:
    """Built for the CPU."""

    def make(folder: Path) -> None:
        stamp(folder / "p", ops=[entry(name) for name in members(part, (*BUILT, *ROWS_BUILT))])
        done = build(folder / "p", USE_CUDA="0", **quickly())
        assert done.returncode == 0, done.stdout + done.stderr

    return made_once(f"pointwise-{part}", make) / "p"


@pytest.mark.slow
@in_parts
def test_the_suite_is_green(project, part):
    outcomes = own_tests(project, "src", USE_CUDA="0")
    assert sorted({outcome.op for outcome in outcomes}) == members(part, (*BUILT, *ROWS_BUILT))
    failed = [outcome for outcome in outcomes if outcome.status not in ("passed", "skipped")]
    assert not failed, "\n".join(f"{outcome.op} {outcome.test} {outcome.case}: {outcome.message}" for outcome in failed)


def no_fault(project: Path, ops: Sequence[str], *arguments: str) -> None:
    done = run([sys.executable, "-m", "kernelgen", "fuzz", *ops, *arguments, "--json"], project)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report


# Prints whether gradients of vectors have the same bits on one thread and on three, and whether their error is small.
GRADIENTS = """
import torch
from {package} import gelu_bias

largest, same = 0.0, True
for rows, columns in ((2, 5), (1000, 1500), (5000, 7)):
    x, bias = torch.randn(rows, columns), torch.randn(columns)
    exact = torch.func.vjp(lambda b: torch.nn.functional.gelu(x.double() + b, approximate="tanh"), bias.double())
    exact = exact[1](torch.ones(rows, columns, dtype=torch.float64))[0]
    grads = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        leaf = bias.clone().requires_grad_()
        gelu_bias(x, leaf).sum().backward()
        grads.append(leaf.grad)
    same = same and torch.equal(*grads)
    largest = max(largest, float((grads[0] - exact).abs().max() / exact.abs().max()))
print(same, largest < 1e-6)
"""


@pytest.mark.slow
@pytest.mark.parametrize("part", ["sample"])
def test_gradients_of_vectors_have_the_same_bits_on_any_number_of_threads(project, part):
    done = run([sys.executable, "-c", GRADIENTS.format(package="demo_kernels")], project, PYTHONPATH="src")
    assert done.stdout.split() == ["True", "True"], done.stdout + done.stderr


@pytest.mark.slow
@in_parts
def test_fuzz_finds_nothing(project, part):
    no_fault(project, members(part, FUZZED), "--device", "cpu", "--count", "60")


def in_two_dtypes(project: Path) -> None:
    """Leaves the project's ops a dtype of each kind that kernels tell apart in ordinary cases, for half of what g++
    compiles: all four, of all that is emulated, are those of test_emulated.py and of the corpus."""
    left_out = {"Double": "double", "Half": "Half"}
    lines = [f"    case ScalarType::{name}: return visitor(Type<{T}>());\n" for name, T in left_out.items()]
    edit(project / "src/demo_kernels/include/torch/dtypes.h", ("".join(lines), ""))
    for folder in project.glob("src/demo_kernels/ops/*/"):
        edit(folder / "kernel.cu", ("T = float32, float64, float16, bfloat16", "T = float32, bfloat16"))
        four = "(torch.float32, torch.float16, torch.bfloat16, torch.float64)"
        for name, dtypes in (("lab.py", "DTYPES"), (f"test_{folder.name}.py", "dtypes")):
            edit(folder / name, (f"{dtypes} = {four}", f"{dtypes} = (torch.float32, torch.bfloat16)"))


# The cases of fuzz until every layout was drawn, and until every kind of values was.
LAYOUTS_DRAWN, VALUES_DRAWN = 15, 26


@pytest.mark.slow
@needs_headers
@in_parts
def test_fuzz_finds_nothing_on_the_emulated_gpu(tmp_path, part):
    """By no more cases than have every layout and every kind of values. A case of `survey` takes a second: other values
    meet the formula alone, which is that of the CPU."""
    ops = members(part, EMULATED)
    project = stamp(tmp_path / "p", ops=[entry(name) for name in ops])
    if part == "sample":
        in_two_dtypes(project)
    for drawn, names in ((LAYOUTS_DRAWN, {"survey"} & {*ops}), (VALUES_DRAWN, {*ops} - {"survey"})):
        if names:
            no_fault(project, sorted(names), "--device", "emulated", "--count", str(drawn))
    for op in members(part, tuple(RARE_CASES)):
        no_fault(project, [op], "--device", "emulated", "--case", json.dumps(RARE_CASES[op]))


@pytest.mark.slow
@needs_headers
def test_a_place_that_no_row_has_is_nan_on_the_emulated_gpu(tmp_path):
    """The suite of an op says so on every device; that of the CPU is in test_the_suite_is_green."""
    project = stamp(tmp_path / "p", ops=[entry("chosen")])
    in_two_dtypes(project)
    built = run([sys.executable, "-m", "kernelgen", "build", "--device", "emulated"], project)
    assert built.returncode == 0, built.stdout + built.stderr
    chosen = ["src/demo_kernels/ops/chosen", "-k", "places_outside_of_rows"]
    tested = run([sys.executable, "-m", "pytest", "--device", "emulated", *chosen], project)
    assert tested.returncode == 0, tested.stdout
    assert "1 passed" in tested.stdout, tested.stdout
