"""The device-side headers of a project, under several thread schedules."""

import pytest
import torch

from kernelgen.emulator.library import EmulatedLibrary

from .conftest import ALL_SCHEDULES, ENTRIES, SEEDS, build


@pytest.fixture(scope="session")
def kernels(ops) -> EmulatedLibrary:
    return build(ops / "elementwise", (ENTRIES / "vocabulary.cu").read_text())


@pytest.fixture(autouse=True)
def _same_inputs():
    torch.manual_seed(0)


def integers(*shape: int) -> torch.Tensor:
    """Small whole numbers, whose sums are exact in any order."""
    return torch.randint(-8, 9, shape).float()


def test_vector_loads_and_stores_groups(kernels, memory):
    values = memory.copy(integers(204))
    for other in (None, memory.copy(integers(204))):
        out = memory.empty(204)
        kernels("vectors", values, other, out, 204)
        assert torch.equal(out, values + (2 if other is None else other))


@pytest.mark.parametrize("name, elements", [("vectors_evict_last", 4), ("elements_evict_last", 1)])
def test_evict_last_stores_what_it_loads_and_zeros_past_the_end(kernels, memory, name, elements):
    values, out = memory.copy(integers(20 * elements)), memory.empty(32 * elements)
    kernels(name, values, out, 20, 32)
    assert torch.equal(out, torch.cat((values, torch.zeros(12 * elements))))


def test_pack_puts_the_first_number_into_the_lower_half(kernels, memory):
    values = memory.copy(torch.randn(128))
    packed = [torch.zeros(64, dtype=torch.int32) for _ in range(2)]
    kernels("packs", values, *packed)
    for pairs, dtype in zip(packed, (torch.float16, torch.bfloat16), strict=True):
        assert torch.equal(pairs.view(dtype), values.to(dtype))


def test_swizzle_spreads_rows_and_columns_over_all_banks(kernels):
    places = torch.empty(24, 8, dtype=torch.int64)
    kernels("swizzles", places, 24)
    assert sorted(places.flatten().tolist()) == list(range(0, 24 * 128, 16))
    assert (places // 128 == torch.arange(24).unsqueeze(1)).all()
    for chunk in range(8):
        for first in range(0, 24, 8):
            assert len(set((places[first : first + 8, chunk] % 128).tolist())) == 8


def test_reduce_sums_neighbouring_lanes(kernels, memory):
    values, out = memory.copy(integers(64)), memory.empty(64)
    kernels("groups_of_8", values, out)
    assert torch.equal(out, values.view(8, 8).sum(1).repeat_interleave(8))


def test_argmax_takes_the_first_of_the_largest_and_nan_before_numbers(kernels, memory):
    values = integers(8, 8)
    values[1, 3], values[2, 5], values[2, 6] = torch.nan, torch.nan, torch.nan
    values[3], values[4, 2], values[5] = -torch.inf, torch.inf, 1
    best, places = memory.empty(64), torch.zeros(64, dtype=torch.int32)
    kernels("argmax_of_8", memory.copy(values.flatten()), best, places)
    expected = [next(i for i in range(8) if row[i] == row.max() or row[i].isnan()) for row in values]
    expected[1:3] = [3, 5]
    assert places.view(8, 8).tolist() == [[8 * row + place] * 8 for row, place in enumerate(expected)]
    assert torch.equal(best.view(8, 8)[:, 0].nan_to_num(9), values[range(8), expected].nan_to_num(9))


# ---- ordered_key, packed, fp8, strided_view


NUMBERS = [-torch.inf, -3e38, -7.5, -1.0, -1e-3, -1e-42, -0.0, 0.0, 1e-42, 1e-3, 1.0, 7.5, 3e38, torch.inf, torch.nan]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_keys_are_in_the_order_of_the_numbers(kernels, memory, dtype):
    values = torch.tensor(NUMBERS, dtype=dtype).unique_consecutive()
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16}[dtype.itemsize]
    keys, again = torch.zeros(len(values), dtype=bits), torch.zeros_like(values)
    kernels(f"order_{str(dtype).removeprefix('torch.')}", values, keys, again, len(values))
    unsigned = [key % 2 ** (8 * dtype.itemsize) for key in keys.tolist()]
    assert unsigned == sorted(set(unsigned))
    assert torch.equal(again[:-1].view(bits), values[:-1].view(bits))
    assert again[-1].isnan()


