"""flash_attention's sm90 kernels compute what its reference does, under several thread schedules.

The output and the gradients of keys and values have the same bits under all of them. So has the deterministic gradient
of queries; otherwise blocks add to it in any order.
"""

import ctypes
import json
import math

import pytest
import torch

from .conftest import ENTRIES, SEEDS, build, copy_op, half
from .test_recipes import SCALES, SINKS, Attention, check_infinite_key, check_large_scores, close, infinite_key, random

# For blocks that wait for each other: seeds under which two are resident, with every order of warps and every pace of
# asynchronous operations.
PAIRS = (1, 3, 7, 11)


# Tuned values by shape class: see tuning.h. They cover each number of consumers, rings whose length is a power of two
# and others, and both values of every switch.
NARROW, WIDE, LARGE = "wgmma, heads of 64", "wgmma, wide tiles of heads of 64", "wgmma, heads of 128"
GRADIENT, LARGE_GRADIENT = "wgmma, gradient of heads of 64", "wgmma, gradient of heads of 128"
ORDERED, LARGE_ORDERED = "wgmma, deterministic gradient of heads of 64", "wgmma, deterministic gradient of heads of 128"
TILES = {
    "other steps": {
        NARROW: {"keys": 192, "stages": 2, "ping_pong": False, "rescale_at": 0, "cache_mib": 1},
        WIDE: {"keys": 96, "stages": 4, "rescale_at": 12},
        LARGE: {"keys": 64, "stages": 4, "ping_pong": False},
        GRADIENT: {"query_stages": 3},
        LARGE_GRADIENT: {"query_stages": 2, "grad_stages": 4, "values_first": False},
        ORDERED: {"query_stages": 3, "cache_mib": 1},
        LARGE_ORDERED: {"query_stages": 2, "grad_stages": 4, "values_first": False},
    },
    "other consumers": {
        NARROW: {"consumers": 3, "keys": 64, "stages": 5},
        WIDE: {"consumers": 2, "keys": 160, "stages": 2, "ping_pong": False},
        LARGE: {"consumers": 3, "keys": 64, "rescale_at": 0},
        GRADIENT: {"grad_stages": 3, "values_first": True},
        LARGE_GRADIENT: {"query_stages": 2},
        ORDERED: {"grad_stages": 3, "values_first": True},
        LARGE_ORDERED: {"query_stages": 2},
    },
}
# Head dimension; batch, heads, heads of keys, queries, keys, dimension; options. The GPU has two multiprocessors, so
# that blocks get several tiles; tiles have 64 to 192 queries and 128 keys.
CASES = [
    (64, (1, 2, 1, 200, 300, 64), {"causal": True}),
    (64, (1, 2, 2, 260, 140, 40), {"softcap": 3.0, "window": (100, 5)}),
    (64, (1, 2, 2, 380, 200, 64), {"window": (150, 40)}),  # Wide tiles.
    (64, (1, 1, 1, 1, 129, 64), {}),
    (128, (1, 2, 1, 150, 400, 128), {"causal": True}),
    (128, (1, 1, 1, 190, 140, 96), {"causal": True, "softcap": 20.0}),  # The first rows attend to no key.
    (128, (1, 3, 1, 129, 1, 128), {}),
    (128, (1, 4, 2, 140, 270, 128), {"window": (60, 20)}),  # Three tiles of keys; the middle one alone has every query.
    # So many tiles in a head that the scheduler has late ones.
    (64, (1, 2, 1, 1050, 60, 64), {}),
    (128, (1, 2, 2, 800, 130, 128), {"causal": True}),
    (128, (1, 2, 1, 70, 1100, 128), {"window": (300, 0)}),
    # The first rows attend to the sink alone.
    (128, (1, 2, 1, 190, 140, 96), {"causal": True, "sinks": SINKS[:2]}),
    (64, (2, 2, 2, 260, 140, 64), {"sinks": SINKS[:2]}),
]


ENTRY = (ENTRIES / "flash_attention_sm90.cu").read_text()


@pytest.fixture(scope="module")
def library(ops):
    return build(ops / "flash_attention", ENTRY)


