"""Asynchronous copies and reductions in rarer forms, compared with PyTorch's results."""

import pytest
import torch

from kernelgen.emulator.library import EmulatorError

from .conftest import ALL_SCHEDULES, SEEDS
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


@pytest.mark.parametrize("seed", ALL_SCHEDULES)
def test_a_fence_shows_every_kind_of_write_since_the_last_one(kernels, random, seed):
    values = torch.randint(-9, 9, (32, 4), generator=random, dtype=torch.int32)
    out = torch.zeros(2, 32, 4, dtype=torch.int32)
    kernels("store_after_fences", values, out, seed=seed)
    assert torch.equal(out[0], values)
    assert torch.equal(out[1], values + torch.tensor([1, 0, 0, 0], dtype=torch.int32))


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


@pytest.mark.parametrize("seed", ALL_SCHEDULES)
def test_blocks_of_a_cluster_store_in_each_other_from_registers(kernels, random, seed):
    values, out = torch.randn(2, 32, 4, generator=random), torch.zeros(2, 32, 4)
    kernels("store_in_other", values, out, seed=seed)
    assert torch.equal(out, values.flip(0))


@pytest.mark.parametrize("seed", ALL_SCHEDULES)
def test_a_copy_arrives_while_a_thread_polls(kernels, seed):
    """Late copies, too, though that thread can run all the time."""
    values, flag, out = torch.arange(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), torch.zeros(4).int()
    kernels("poll_for_copy", values, flag, out, seed=seed)
    assert torch.equal(out, values)


@pytest.fixture
def stored(random):
    """Bytes of a tensor of 5 x 3 x 32, aligned as a tensor map needs them."""
    aligned = torch.zeros(5 * 3 * 32 + 16, dtype=torch.uint8)
    start = -aligned.data_ptr() % 16
    values = torch.randint(1, 256, (5 * 3 * 32,), generator=random).to(torch.uint8)
    return aligned[start : start + len(values)].copy_(values)


@pytest.mark.parametrize("place", [(0, 0, 0), (16, 1, 1), (-16, -1, 3), (16, 2, -2)])
def test_a_box_of_bytes_is_zero_outside_the_tensor(kernels, stored, place):
    tensor = stored.view(5, 3, 32)
    x, y, z = place
    padded = torch.zeros(5 + 16, 3 + 16, 32 + 64, dtype=torch.uint8)
    padded[8:13, 8:11, 32:64] = tensor
    out = torch.zeros(4, 2, 16, dtype=torch.uint8)
    kernels("load_box", stored, x, y, z, out)
    assert torch.equal(out, padded[8 + z : 12 + z, 8 + y : 10 + y, 32 + x : 48 + x])


# As CUDA's documentation of cuTensorMapEncodeTiled says.
@pytest.mark.parametrize(("binds", "result"), [(False, 201), (True, 0)], ids=["invalid context", "success"])
def test_a_new_thread_has_no_context_for_the_driver(kernels, stored, binds, result):
    got = torch.full((1,), -1, dtype=torch.int32)
    kernels("encode_elsewhere", stored, binds, got)
    assert got.item() == result


# As an H100 does, by tools/against_gpu.py.
def test_a_box_that_begins_between_multiples_of_16_bytes_is_refused(kernels, stored):
    with pytest.raises(EmulatorError, match="at 8 in the innermost dimension; there a box begins at a multiple of 16"):
        kernels("load_box", stored, 8, 0, 0, torch.zeros(128, dtype=torch.uint8))


def test_a_stored_box_fills_the_chunk_in_which_its_row_ends(kernels, stored):
    before = stored.clone().view(15, 32)
    kernels("store_box", stored, 16, 13)  # Rows hold 24 bytes, and lie 32 apart.
    after = stored.view(15, 32)
    assert torch.equal(after[13:, 16:], torch.arange(64, dtype=torch.uint8).view(2, 32)[:, :16])
    assert torch.equal(after[:13], before[:13])
    assert torch.equal(after[:, :16], before[:, :16])


@pytest.mark.parametrize("place", [(-16, 0), (0, -1)])
def test_a_store_that_begins_outside_the_tensor_is_refused(kernels, stored, place):
    with pytest.raises(EmulatorError, match="a store begins inside the tensor"):
        kernels("store_box", stored, *place)


def test_sums_flush_subnormal_numbers_in_global_memory_only(kernels):
    least = torch.tensor([2.0**-140, 0.0], dtype=torch.float64).float()
    kernels("sum_small", least, least[1:])
    assert least[1] == 2.0**-140 + 2.0**-141
    assert least[0] == 0
