"""flash_attention_varlen's gradient for Hopper is that of its reference, under several thread schedules."""

import ctypes
from typing import NamedTuple

import pytest
import torch

from .conftest import ENTRIES, SEEDS, build
from .test_recipes import close, random

ENTRY = (ENTRIES / "flash_attention_varlen_sm90.cu").read_text()
WIDE_ENTRY = "#define WIDE 1\n" + ENTRY
WIDEST = 256


class Case(NamedTuple):
    """The lengths of the sequences, rows that belong to none, and sizes."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    spare: int = 0
    heads: int = 2
    kv_heads: int = 1
    dim: int = 64
    value_dim: int | None = None
    causal: bool = False
    window: tuple[int, int] | None = None
    group_splits: int = 1
    ordered: bool = True


class Shape(ctypes.Structure):
    """As in entries/flash_attention_varlen_sm90.cu."""

    NAMES = ("queries", "keys", "sequences", "heads", "kv_heads", "dim", "value_dim", "left", "right", "group_splits")
    _fields_ = tuple((name, ctypes.c_int64) for name in NAMES)


# The GPU has two multiprocessors, whose blocks draw several tiles of keys: of 128 keys, for 128 queries at a time.
CASES = {
    # Sequences of one tile of keys and of several, one after the other; of no query, and of no key.
    "lengths": Case((70, 0, 129, 1, 128), (90, 7, 129, 65, 128), 3, 4, 2, causal=True),
    "one tile each": Case((128, 128, 20, 0, 128), (128, 100, 20, 5, 128)),
    "several tiles": Case((300, 64, 0), (461, 64, 200), 5, causal=True),
    "window": Case((200, 150), (250, 77), window=(60, 20)),
    "splits": Case((200, 20, 0, 3), (250, 77, 3, 20), 2, causal=True, group_splits=2),
    "no keys": Case((30, 50), (0, 0), 3),
    "no sequence": Case((), (), 3),
    # More of them than threads list tiles.
    "many": Case(tuple(i * 37 % 60 for i in range(150)), tuple(i * 29 % 150 for i in range(150)), 4, 1, causal=True),
    "two steps": Case((70, 0, 129, 1), (90, 7, 200, 65), 3, dim=96, causal=True),
    # Of so many keys of 128 dimensions that blocks do not draw.
    "turns without drawing": Case((70, 9), (1030, 1090), 3, dim=128, causal=True),
    "in any order": Case((70, 0, 300, 1, 128), (90, 7, 129, 65, 0), 3, 4, 2, causal=True, ordered=False),
}
# Two blocks of each tile of keys, for 64 queries at a time, are drawn in turn.
WIDE_CASES = {
    "lengths": Case((70, 0, 129, 1, 128), (90, 7, 129, 65, 128), 3, 4, 2, dim=192, value_dim=128, causal=True),
    "several tiles": Case((140, 64, 0), (261, 64, 200), 5, dim=192, window=(150, 20)),
    "splits": Case((150, 20, 0, 3), (200, 77, 3, 20), 2, dim=160, value_dim=136, causal=True, group_splits=2),
    "no keys": Case((30, 50), (0, 0), 3, dim=192, value_dim=128),
    "turns from registers": Case((70, 3, 129), (90, 7, 200), 3, 1, dim=256, causal=True),
    "in any order": Case((70, 0, 150), (90, 7, 200), 3, dim=192, value_dim=128, ordered=False),
    "from registers, in any order": Case((70, 129), (200, 7), 3, 1, dim=224, causal=True, ordered=False),
}


def cumulated(memory, lengths):
    return memory.copy(torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32))


def check(library, reference, memory, case, seeds):
    """The gradients are close to the reference's; ordered, they have the same bits under every schedule."""
    rows, keys = sum(case.queries) + case.spare, sum(case.keys) + case.spare
    q = memory.copy(random(rows, case.heads, case.dim, dtype=torch.float16))
    value_dim = case.value_dim or case.dim
    k, v = (memory.copy(random(keys, case.kv_heads, dim, dtype=torch.float16)) for dim in (case.dim, value_dim))
    starts = cumulated(memory, case.queries), cumulated(memory, case.keys)
    leaves = [tensor.float().requires_grad_() for tensor in (q, k, v)]
    options = {"causal": case.causal, "window": case.window, "scale": 1 / 8, "return_lse": True}
    expected, lse = reference("flash_attention_varlen").flash_attention_varlen(*leaves, *starts, **options)
    grad = memory.copy(random(*expected.shape, dtype=torch.float16))
    expected.backward(grad.float())
    out, lse = memory.copy(expected.detach().half()), memory.copy(lse.detach())

    left, right = case.window or (-1, 0 if case.causal else -1)
    sides = (side if side >= 0 else 2**29 for side in (left, right))
    heads = case.heads, case.kv_heads, case.dim, value_dim
    shape = Shape(rows, keys, len(case.queries), *heads, *sides, case.group_splits)
    sizes = memory.empty(4, dtype=torch.int64)
    library("scratch_sizes", ctypes.addressof(shape), int(case.ordered), sizes)
    query_rows, key_rows, tiles, list_ints = sizes.tolist()
    results = []
    for seed in seeds:
        grads = [memory.empty(*tensor.shape, dtype=torch.float16) for tensor in (q, k, v)]
        stats, accum = memory.empty(query_rows, 2), memory.empty(query_rows, WIDEST)
        sums = memory.empty(case.group_splits * key_rows, 2 * WIDEST)
        progress, lists = (memory.empty(size, dtype=torch.int32) for size in (1 + tiles, list_ints))
        scratch = stats, accum, sums, progress if case.ordered else None, lists
        arguments = ctypes.addressof(shape), int(case.ordered), *starts, q, k, v, out, lse, grad, *grads, *scratch
        library("backward", *arguments, seed=seed, multiprocessors=2)
        for gradient, leaf in zip(grads, leaves, strict=True):
            close(gradient, leaf.grad)
        results.append(grads)
    if case.ordered:
        assert all(torch.equal(*pair) for other in results[1:] for pair in zip(results[0], other, strict=True))


@pytest.fixture(scope="module")
def library(ops):
    return build(ops / "flash_attention_varlen", ENTRY)


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_gradient_is_the_reference_s(library, reference, memory, case):
    check(library, reference, memory, case, SEEDS)


@pytest.fixture(scope="module")
def wide_library(ops):
    return build(ops / "flash_attention_varlen", WIDE_ENTRY)


@pytest.mark.corpus
@pytest.mark.parametrize("case", WIDE_CASES.values(), ids=list(WIDE_CASES))
def test_the_gradient_of_wide_heads(wide_library, reference, memory, case):
    check(wide_library, reference, memory, case, SEEDS)
