"""CUB's collectives, compared with torch."""

import pytest
import torch

from .conftest import SEEDS
from .standalone import build

THREADS, WARP_THREADS, ITEMS = 128, 96, 4
ALL = THREADS * ITEMS


@pytest.fixture(scope="module")
def kernels():
    return build("collectives")


def integers(count: int, high: int = 1000) -> torch.Tensor:
    return torch.randint(0, high, (count,), generator=torch.Generator().manual_seed(7), dtype=torch.int32)


@pytest.mark.parametrize("algorithm", range(3))
@pytest.mark.parametrize("seed", SEEDS)
def test_block_reduce(kernels, algorithm, seed):
    values, out, total = integers(THREADS), torch.zeros(3, dtype=torch.int32), torch.zeros(1)
    kernels("reduce_block", algorithm, values, values.float(), out, total, seed=seed)
    assert out.tolist() == [values.sum(), values.max(), values[:50].sum()]
    assert total.item() == values.sum()


@pytest.mark.parametrize("algorithm", range(2))
@pytest.mark.parametrize("seed", SEEDS)
def test_block_scan(kernels, algorithm, seed):
    values, out = integers(ALL), torch.zeros(ALL + 1, dtype=torch.int32)
    kernels("scan_block", algorithm, values, out, seed=seed)
    assert torch.equal(out[1:], values.cumsum(0).int())
    assert out[0] == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_block_radix_sort(kernels, seed):
    keys, values = integers(ALL, high=2**31 - 1) // 2**20, torch.arange(ALL, dtype=torch.int32)
    sorted_keys, moved = torch.zeros_like(keys), torch.zeros_like(values)
    reals = torch.randn(ALL, generator=torch.Generator().manual_seed(8))
    expected = reals.sort(descending=True).values
    kernels("sort_block", keys, values, sorted_keys, moved, reals, seed=seed)
    in_order = keys.sort(stable=True)
    assert torch.equal(sorted_keys, in_order.values)
    assert torch.equal(moved, in_order.indices.int())
    assert torch.equal(reals, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_other_block_collectives(kernels, seed):
    values, out = integers(ALL, high=5), torch.zeros(4 * ALL + 16, dtype=torch.int32)
    kernels("other_block", values, out, seed=seed)
    striped, heads, in_order, differences = out[: 4 * ALL].view(4, ALL)
    assert torch.equal(striped.view(THREADS, ITEMS), values.view(ITEMS, THREADS).T)
    before = torch.cat((torch.tensor([-1], dtype=torch.int32), values[:-1]))
    assert torch.equal(heads, (values != before).int())
    assert torch.equal(in_order, values.sort().values)
    assert torch.equal(differences[1:], values[1:] - values[:-1])
    assert torch.equal(out[4 * ALL :], torch.bincount(values % 16, minlength=16).int())


# CUB's merge sort reads a key beyond the last, which nobody has written, and does not use it.
@pytest.mark.parametrize("seed", range(24))
def test_warp_collectives(kernels, seed):
    values, out, sums = integers(WARP_THREADS * ITEMS), torch.zeros(1100, dtype=torch.int32), torch.zeros(3)
    own = values[:WARP_THREADS]
    kernels("warp_collectives", values, own.float(), out, sums, seed=seed)
    assert torch.equal(sums, own.view(3, 32).sum(1).float())
    assert torch.equal(out[:12], own.view(12, 8).amax(1))
    inclusive = own.view(3, 32).cummax(1).values
    assert torch.equal(out[100:196], inclusive.flatten())
    exclusive = torch.cat((torch.zeros(3, 1, dtype=torch.int32), inclusive[:, :-1]), 1)
    assert torch.equal(out[200:296], exclusive.flatten())
    blocked = values.view(3, 32, ITEMS).permute(0, 2, 1).reshape(3, -1)
    assert torch.equal(out[300:684].view(3, 128), blocked)
    assert torch.equal(out[700:1084].view(3, 128), values.view(3, 128).sort(1).values)
