"""Atomic functions, compared with sums and orders that they must keep."""

import pytest
import torch

from kernelgen.emulator.compiler import EmulatorError

from .conftest import SEEDS
from .standalone import build


@pytest.fixture(scope="module")
def kernels():
    return build("atomics")


def integers(*shape: int, low: int = -8, high: int = 9) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(1), dtype=torch.int32)


@pytest.mark.parametrize("seed", SEEDS)
def test_integers(kernels, seed):
    values = integers(128, low=0, high=1000)
    signed = torch.tensor([0, 0, 5000, -5000, -1, 0, 0, 0, 0, 0], dtype=torch.int32)
    unsigned = torch.tensor([0, 0, 5000, 0, 0, 0], dtype=torch.int32)
    wide_signed, wide = torch.tensor([2**60, -(2**60)]), torch.zeros(4, dtype=torch.int64)
    kernels("integer_atomics", values, signed, unsigned, wide_signed, wide, seed=seed)
    total, parity, bits, wide_bits = int(values.sum()), 0, 0, 0
    for value in values.tolist():
        parity ^= value
        bits |= 1 << value % 32
        wide_bits |= 1 << value % 64
    low, high = int(values.min()), int(values.max())
    expected = [total, -total, low, high, ~bits, bits, parity, int(values[:64].sum()), int(values[64:].sum()), 128]
    assert [x % 2**32 for x in signed.tolist()] == [x % 2**32 for x in expected]
    assert unsigned[:4].tolist() == [total, -total, low, high]
    assert unsigned[4] == 128 % 101
    assert unsigned[5] == -128 % 51
    assert wide_signed.tolist() == [low << 33, high << 33]
    assert [x % 2**64 for x in wide.tolist()] == [total << 20, wide_bits, high, parity << 32]


@pytest.mark.parametrize("seed", SEEDS)
def test_floats(kernels, seed):
    values = integers(64).float()
    total = values.sum()
    f, d = torch.zeros(8), torch.zeros(1, dtype=torch.float64)
    h, h2 = torch.zeros(2, dtype=torch.float16), torch.zeros(2, dtype=torch.float16)
    b, b2 = torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)
    kernels("float_atomics", values, f, d, h, h2, b, b2, seed=seed)
    assert f.tolist() == [total, 0, total, 2 * total, total, 2 * total, 3 * total, 4 * total]
    assert d.item() == total
    assert h.tolist() == [total, 0]
    assert h2.tolist() == [total, -total]
    assert b.tolist() == [total, 0]
    assert b2.tolist() == [total, -total]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_thread_gets_a_value_of_its_own(kernels, seed):
    counter, out = torch.zeros(1, dtype=torch.int32), torch.zeros(96, dtype=torch.int32)
    chain, small = torch.zeros(1, dtype=torch.int64), torch.zeros(2, dtype=torch.int16)
    kernels("take_tickets", counter, out, chain, small, seed=seed)
    assert sorted(out.tolist()) == list(range(96))
    expected = 0
    for _ in range(96):
        expected = (3 * expected + 1) % 2**64
    assert chain.item() % 2**64 == expected
    assert small.tolist() == [96, 0]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lock_admits_blocks_one_by_one(kernels, seed):
    values = torch.ones(9)
    lock, total = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.float64)
    kernels("sum_under_lock", lock, total, values, seed=seed)
    assert total.item() == 2 - 2**-8
    assert lock.item() == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_block_sees_what_all_wrote(kernels, seed):
    values = integers(1000).float()
    partial, arrived, out = torch.zeros(5), torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    kernels("sum_in_last_block", values, partial, arrived, out, 1000, seed=seed)
    assert out.item() == values.sum()
    assert arrived.item() == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_libcudacxx(kernels, seed):
    values = integers(64)
    cells, real = torch.tensor([0, -100, 0, 0], dtype=torch.int32), torch.zeros(1)
    flag, message, received = (torch.zeros(1, dtype=torch.int32) for _ in range(3))
    kernels("libcudacxx_atomics", values, cells, real, flag, message, received, seed=seed)
    parity = 0
    for value in values.tolist():
        parity ^= value
    assert cells.tolist() == [values.sum(), values.max(), parity, 2 * values.sum()]
    assert real.item() == values.sum()
    assert received.item() == 17
    out = torch.zeros(2, dtype=torch.int32)
    kernels("libcudacxx_counters", out, seed=seed)
    assert out.tolist() == [192, 96]


@pytest.mark.parametrize("seed", SEEDS)
def test_sixteen_bytes_are_exchanged_whole(kernels, seed):
    place, out = torch.full((4,), 1000, dtype=torch.int32), torch.zeros(64, 4, dtype=torch.int32)
    kernels("wide_exchange", place, out, seed=seed)
    rows = sorted([*out.tolist(), place.tolist()])
    assert rows == [*([i, i + 1, i + 2, i + 3] for i in range(64)), [1000] * 4]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plain_read_beside_atomics_is_told_how_to_be_right(kernels, seed):
    values, out = integers(64).float(), torch.full((1,), -1000.0)
    kernels("maximum_by_exchanges", values, out, False, seed=seed)
    assert out.item() == values.max()
    report = r"(?s)a race on .*\n  or both are meant: then both have to be atomic or volatile"
    with pytest.raises(EmulatorError, match=report):
        kernels("maximum_by_exchanges", values, torch.full((1,), -1000.0), True, seed=seed)