@pytest.fixture(scope="module", params=TILES)
def tuned_library(ops, tmp_path_factory, request):
    op = copy_op(ops, "flash_attention", tmp_path_factory.mktemp("tuned"))
    (op / "tuned.json").write_text(json.dumps({"9.0": {"shapes": TILES[request.param]}}))
    return build(op, ENTRY)


@pytest.mark.parametrize("dims, shape, options", CASES)
def test_results_match_the_reference(library, reference, memory, dims, shape, options):
    case = CASES.index((dims, shape, options))
    check(library, reference, memory, dims, shape, options, half(SEEDS, case), half(PAIRS, case))


@pytest.mark.corpus
@pytest.mark.parametrize("dims, shape, options", CASES)
def test_results_match_the_reference_with_tuned_tiles(tuned_library, reference, memory, dims, shape, options):
    check(tuned_library, reference, memory, dims, shape, options)


def check(library, reference, memory, dims, shape, options, seeds=SEEDS, pairs=PAIRS):
    attention, expected, expected_lse, leaves, *grads_out = differentiated(reference, memory, dims, shape, options)
    for deterministic, chosen in ((False, seeds), (True, pairs)):
        results = []
        for seed in chosen:
            out, lse, grads = run(library, memory, attention, *grads_out, deterministic, seed)
            close(out, expected)
            assert torch.allclose(lse, expected_lse, atol=1e-4)
            for name, gradient, leaf in zip("qkv", grads, leaves, strict=True):
                close(gradient, leaf.grad, f"gradient of {name}, {deterministic=}")
            results.append((out, lse, *grads[0 if deterministic else 1 :]))
        assert all(torch.equal(*pair) for other in results[1:] for pair in zip(results[0], other, strict=True))


def differentiated(reference, memory, dims, shape, options, value_dim=None):
    """A problem; the reference's output, LSE and leaves, with their gradients; and the gradients of output and LSE."""
    torch.manual_seed(0)
    attention = Attention(memory, dims, shape, value_dim=value_dim or shape[-1], **options)
    leaves = [tensor.float().requires_grad_() for tensor in (attention.q, attention.k, attention.v)]
    expected, expected_lse = reference("flash_attention").flash_attention(*leaves, **options, return_lse=True)
    grad = attention.random_tensor(*expected.shape)
    grad_lse = None if -torch.inf in expected_lse else memory.copy(random(*expected_lse.shape))
    loss = (expected * grad.float()).sum() + (0 if grad_lse is None else (expected_lse * grad_lse).sum())
    loss.backward()
    return attention, expected, expected_lse, leaves, grad, grad_lse


# Wide heads. Head dimension; batch, heads, heads of keys, queries, keys, dimension; dimension of values; options. Tiles
# have 128 queries and, for heads of 192, 96 keys, or 128 where values have 128; for heads of 256, 80.
WIDE_HEADS = [
    (192, (1, 2, 1, 200, 250, 192), 128, {"causal": True}),
    (192, (1, 2, 2, 150, 300, 136), 64, {"window": (100, 5), "softcap": 3.0}),
    (192, (1, 3, 1, 140, 230, 192), 192, {"window": (60, 20)}),
    # The first rows attend to the sink alone.
    (192, (2, 2, 2, 190, 140, 160), 192, {"causal": True, "sinks": SINKS[:2]}),
    (256, (1, 2, 1, 270, 250, 256), 256, {"causal": True}),
    (256, (1, 2, 1, 129, 1, 200), 256, {}),
    (256, (1, 1, 1, 700, 170, 256), 224, {"softcap": 20.0}),
]


@pytest.fixture(scope="module")
def wide_library(ops):
    return build(ops / "flash_attention", (ENTRIES / "flash_attention_wide_sm90.cu").read_text())


@pytest.mark.parametrize("dims, shape, value_dim, options", WIDE_HEADS)
def test_wide_heads(wide_library, reference, memory, dims, shape, value_dim, options):
    case = WIDE_HEADS.index((dims, shape, value_dim, options))
    seeds = (*half(SEEDS, case), *half(PAIRS, case))
    check_forward(wide_library, reference, memory, dims, shape, options, value_dim, seeds)


