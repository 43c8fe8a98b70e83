"""flash_attention_fp8's kernel for Hopper computes what its reference does, within the bound of the formats, and the
same bits under several thread schedules."""

import importlib
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from tests.conftest import with_sample
from tests.stamped.conftest import stamp

from .conftest import ENTRIES, SEEDS, build, copy_op
from .test_recipes import random

ENTRY = (ENTRIES / "flash_attention_fp8_sm90.cu").read_text()
# Head dimension; batch, heads, heads of keys, queries, keys, dimension; whether the mask is causal. The GPU has two
# multiprocessors, so that blocks get several tiles; tiles have 192 queries, 64 for a consumer, and 128 keys.
CASES = {
    "several tiles": (64, (1, 2, 1, 200, 300, 64), True),
    "padded": (64, (1, 2, 2, 260, 140, 48), False),
    "one query": (64, (1, 1, 1, 1, 129, 64), False),
    "large heads": (128, (2, 2, 1, 150, 400, 128), True),
    "rows without keys": (128, (1, 1, 1, 190, 140, 96), True),
    "one key": (128, (1, 3, 1, 129, 1, 128), False),
    "late tiles": (64, (1, 2, 1, 1050, 60, 64), True),
    "a long ring": (128, (1, 1, 1, 70, 1100, 128), False),
    # After whole rounds of tiles of 192 queries, which take both multiprocessors, two of 128; and with these alone.
    "fewer queries": (64, (1, 1, 1, 620, 140, 64), False),
    "fewer queries alone": (128, (1, 1, 1, 250, 140, 128), False),
    # A consumer has no key of the last tile of keys, another no query of the first tile of queries.
    "square": (128, (1, 1, 1, 330, 330, 128), True),
}
TILES = {
    "as tuned": {},
    "two consumers": {"consumers": 2, "stages": 2},
    "one consumer": {"consumers": 1},
}


@pytest.fixture(scope="module")
def op(made_once):
    folder = made_once("emulated-fp8-attention", lambda folder: stamp(folder / "p", recipes=["flash_attention_fp8"]))
    return folder / "p" / "src" / "demo_kernels" / "ops" / "flash_attention_fp8"


@pytest.fixture(scope="module", params=with_sample(TILES, {"as tuned"}))
def library(op, request, tmp_path_factory):
    op = copy_op(op.parent, op.name, tmp_path_factory.mktemp("tuned"))
    shapes = {f"wgmma, heads of {dims}": TILES[request.param] for dims in (64, 128)}
    (op / "tuned.json").write_text(json.dumps({"9.0": {"shapes": shapes}} if TILES[request.param] else {}))
    return build(op, ENTRY)


@pytest.fixture(scope="module")
def python(op):
    """The op's modules in plain PyTorch, without the package's __init__.py, which loads a library."""
    package = sys.modules["fp8_attention"] = ModuleType("fp8_attention")
    package.__path__ = [str(op)]
    modules = (importlib.import_module(f"fp8_attention.{name}") for name in ("reference", "error_bound", "quantise"))
    reference, error_bound, quantise = modules
    return SimpleNamespace(
        reference=reference.flash_attention_fp8, error_bound=error_bound.error_bound, quantised=quantise.quantised
    )


def assert_matches(library, python, memory, case, numbers, seeds=SEEDS):
    instance, (batch, heads, kv_heads, queries, keys, dim), causal = case
    arguments = python.quantised(*numbers)
    exact = python.reference(*(argument.double() for argument in arguments), causal, 0.125)
    bound = python.error_bound(*arguments, causal, 0.125)
    copies = [memory.copy(argument) for argument in arguments]
    first = None
    for seed in seeds:
        out = memory.empty(batch, queries, heads, dim, dtype=torch.bfloat16)
        sizes = batch, heads, kv_heads, queries, keys, dim, int(causal)
        library(f"forward_{instance}", *copies, out, *sizes, seed=seed, multiprocessors=2)
        assert ((out.double() - exact).abs() <= bound).all()
        assert first is None or torch.equal(out, first)
        first = out.clone()


def drawn(batch, heads, kv_heads, queries, keys, dim):
    return [random(batch, queries, heads, dim), *(random(batch, keys, kv_heads, dim) for _ in range(2))]


@pytest.mark.parametrize("case", with_sample(CASES, {"several tiles", "large heads"}))
def test_results_match_the_reference(library, python, memory, case):
    assert_matches(library, python, memory, CASES[case], drawn(*CASES[case][1]))


@pytest.mark.parametrize("growth", [1, 60])
@pytest.mark.parametrize("dim", [64, 128])
def test_the_row_max_is_raised_where_scores_grow(library, python, memory, dim, growth):
    """Keys are read from the last on, and tile by tile score higher: by so much that weights would be too large for
    e4m3, or for float32. Rows differ: some have such scores, others none."""
    case = dim, (1, 1, 1, 192, 500, dim), False
    q, k, v = drawn(*case[1])
    q[:, ::3] *= 0.1
    k *= growth * torch.linspace(8, 0.1, 500)[:, None, None]
    assert_matches(library, python, memory, case, [q, k, v], SEEDS[:2])
