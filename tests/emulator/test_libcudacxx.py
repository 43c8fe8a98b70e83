"""Barriers and pipelines of libcu++."""

import pytest
import torch

from .conftest import ALL_SCHEDULES, SEEDS
from .standalone import build


@pytest.fixture(scope="module")
def kernels():
    return build("libcudacxx")


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(0, 1000, shape, generator=torch.Generator().manual_seed(9), dtype=torch.int32)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_separates_rounds(kernels, seed):
    values, out = integers(96), torch.zeros(96, dtype=torch.int32)
    kernels("barrier_rounds", values, out, 7, seed=seed)
    expected = values
    for _ in range(7):
        expected = (3 * expected + expected.roll(-1)) % 1009
    assert torch.equal(out, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_barriers_hand_buffers_over(kernels, seed):
    values, out = integers(9, 32), torch.zeros(9, 32, dtype=torch.int32)
    kernels("hand_over", values, out, 9, seed=seed)
    assert torch.equal(out, values.flip(1) + 1)


# libcu++ starts a bulk copy here, with no fence since the barrier's initialisation but __syncthreads.
@pytest.mark.parametrize("n", (64, 200, 1024))
@pytest.mark.parametrize("seed", ALL_SCHEDULES)
def test_a_barrier_counts_copies(kernels, n, seed):
    values, out = torch.randn(n), torch.zeros(n)
    kernels("copy_by_barrier", values, out, n, seed=seed)
    assert torch.equal(out, values.flip(0))


@pytest.mark.parametrize("name", ("sum_stages", "sum_roles", "sum_own"))
@pytest.mark.parametrize("batches", (1, 2, 9))
@pytest.mark.parametrize("seed", ALL_SCHEDULES)
def test_pipelines(kernels, name, batches, seed):
    values, out = integers(batches, 64).float(), torch.zeros(64)
    kernels(name, values, out, batches, seed=seed)
    expected = values.sum(0)
    assert torch.equal(out, expected if name == "sum_own" else expected.flip(0))


@pytest.mark.parametrize("native", (0, 1))
@pytest.mark.parametrize("seed", ALL_SCHEDULES)
def test_bulk_copies(kernels, native, seed):
    values = integers(128 if native else 256)
    storage = torch.zeros(260, dtype=torch.int32)
    shift = -(storage.data_ptr() // 4) % 4
    out = storage[shift : shift + len(values)]
    aligned = torch.zeros(260, dtype=torch.int32)
    begin = -(aligned.data_ptr() // 4) % 4
    source = aligned[begin : begin + len(values)].copy_(values)
    kernels("bulk_copy", source, out, native, seed=seed)
    assert torch.equal(out, values.flip(0) if native else values + torch.arange(256, dtype=torch.int32))