# Heads of 65 to 96 have tiles of 96 columns: three panels of 32.
@pytest.mark.parametrize(
    "shape, options",
    [
        ((1, 2, 1, 200, 300, 96), {"causal": True}),
        ((1, 2, 2, 260, 200, 80), {"softcap": 3.0, "window": (100, 5)}),
        ((1, 1, 1, 1, 170, 72), {}),
        ((1, 2, 2, 190, 140, 88), {"causal": True, "sinks": SINKS[:2]}),  # The first rows attend to the sink alone.
        ((2, 2, 1, 390, 400, 96), {"window": (60, 20)}),
        ((1, 3, 3, 380, 200, 96), {}),  # Wide tiles, of 192 queries and 112 keys.
        ((1, 2, 2, 380, 200, 80), {"window": (-1, 150)}),  # And a mask.
    ],
)
def test_heads_of_96(library, reference, memory, shape, options):
    check_forward(library, reference, memory, 96, shape, options)


def test_long_sequences_of_heads_of_128(library, reference, memory):
    """They have a tile of 176 keys."""
    check_forward(library, reference, memory, 128, (1, 1, 1, 70, 3344, 128), {"causal": True})


def check_forward(library, reference, memory, dims, shape, options, value_dim=None, seeds=SEEDS):
    """The output and the LSE, the same to the bit under every seed."""
    torch.manual_seed(0)
    attention = Attention(memory, dims, shape, value_dim=value_dim or shape[-1], **options)
    inputs = (attention.q.float(), attention.k.float(), attention.v.float())
    expected, expected_lse = reference("flash_attention").flash_attention(*inputs, **options, return_lse=True)
    results = [run_forward(library, memory, attention, seed) for seed in seeds]
    close(results[0][0], expected)
    assert torch.allclose(results[0][1], expected_lse, atol=1e-4)
    assert all(torch.equal(*pair) for other in results[1:] for pair in zip(results[0], other, strict=True))


# Their gradient, by two blocks for each tile of 128 keys, with 64 queries an iteration: as above, and the splits of the
# heads that share keys. Output and LSE, whose bits no seed changes, are computed once.
WIDE_GRADIENTS = [
    (192, (1, 2, 1, 200, 250, 192), 128, {"causal": True}, 1),
    (192, (1, 2, 2, 150, 300, 136), 64, {"window": (100, 5), "softcap": 3.0}, 1),
    (192, (1, 3, 1, 140, 230, 192), 192, {"window": (60, 20)}, 3),
    # The first rows attend to the sink alone.
    (192, (2, 2, 2, 190, 140, 160), 192, {"causal": True, "sinks": SINKS[:2]}, 1),
    (256, (1, 2, 1, 270, 250, 256), 256, {"causal": True}, 1),
    (256, (1, 2, 1, 129, 1, 200), 256, {}, 2),
    (256, (1, 1, 1, 330, 170, 256), 224, {"softcap": 20.0}, 2),
]


@pytest.mark.parametrize("dims, shape, value_dim, options, splits", WIDE_GRADIENTS)
def test_gradient_of_wide_heads(wide_library, reference, memory, dims, shape, value_dim, options, splits):
    case = WIDE_GRADIENTS.index((dims, shape, value_dim, options, splits))
    attention, _, _, leaves, *grads_out = differentiated(reference, memory, dims, shape, options, value_dim)
    of_forward = run_forward(wide_library, memory, attention)
    for deterministic, seeds in ((False, half(SEEDS, case)), (True, half(PAIRS, case))):
        arguments = wide_library, memory, attention, *of_forward, *grads_out, deterministic
        results = [run_backward(*arguments, seed, splits) for seed in seeds]
        for name, gradient, leaf in zip("qkv", results[0], leaves, strict=True):
            close(gradient, leaf.grad, f"gradient of {name}, {deterministic=}")
        begin = 0 if deterministic else 1
        assert all(
            torch.equal(*pair) for other in results[1:] for pair in zip(results[0][begin:], other[begin:], strict=True)
        )


# Heads of 65 to 96 dimensions. Batch, heads, heads of keys, queries, keys, dimension; options; splits of the groups.
# Tiles have 128 queries, in two steps, and 128 keys.
HEADS_OF_96 = [
    ((1, 2, 1, 200, 300, 96), {"causal": True}, 1),
    ((1, 2, 2, 260, 140, 80), {"softcap": 3.0, "window": (100, 5)}, 1),
    ((1, 4, 1, 140, 260, 72), {"causal": True}, 2),
    ((1, 2, 1, 270, 200, 96), {}, 4),
]


