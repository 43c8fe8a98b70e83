"""Cooperative groups, compared with what their documentation says."""

import pytest
import torch

from .conftest import SEEDS
from .standalone import build


@pytest.fixture(scope="module")
def kernels():
    return build("groups")


def integers(count: int) -> torch.Tensor:
    return torch.randint(0, 100, (count,), generator=torch.Generator().manual_seed(2), dtype=torch.int32)


@pytest.mark.parametrize("seed", SEEDS)
def test_tiles(kernels, seed):
    values, out = integers(64), torch.zeros(64, 20, dtype=torch.int32)
    kernels("partition", values, out, seed=seed)
    for begin, size in ((0, 4), (5, 32)):
        tiles = values.view(-1, size)
        count = 64 // size
        lane, group = torch.arange(64) % size, torch.arange(64) // size
        assert torch.equal(out[:, begin], (lane + 1000 * group + 1000000 * count).int())
        assert torch.equal(out[:, begin + 1], tiles.sum(1, dtype=torch.int32).repeat_interleave(size))
        assert torch.equal(out[:, begin + 2], tiles.amax(1).repeat_interleave(size))
        scanned = tiles.cumsum(1, dtype=torch.int32)
        assert torch.equal(out[:, begin + 3], scanned.flatten())
        assert torch.equal(out[:, begin + 4], (scanned - tiles).flatten())
    tiles, lane = values.view(4, 16), torch.arange(16)
    assert torch.equal(out[:, 10], tiles[:, 3].repeat_interleave(16))
    assert torch.equal(out[:, 11], tiles[:, torch.where(lane < 14, lane + 2, lane)].flatten())
    assert torch.equal(out[:, 12], tiles[:, lane ^ 5].flatten())
    assert torch.equal(out[:, 13], (tiles > 95).any(1).int().repeat_interleave(16))
    weights = 2**lane
    assert torch.equal(out[:, 14], ((tiles % 2) * weights).sum(1).int().repeat_interleave(16))
    same = tiles[:, :, None] % 4 == tiles[:, None, :] % 4
    assert torch.equal(out[:, 15], (same * weights).sum(2).int().flatten())
    assert torch.equal(out[:, 16], (800 + torch.arange(64) % 8).int())
    parity = [0] * 8
    for i, value in enumerate(values.tolist()):
        parity[i // 8] ^= value
    assert out[:, 17].tolist() == [parity[i // 8] for i in range(64)]
    even = tiles % 2 == 0
    sums = torch.where(even, (tiles * even).sum(1, keepdim=True), (tiles * ~even).sum(1, keepdim=True))
    assert torch.equal(out[:, 18], sums.int().flatten())
    labels = tiles[:, :, None] % 3 == tiles[:, None, :] % 3
    ranks = (labels & (lane[None, :, None] > lane[None, None, :])).sum(2)
    assert torch.equal(out[:, 19], (100 * labels.sum(2) + ranks).int().flatten())


@pytest.mark.parametrize("seed", SEEDS)
def test_coalesced_threads(kernels, seed):
    values, out, count = integers(64), torch.zeros(64, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    kernels("coalesce", values, out, count, seed=seed)
    chosen = values % 3 == 0
    assert (out[~chosen] == -1).all()
    assert sorted(out[chosen].tolist()) == list(range(int(chosen.sum())))
    assert count.item() == chosen.sum()


@pytest.mark.parametrize("seed", range(24))
def test_tiles_of_several_warps(kernels, seed):
    values, out = integers(256), torch.zeros(256, 2, dtype=torch.int32)
    kernels("partition_large", values, out, seed=seed)
    assert torch.equal(out[:, 0], values.view(4, 64).sum(1, dtype=torch.int32).repeat_interleave(64))
    assert torch.equal(out[:, 1], (torch.arange(256) % 64 + 1000 * (torch.arange(256) // 64)).int())


@pytest.mark.parametrize("steps", (1, 4))
@pytest.mark.parametrize("seed", SEEDS)
def test_a_grid_synchronises(kernels, steps, seed):
    a, b = integers(500), torch.zeros(500, dtype=torch.int32)
    expected = a
    for _ in range(steps):
        expected = expected + expected.roll(-1)
    kernels("relax_grid", a, b, 500, steps, seed=seed)
    assert torch.equal(b if steps % 2 else a, expected)


@pytest.mark.parametrize("n", (64, 100, 513))
@pytest.mark.parametrize("seed", SEEDS)
def test_memcpy_async(kernels, n, seed):
    values, out = torch.randn(n), torch.zeros(n)
    kernels("copy_async", values, out, n, seed=seed)
    assert torch.equal(out, values.flip(0))


@pytest.mark.parametrize("seed", SEEDS)
def test_invoke_one(kernels, seed):
    count = torch.zeros(3, dtype=torch.int32)
    kernels("invoke", count, seed=seed)
    assert count.tolist() == [8, 16, 0]


@pytest.mark.parametrize("seed", SEEDS)
def test_clusters_read_shared_memory_of_others(kernels, seed):
    values, out = integers(128), torch.zeros(8, 32, dtype=torch.int32)
    kernels("cluster_neighbours", values, out, seed=seed)
    blocks = values.view(4, 32).flip(1).roll(-1, 0) + 1000 * torch.tensor([1, 2, 3, 0])[:, None]
    assert torch.equal(out, torch.cat((blocks, blocks)).int())