@pytest.mark.parametrize("largest", [torch.nan, torch.inf, 9.0, -8.0])
def test_one_atomic_finds_the_first_of_the_largest(kernels, memory, largest):
    values = memory.copy(integers(200).clamp(max=-1) if largest == -8.0 else integers(200))
    values[[50, 120]] = max(largest, values.max().item()) if largest == largest else largest
    ranked, value, place = torch.zeros(1, dtype=torch.int64), memory.empty(1), torch.zeros(1, dtype=torch.int32)
    kernels("argmax_by_key", values, ranked, value, place, 200)
    assert place.item() == values.argmax().item()
    assert torch.equal(value, values[place.long()]) or (value.isnan() and values[place.long()].isnan())


@pytest.mark.parametrize("name, dtype", [("signed_bytes", torch.int8), ("unsigned_bytes", torch.uint8)])
def test_bytes_are_rounded_clamped_and_multiplied(kernels, memory, name, dtype):
    a, b = memory.copy(50 * torch.randn(32, 8)), memory.copy(50 * torch.randn(32, 8))
    a[0, :5] = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.25, 0.75])  # Twice that lies halfway.
    out, sums = torch.zeros(32, 8, dtype=dtype), torch.zeros(32, dtype=torch.int32)
    kernels(name, a, b, out, sums)
    info = torch.iinfo(dtype)
    left, right = ((2 * x).round().clamp(info.min, info.max).nan_to_num(0) for x in (a, b))
    assert torch.equal(out.float(), left)
    assert torch.equal(sums.float(), 7 + (left * right).sum(1))


def test_every_code_of_8_bits_is_decoded(kernels, memory):
    results = memory.empty(256), memory.empty(256)
    kernels("decoded", *results)
    codes = torch.arange(256, dtype=torch.uint8)
    for values, dtype in zip(results, (torch.float8_e4m3fn, torch.float8_e5m2), strict=True):
        torch.testing.assert_close(values, codes.view(dtype).float(), rtol=0, atol=0, equal_nan=True)
        assert torch.equal(values.signbit(), codes.view(dtype).float().signbit() & ~values.isnan())


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("sizes", [(), (7,), (3, 5), (2, 3, 4), (2, 3, 2, 3), (2, 3, 2, 3, 4)], ids=str)
def test_a_view_goes_over_up_to_five_dimensions(kernels, memory, sizes, bits):
    order = list(reversed(range(len(sizes))))
    storage = memory.copy(integers(*(sizes[d] for d in order), 2))
    values = storage[..., 0].permute(order)
    out = memory.empty(*sizes)
    numbers = [torch.tensor(list(reversed(x)) or [0]) for x in (sizes, values.stride(), out.stride())]
    kernels(f"view_of_{bits}_bits", storage, out, *numbers, len(sizes), max(1, values.numel()))
    assert torch.equal(out, values)


@pytest.mark.parametrize("rows, n", [(1, 1), (7, 33), (50, 100)])
@pytest.mark.parametrize("group", ("lanes", "part", "block", "cluster"))
def test_groups_find_the_largest_its_place_and_the_product(kernels, memory, group, rows, n):
    values = memory.copy(1 - 2 * torch.randint(2, (rows, n)).float())
    largest, products, firsts = (memory.empty(rows) for _ in range(3))
    places = torch.zeros(rows, dtype=torch.int64)
    kernels(f"reduced_by_{group}", values, largest, products, firsts, places, rows, n, seed=n)
    assert torch.equal(largest, values.amax(1))
    assert torch.equal(firsts, values.amax(1))
    assert torch.equal(products, values.prod(1))
    assert places.tolist() == [row.tolist().index(row.max()) for row in values]