@pytest.mark.parametrize("shape, options, splits", HEADS_OF_96)
@pytest.mark.parametrize("deterministic", (False, True))
def test_gradient_of_heads_of_96(library, reference, memory, shape, options, splits, deterministic):
    check_gradient_of_heads_of_96(library, reference, memory, shape, options, splits, deterministic)


@pytest.mark.parametrize(
    "shape, options, splits",
    [
        ((2, 2, 2, 150, 128, 96), {"causal": True}, 1),
        ((1, 4, 2, 70, 33, 80), {"window": (60, 20)}, 2),
        ((1, 2, 2, 270, 77, 88), {}, 3),
    ],
)
def test_gradient_of_heads_of_96_with_few_keys(library, reference, memory, shape, options, splits):
    check_gradient_of_heads_of_96(library, reference, memory, shape, options, splits, None)


def check_gradient_of_heads_of_96(library, reference, memory, shape, options, splits, deterministic):
    """From the reference's output and LSE. The same bits under every seed, but for an ordinary gradient of q."""
    attention, out, lse, leaves, *grads_out = differentiated(reference, memory, 96, shape, options)
    of_forward = memory.copy(out.detach().to(attention.dtype)), memory.copy(lse.detach().float())
    arguments = library, memory, attention, *of_forward, *grads_out, deterministic
    seeds = PAIRS if deterministic else SEEDS
    if (shape, options, splits) in HEADS_OF_96:
        seeds = half(seeds, HEADS_OF_96.index((shape, options, splits)))
    results = [run_backward(*arguments, seed, splits) for seed in seeds]
    for name, gradient, leaf in zip("qkv", results[0], leaves, strict=True):
        close(gradient, leaf.grad, f"gradient of {name}")
    begin = 1 if deterministic is False else 0
    assert all(
        torch.equal(*pair) for other in results[1:] for pair in zip(results[0][begin:], other[begin:], strict=True)
    )


# Few queries. Packed heads, splits of the keys; head dimension; batch, heads, heads of keys, queries, keys, dimension;
# options. Up to 64 rows are for one consumer, if there is no softcap; a tile has 128 otherwise.
PACKED = [
    (4, 3, 128, (1, 4, 1, 16, 700, 128), {"causal": True}),
    (2, 1, 128, (2, 4, 2, 5, 300, 96), {"window": (200, 3)}),
    (3, 2, 64, (1, 6, 2, 45, 400, 64), {"causal": True}),  # Tiles of 42 queries leave two rows free.
    (7, 2, 64, (1, 7, 1, 3, 260, 40), {}),  # 21 of 64 rows.
    (2, 3, 64, (1, 2, 1, 70, 300, 64), {"softcap": 3.0, "causal": True}),
    (1, 5, 128, (1, 2, 2, 150, 300, 128), {"causal": True}),  # More splits than steps.
    (8, 2, 128, (1, 8, 1, 20, 10, 128), {"causal": True}),  # The first rows attend to no key.
    (3, 2, 64, (1, 6, 2, 45, 40, 64), {"causal": True, "sinks": SINKS}),
    (4, 1, 128, (1, 4, 1, 5, 300, 96), {"sinks": SINKS[:4]}),
    # Up to 64 keys of heads of 64, too: a tile of its own.
    (1, 1, 64, (5, 2, 2, 33, 33, 64), {"causal": True}),
    (2, 1, 64, (2, 4, 2, 30, 60, 48), {"window": (20, 5)}),
    (1, 2, 64, (1, 2, 1, 64, 64, 40), {}),
]


@pytest.mark.parametrize("packed_heads, splits, dims, shape, options", PACKED)
def test_packed_heads_and_split_keys(library, reference, memory, packed_heads, splits, dims, shape, options):
    torch.manual_seed(0)
    attention = Attention(memory, dims, shape, **options)
    inputs = (attention.q.float(), attention.k.float(), attention.v.float())
    expected, expected_lse = reference("flash_attention").flash_attention(*inputs, **options, return_lse=True)
    results = [run_packed(library, memory, attention, packed_heads, splits, seed) for seed in SEEDS]
    close(results[0][0], expected)
    assert torch.allclose(results[0][1], expected_lse, atol=1e-4)
    assert all(torch.equal(*pair) for other in results[1:] for pair in zip(results[0], other, strict=True))


