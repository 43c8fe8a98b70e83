"""Warp functions, compared with their definitions."""

import pytest
import torch

from .conftest import SEEDS
from .standalone import build


@pytest.fixture(scope="module")
def kernels():
    return build("warps")


@pytest.fixture
def values():
    return torch.randint(0, 100, (96,), generator=torch.Generator().manual_seed(3), dtype=torch.int32)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("width", (8, 32))
def test_shuffles_read_the_lane_that_they_name(kernels, values, width, seed):
    values = values[:64].contiguous()
    sources = torch.randint(-40, 80, (64,), generator=torch.Generator().manual_seed(4), dtype=torch.int32)
    out = torch.zeros(64, 8, dtype=torch.int32)
    kernels(f"shuffle_{width}", values, sources, out, seed=seed)
    lane = torch.arange(64)
    first, last = lane // width * width, lane // width * width + width - 1

    def from_lane(source, inside):
        return values[torch.where(inside, source, lane)]

    named = values[first + sources % width]
    assert torch.equal(out[:, 0], named)
    assert torch.equal(out[:, 1], from_lane((lane - 3).clamp(0), lane - 3 >= first))
    assert torch.equal(out[:, 2], from_lane((lane + 5).clamp(max=63), lane + 5 <= last))
    assert torch.equal(out[:, 3], from_lane(lane ^ 6, torch.tensor(True)))
    assert torch.equal(out[:, 4], named)
    assert torch.equal(out[:, 5].view(torch.float32).int(), values[lane ^ 1])
    assert torch.equal(out[:, 6], from_lane((lane + 2).clamp(max=63), lane + 2 <= last))
    assert torch.equal(out[:, 7], from_lane((lane - 1).clamp(0), lane - 1 >= first))


@pytest.mark.parametrize("seed", SEEDS)
def test_shuffles_move_16_bit_numbers(kernels, seed):
    values = torch.randn(32, generator=torch.Generator().manual_seed(5))
    out = torch.zeros(32, 6)
    kernels("shuffle_16_bits", values, out, seed=seed)
    half, bfloat, lane = values.half().float(), values.bfloat16().float(), torch.arange(32)
    assert torch.equal(out[:, 0], half[lane ^ 3])
    assert torch.equal(out[:, 1], bfloat[torch.where(lane < 30, lane + 2, lane)])
    assert torch.equal(out[:, 2], half[7].expand(32))
    assert torch.equal(out[:, 3], -half[7].expand(32))
    before = torch.where(lane > 0, lane - 1, lane)
    assert torch.equal(out[:, 4], bfloat[before])
    assert torch.equal(out[:, 5], (2 * values).bfloat16().float()[before])


def mask_of(bits: torch.Tensor) -> int:
    return sum(1 << lane for lane, bit in enumerate(bits.tolist()) if bit)


@pytest.mark.parametrize("seed", SEEDS)
def test_votes_and_matches(kernels, values, seed):
    out = torch.zeros(96, 12, dtype=torch.int32)
    kernels("vote", values, out, seed=seed)
    rows = out.to(torch.int64) & 0xFFFFFFFF
    for thread in range(96):
        warp, own, lane = values[thread // 32 * 32 :][:32], values[thread], thread % 32
        row = rows[thread].tolist()
        assert row[0] == mask_of(warp % 2 == 1)
        assert row[1] == int((warp > 90).any())
        assert row[2] == 1
        assert row[3] == mask_of(warp % 5 == own % 5)
        assert row[4:6] == [0xFFFFFFFF, 1]
        assert row[6] == int((values % 2).sum())
        assert row[7:9] == [1, int((values > 98).any())]
        assert row[9] == mask_of(warp % 3 == own % 3)
        assert row[10] == (mask_of(warp > 50) & 0x55555555 if lane % 2 == 0 else 0)
        assert row[11] == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_reductions(kernels, values, seed):
    values = values[:64].contiguous() - 50
    out = torch.zeros(64, 8, dtype=torch.int32)
    kernels("reduce", values, out, seed=seed)
    for begin in (0, 32):
        warp = values[begin : begin + 32]
        every = torch.zeros(32, dtype=torch.int32)
        conjunction, disjunction, parity = -1, 0, 0
        for value in warp.tolist():
            conjunction, disjunction, parity = conjunction & value, disjunction | value, parity ^ value
        largest = max(value % 2**32 for value in warp.tolist())
        expected = [warp.sum(), warp.min(), warp.max(), conjunction, disjunction, parity]
        expected.append(largest - 2**32 if largest >= 2**31 else largest)
        rows = out[begin : begin + 32]
        assert torch.equal(rows[:, :7], every[:, None] + torch.tensor([int(x) for x in expected], dtype=torch.int32))
        assert (rows[:16, 7] == warp[:16].sum()).all()
        assert (rows[16:, 7] == warp[16:].min()).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_of_a_branch_are_active_together(kernels, values, seed):
    values, out = values[:64].contiguous(), torch.zeros(64, dtype=torch.int32)
    kernels("active_lanes", values, out, seed=seed)
    for thread in range(64):
        before = values[thread // 32 * 32 : thread]
        assert out[thread] == (before % 2 == values[thread] % 2).sum()


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_with_one_key_count_together(kernels, seed):
    keys = torch.randint(0, 7, (256,), generator=torch.Generator().manual_seed(6), dtype=torch.int32)
    counts = torch.zeros(7, dtype=torch.int32)
    kernels("count_keys", keys, counts, seed=seed)
    assert torch.equal(counts, torch.bincount(keys, minlength=7).int())


@pytest.mark.parametrize("seed", SEEDS)
def test_syncwarp_orders_shared_memory(kernels, values, seed):
    values, out = values[:64].contiguous(), torch.zeros(64, dtype=torch.int32)
    kernels("exchange", values, out, seed=seed)
    lane = torch.arange(64)
    assert torch.equal(out, values[lane // 32 * 32 + 31 - (lane % 32 + 1) % 32])