@pytest.mark.parametrize("rows, n", [(1, 1), (7, 33), (50, 100)])
@pytest.mark.parametrize("group", ("lanes", "part", "block", "cluster"))
@pytest.mark.parametrize("seed", SEEDS)
def test_groups_take_each_row_once_and_sum_it(kernels, memory, group, rows, n, seed):
    values, sums, taken = memory.copy(integers(rows, n)), memory.empty(rows), torch.zeros(rows, dtype=torch.int32)
    kernels(f"rows_by_{group}", values, sums, taken, rows, n, seed=seed)
    assert torch.equal(sums, values.sum(1))
    assert (taken == 1).all()


# A row holds at most 3 * 8 groups of 4 in the first, 2 * 64 elements in the second.
@pytest.mark.parametrize("rows, n", [(1, 4), (11, 92), (8, 96)])
@pytest.mark.parametrize("kind", ("held_by_lanes", "held_by_block", "read_by_block"))
def test_row_goes_over_what_it_holds(kernels, memory, kind, rows, n):
    values, other = (memory.copy(integers(rows, n)) for _ in "ab")
    total, doubled = memory.empty(rows, n), memory.empty(rows, n)
    kernels(kind, values, other, total, doubled, rows, n, seed=n)
    assert torch.equal(total, values + other)
    assert torch.equal(doubled, 2 * total)


@pytest.mark.parametrize("rows, n, blocks", [(1, 4, 1), (2, 60, 3), (37, 64, 2)])
@pytest.mark.parametrize("group", ("lanes", "part", "block"))
@pytest.mark.parametrize("seed", SEEDS)
def test_a_pipeline_loads_rows_and_column_sums_add_them(kernels, memory, group, rows, n, blocks, seed):
    values, out = memory.copy(integers(rows, n)), memory.empty(rows, n)
    partial, sums = memory.empty(blocks, n), memory.empty(n)
    kernels(f"columns_by_{group}", values, out, partial, sums, rows, n, blocks, seed=seed)
    assert torch.equal(out, values)
    assert torch.equal(sums, values.sum(0))


# Threads hold 2 accesses, or 4 where a block cannot hold the row otherwise; blocks have 128 threads.
@pytest.mark.parametrize(
    "accesses, capability, group, threads, blocks, held",
    [
        (1, 80, 0, 128, 1, 2),
        (16, 80, 0, 128, 1, 2),
        (17, 80, 1, 128, 1, 2),
        (64, 90, 1, 128, 1, 2),
        (65, 90, 2, 64, 1, 2),
        (256, 90, 2, 128, 1, 2),
        (257, 90, 2, 128, 1, 4),
        (512, 80, 2, 128, 1, 4),
        (513, 80, 4, 128, 1, 0),
        (513, 90, 3, 96, 2, 4),
        (8 * 512, 90, 3, 128, 8, 4),
        (8 * 512 + 1, 90, 4, 128, 1, 0),
    ],
)
def test_tile_takes_the_smallest_group_that_holds_a_row(kernels, accesses, capability, group, threads, blocks, held):
    tile = torch.zeros(4, dtype=torch.int64)
    kernels("tile_for", accesses, tile, capability=capability)
    assert tile.tolist() == [group, threads, blocks, held]


# Each group takes 4 rows or more where there are so many; 2 multiprocessors.
@pytest.mark.parametrize(
    "group, rows, threads, groups",
    [(0, 1000, 256, 32), (0, 100, 128, 16), (64, 1000, 256, 4), (64, 16, 128, 2), (256, 1000, 512, 2), (64, 1, 64, 1)],
)
def test_a_persistent_block_is_filled_with_groups(kernels, group, rows, threads, groups):
    block = torch.zeros(2, dtype=torch.int64)
    kernels("filled_block", group, rows, block, multiprocessors=2)
    assert block.tolist() == [threads, groups]