def run_packed(library, memory, attention, packed_heads, splits, seed=0):
    out, lse = attention.empty_like(attention.q), memory.empty(*attention.rows)
    partial = attention.partial_results(splits)
    arguments = (*attention.inputs(), out, lse, packed_heads, splits, *partial)
    library(f"forward_packed_{attention.name}", *arguments, seed=seed, multiprocessors=2)
    return out, lse


def run(library, memory, attention, grad, grad_lse=None, deterministic=False, seed=0):
    """The forward and the backward: output, LSE and gradients."""
    out, lse = run_forward(library, memory, attention, seed)
    return out, lse, run_backward(library, memory, attention, out, lse, grad, grad_lse, deterministic, seed)


def run_forward(library, memory, attention, seed=0):
    out, lse = memory.empty(*attention.out, dtype=attention.dtype), memory.empty(*attention.rows)
    library(f"forward_{attention.name}", *attention.inputs(), out, lse, seed=seed, multiprocessors=2)
    return out, lse


def run_backward(
    library, memory, attention, out, lse, grad, grad_lse=None, deterministic=False, seed=0, group_splits=1
):
    """The gradients, with the heads that share keys in splits. `deterministic` is None where a block computes all of
    grad_q."""
    grads = [attention.empty_like(tensor) for tensor in (attention.q, attention.k, attention.v)]
    rows = getattr(library._library, f"backward_rows_{attention.dims}")()
    tiles = math.prod(attention.rows[:2]) * math.ceil(attention.rows[2] / rows)
    accum = None if deterministic is None else memory.empty(tiles * rows, attention.dims)
    progress = memory.empty(1 + tiles, dtype=torch.int32) if deterministic else None
    scratch = memory.empty(tiles * rows, 2), accum, progress
    batch, keys, kv_heads = attention.k.shape[:3]
    sums = (group_splits, batch * kv_heads * math.ceil(keys / 128) * 128, 2 * attention.dims)
    splits = group_splits, memory.empty(*sums) if group_splits > 1 else None
    arguments = (*attention.inputs(), out, lse, grad, grad_lse, *grads, *scratch, *splits)
    library(f"backward_{attention.name}", *arguments, seed=seed, multiprocessors=2)
    return grads


# Splits of the heads that share keys; head dimension; batch, heads, heads of keys, queries, keys, dimension; options.
# Tiles have 128 keys, and 128 or 64 queries.
SPLIT_GROUPS = [
    (4, 64, (1, 4, 1, 200, 300, 64), {"causal": True}),
    pytest.param(3, 64, (2, 6, 1, 140, 260, 40), {"window": (60, 20)}, marks=pytest.mark.corpus),
    pytest.param(2, 128, (1, 8, 2, 150, 200, 128), {"causal": True, "softcap": 20.0}, marks=pytest.mark.corpus),
    pytest.param(2, 128, (1, 4, 2, 100, 40, 96), {"causal": True, "sinks": SINKS[:4]}, marks=pytest.mark.corpus),
    (3, 128, (1, 3, 1, 70, 400, 128), {"window": (100, -1)}),  # No query attends to the first tiles of keys.
    # The queries of each head are split as well.
    (4, 128, (1, 2, 1, 270, 200, 128), {"causal": True}),
    pytest.param(2, 64, (1, 2, 2, 500, 150, 40), {"softcap": 3.0}, marks=pytest.mark.corpus),
]


@pytest.mark.parametrize("splits, dims, shape, options", SPLIT_GROUPS)
def test_split_groups(library, reference, memory, splits, dims, shape, options):
    """The gradient of q is that of the whole group to the bit; those of k and v, sums of the splits, differ by a
    rounding at most. All have the same bits in every run."""
    attention, _, _, leaves, *grads_out = differentiated(reference, memory, dims, shape, options)
    of_forward = run_forward(library, memory, attention)
    case = [getattr(group, "values", group) for group in SPLIT_GROUPS].index((splits, dims, shape, options))
    for deterministic, seeds in ((False, half(SEEDS, case)), (True, half(PAIRS, case))):
        arguments = library, memory, attention, *of_forward, *grads_out, deterministic
        whole = run_backward(*arguments)
        results = [run_backward(*arguments, seed, splits) for seed in seeds]
        for name, gradient, undivided, leaf in zip("qkv", results[0], whole, leaves, strict=True):
            close(gradient, leaf.grad, f"gradient of {name}, {deterministic=}")
            rounding = torch.finfo(gradient.dtype).eps
            assert torch.allclose(gradient.float(), undivided.float(), rtol=rounding, atol=rounding)
        if deterministic:
            assert torch.equal(results[0][0], whole[0])
        begin = 0 if deterministic else 1
        assert all(
            torch.equal(*pair) for other in results[1:] for pair in zip(results[0][begin:], other[begin:], strict=True)
        )


