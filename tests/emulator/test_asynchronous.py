"""Asynchronous copies and reductions in rarer forms, compared with PyTorch's results."""

import pytest
import torch

from .conftest import SEEDS
from .standalone import build


@pytest.fixture(scope="module")
def kernels():
    return build("asynchronous")


@pytest.fixture
def random():
    return torch.Generator().manual_seed(2)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_predicate_that_ignores_the_source_gives_zeros(kernels, random, seed):
    values = torch.randint(-9, 9, (32, 4), generator=random, dtype=torch.int32)
    ignored = torch.randint(0, 2, (32,), generator=random, dtype=torch.int32)
    out = torch.zeros(32, 4, dtype=torch.int32)
    kernels("copy_some_lanes", values, ignored, out, seed=seed)
    assert torch.equal(out, values * (1 - ignored[:, None]))


REDUCTIONS = {
    "add_f32": (torch.float32, torch.add),
    "add_f64": (torch.float64, torch.add),
    "add_f16": (torch.float16, torch.add),
    "add_s32": (torch.int32, torch.add),
    "add_u64": (torch.int64, torch.add),
    "min_bf16": (torch.bfloat16, torch.minimum),
    "max_s32": (torch.int32, torch.maximum),
    "xor_b64": (torch.int64, torch.bitwise_xor),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_bulk_reductions_combine_with_what_is_there(kernels, random, name):
    dtype, combine = REDUCTIONS[name]
    values, there = (torch.randint(-99, 99, (512 // dtype.itemsize,), generator=random).to(dtype) for _ in "ab")
    expected = combine(values, there)
    for seed in SEEDS:
        out = there.clone()
        kernels(name, values, out, seed=seed)
        assert torch.equal(out, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_of_a_cluster_send_and_multicast(kernels, random, seed):
    values = torch.randint(0, 2**60, (2, 64), generator=random)
    sent, cast = torch.zeros(2, 64, dtype=torch.int64), torch.zeros(2, 128, dtype=torch.int64)
    kernels("exchange", values, sent, cast, seed=seed)
    assert torch.equal(sent, values.flip(0))
    assert torch.equal(cast, values.flatten().expand(2, 128))


@pytest.mark.parametrize("place", [(0, 0, 0), (8, 1, 1), (-3, -1, 3), (20, 2, -2)])
def test_a_box_of_bytes_is_zero_outside_the_tensor(kernels, random, place):
    tensor = torch.randint(1, 256, (5, 3, 32), generator=random).to(torch.uint8)
    aligned = torch.zeros(5 * 3 * 32 + 16, dtype=torch.uint8)
    start = -aligned.data_ptr() % 16
    stored = aligned[start : start + tensor.numel()].copy_(tensor.flatten())
    x, y, z = place
    padded = torch.zeros(5 + 16, 3 + 16, 32 + 64, dtype=torch.uint8)
    padded[8:13, 8:11, 32:64] = tensor
    out = torch.zeros(4, 2, 16, dtype=torch.uint8)
    kernels("load_box", stored, x, y, z, out)
    assert torch.equal(out, padded[8 + z : 12 + z, 8 + y : 10 + y, 32 + x : 48 + x])


def test_sums_flush_subnormal_numbers_in_global_memory_only(kernels):
    least = torch.tensor([2.0**-140, 0.0], dtype=torch.float64).float()
    kernels("sum_small", least, least[1:])
    assert least[1] == 2.0**-140 + 2.0**-141
    assert least[0] == 0