# On 10 multiprocessors, in groups of four for clusters of four: two clusters, not the five that occupancy would allow.
@pytest.mark.parametrize("rows, blocks", [(1, 4), (5, 8), (100, 8)])
def test_no_more_clusters_are_launched_than_fit(kernels, rows, blocks):
    resident = torch.zeros(1, dtype=torch.int64)
    kernels("resident_blocks", rows, resident, multiprocessors=10)
    assert resident.item() == blocks


@pytest.mark.parametrize("seed", SEEDS)
def test_mma_multiplies_what_ldmatrix_loads(kernels, memory, seed):
    a, b = memory.copy(integers(16, 16).half()), memory.copy(integers(16, 8).half())
    out, again, copy = memory.empty(16, 8), memory.empty(16, 8), memory.empty(16, 16, dtype=torch.float16)
    kernels("small_products", a, b, out, again, copy, seed=seed)
    assert torch.equal(out, a.float() @ b.float())
    assert torch.equal(again, out)
    assert torch.equal(copy, a)


@pytest.mark.parametrize("seed", ALL_SCHEDULES)
def test_wgmma_multiplies_what_tma_loads(kernels, memory, seed):
    m, n, k = 256, 64, 200
    a, b, out = memory.copy(integers(m, k).half()), memory.copy(integers(n, k).half()), memory.empty(m, n)
    kernels("tiled_product", a, b, out, m, n, k, seed=seed)
    assert torch.equal(out, a.float() @ b.float().T)


@pytest.mark.parametrize("seed", SEEDS)
def test_tma_loads_zeros_and_stores_nothing_outside_a_tensor(kernels, memory, seed):
    values = memory.copy(torch.randn(70, 72).half())
    out = memory.empty(130, 88, dtype=torch.float16)
    kernels("moved_tiles", values, out, 70, 72, 130, 88, seed=seed)
    expected = torch.zeros(130, 88).half()
    expected[3:73, 8:80] = values
    assert torch.equal(out, expected)


@pytest.mark.parametrize("seed", ALL_SCHEDULES)
def test_named_barriers_hand_buffers_over(kernels, memory, seed):
    values, out = memory.copy(integers(7, 128)), memory.empty(7, 128)
    kernels("handed_over", values, out, 7, seed=seed)
    assert torch.equal(out, values)


@pytest.mark.parametrize("steps", range(6))
def test_a_ring_advances_by_many_steps_at_once(kernels, steps):
    places = torch.zeros(4, dtype=torch.int64)
    kernels("ring_positions", places, steps)
    assert places[:2].tolist() == places[2:].tolist()


@pytest.mark.parametrize("divisor", [*range(1, 200), 641, 2**16 - 1, 2**16, 2**30 - 1, 2**30 + 1, 2**31 - 1])
def test_a_divisor_divides_every_int(kernels, divisor):
    most = 2**31 - 1
    near = [most // divisor * divisor, most // 3 // divisor * divisor, 2**16 // divisor * divisor]
    numbers = torch.tensor([0, most, *near, *(max(0, n - 1) for n in near)])
    quotients = numbers.clone()
    kernels("quotients", quotients, len(numbers), divisor)
    assert torch.equal(quotients, numbers // divisor)


@pytest.mark.parametrize("rows", [1, 16, 17, 2**31 + 3])
def test_there_is_a_group_for_each_row(kernels, rows):
    """Even for more rows than an int counts: kernels whose groups take one row each would leave the rest unwritten."""
    blocks = torch.zeros(1, dtype=torch.int64)
    kernels("blocks_for_many_rows", blocks, rows)
    assert blocks.item() == (rows + 15) // 16