# Up to 128 keys, which are the only tile of their head; head dimension; batch, heads, heads of keys, queries, keys,
# dimension; options; splits of the groups. Up to 64 keys of 64 dimensions have a tile of their own.
FEW_KEYS = [
    (64, (2, 3, 3, 33, 33, 64), {"causal": True}, 1),
    (64, (1, 4, 2, 150, 64, 40), {"causal": True, "softcap": 3.0}, 1),  # A tile of queries that attend to no key.
    (64, (1, 4, 1, 20, 10, 64), {"sinks": SINKS[:4]}, 4),
    (64, (1, 2, 1, 200, 100, 64), {"window": (60, 20)}, 1),
    (128, (2, 2, 2, 100, 128, 128), {"softcap": 20.0}, 1),
    (128, (1, 4, 2, 150, 70, 96), {"causal": True, "sinks": SINKS[:4]}, 2),
    (128, (1, 1, 1, 1, 1, 128), {}, 1),
    # Splits of the queries of each head; the last of them have none.
    (64, (1, 2, 2, 500, 40, 40), {}, 3),
    (128, (1, 4, 2, 150, 70, 128), {"causal": True, "sinks": SINKS[:4]}, 8),
]


@pytest.mark.parametrize("dims, shape, options, splits", FEW_KEYS)
def test_few_keys(library, reference, memory, dims, shape, options, splits):
    attention, _, _, leaves, *grads_out = differentiated(reference, memory, dims, shape, options)
    of_forward = run_forward(library, memory, attention)
    arguments = library, memory, attention, *of_forward, *grads_out, None
    results = [run_backward(*arguments, seed, splits) for seed in SEEDS]
    for name, gradient, leaf in zip("qkv", results[0], leaves, strict=True):
        close(gradient, leaf.grad, f"gradient of {name}")
    assert all(torch.equal(*pair) for other in results[1:] for pair in zip(results[0], other, strict=True))


@pytest.mark.parametrize(
    "dims, shape, options, splits",
    [
        (128, (1, 16, 2, 4097, 4097, 128), {"causal": True}, (4,)),
        (64, (1, 14, 2, 6000, 6000, 64), {"causal": True}, (7,)),
        (128, (1, 2, 1, 20000, 20000, 128), {"causal": True}, (2,)),
        (128, (1, 32, 8, 333, 333, 128), {"causal": True}, (2, 4)),
        (128, (1, 9, 3, 1025, 1025, 96), {"causal": True}, (6,)),  # Three heads, and halves of their queries.
        (128, (1, 4, 1, 8192, 8192, 128), {}, (2,)),  # 64 blocks of 132: two of each.
        # Long blocks that begin late, and as long ones that need not.
        (128, (2, 24, 8, 3000, 3000, 128), {"causal": True}, (3,)),
        (128, (1, 32, 8, 4096, 4096, 128), {"causal": True}, (1,)),
        (128, (4, 16, 4, 4096, 4096, 128), {}, (1,)),  # The blocks fill the GPU.
        (64, (8, 32, 8, 2048, 2048, 64), {"causal": True}, (1,)),
        (128, (1, 4, 4, 100, 100, 128), {}, (1,)),  # No head shares keys.
        # Few keys: the queries of each head are split.
        (64, (2, 8, 8, 4096, 77, 40), {}, (8,)),
        (128, (1, 2, 1, 8192, 300, 128), {}, (32, 44)),
        (128, (1, 4, 4, 2048, 2048, 128), {"causal": True}, (3,)),
        (64, (1, 2, 2, 2048, 2048, 64), {}, (4, 5)),
        (64, (1, 16, 16, 1000, 1000, 64), {}, (1,)),
        (128, (1, 8, 8, 4096, 4096, 128), {"causal": True}, (1,)),
        (64, (1, 2, 1, 0, 100, 64), {}, (1,)),
    ],
)
def test_groups_are_split_where_blocks_are_few(library, memory, dims, shape, options, splits):
    attention = Attention(memory, dims, (*shape[:3], 1, 1, shape[5]), **options)
    attention.shape.queries, attention.shape.keys = shape[3:5]
    assert getattr(library._library, f"group_splits_{dims}")(ctypes.byref(attention.shape), 132) in splits


@pytest.mark.parametrize("dims", (64, 128))
@pytest.mark.parametrize("deterministic", (False, True))
def test_an_infinite_key_without_weight_has_no_gradient(library, memory, dims, deterministic):
    attention = infinite_key(memory, dims)
    *_, grads = run(library, memory, attention, attention.random_tensor(*attention.q.shape), None, deterministic)
    check_infinite_key(grads)


@pytest.mark.parametrize("dims", (64, 128))
@pytest.mark.parametrize("power", SCALES)
def test_large_scores(library, reference, memory, dims, power):
    def forward(attention):
        out, lse = attention.empty_like(attention.q), memory.empty(*attention.rows)
        library(f"forward_{attention.name}", *attention.inputs(), out, lse, multiprocessors=2)
        return out, lse

    check_large_scores(forward, reference, memory, dims, power)


@pytest.mark.parametrize("layout", ["slices of one tensor", "one batch for all", "one head for all"])
def test_strided_tensors_are_read_in_place(library, memory, layout):
    torch.manual_seed(0)
    attention = Attention(memory, 64, (2, 2, 2, 70, 150, 64))
    inputs = [attention.q, attention.k, attention.v]
    if layout == "slices of one tensor":
        inputs = [torch.stack([tensor] * 3, 2)[:, :, 1] for tensor in inputs]
    elif layout == "one batch for all":
        inputs[1:] = (tensor[:1].expand(tensor.shape) for tensor in inputs[1:])
    else:
        inputs[1:] = (tensor[:, :, :1].expand(tensor.shape) for tensor in inputs[1:])
    strides = (ctypes.c_int64 * 9)(*(stride for tensor in inputs for stride in tensor.stride()[:3]))
    out, lse = attention.empty_like(attention.q), memory.empty(*attention.rows)
    shape = ctypes.addressof(attention.shape)
    library("forward_strided", shape, *inputs, ctypes.addressof(strides), out, lse)

    attention.q, attention.k, attention.v = (tensor.contiguous() for tensor in inputs)
    expected, expected_lse = attention.empty_like(attention.q), memory.empty(*attention.rows)
    library(f"forward_{attention.name}", *attention.inputs(), expected, expected_lse)
    assert torch.equal(out, expected)
    assert torch.equal(lse, expected_lse)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "tiles, late, batch, heads, group, section_groups",
    [(1, 0, 1, 1, 1, 1), (5, 0, 2, 6, 1, 5), (12, 2, 2, 10, 2, 3), (9, 1, 3, 4, 4, 1), (6, 1, 1, 7, 1, 100)],
)
def test_every_tile_is_scheduled_once(library, memory, tiles, late, batch, heads, group, section_groups, descending):
    """Each head's tiles come in order, section by section; late tiles come after all others."""
    coordinates = memory.empty(tiles * batch * heads, 3, dtype=torch.int32)
    library("scheduled_tiles", tiles, late, batch, heads, group, section_groups, int(descending), coordinates)
    order = [(b * heads + head, tiles - 1 - tile if descending else tile) for b, head, tile in coordinates.tolist()]
    assert sorted(order) == [(head, tile) for head in range(batch * heads) for tile in range(tiles)]
    is_late = [tile >= tiles - late for _, tile in order]
    assert is_late == sorted(is_late)
    next_tiles: dict[int, int] = {}  # By head, of the heads that have begun and not ended.
    for head, tile in order:
        assert next_tiles.pop(head, tile) == tile
        if tile + 1 not in (tiles - late, tiles):
            next_tiles[head] = tile + 1
        assert len(next_tiles) <= section_groups * group * (tiles / late if tile >= tiles - late else 1)
    assert not next_tiles
