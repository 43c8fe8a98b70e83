"""The order of tiles where sequences differ in length: every tile once, sequence after sequence."""

import itertools

import pytest
import torch

from .conftest import ENTRIES, SEEDS, build

ROWS = 64  # Of a tile.


@pytest.fixture(scope="module")
def library(ops):
    return build(ops / "flash_attention", (ENTRIES / "attention_ragged_sm90.cu").read_text())


def expected_order(lengths, keys, heads, group, section_keys):
    """Number of the sequence, head, tile; rows of no sequence come first."""
    for number in reversed(range(len(lengths))):
        groups = heads // group
        sections = -(-groups // min(max(section_keys // max(keys[number], 1), 1), groups))
        section = -(-groups // sections) * group
        for first in range(0, heads, section):
            for tile in reversed(range(-(-lengths[number] // ROWS))):
                yield from ((number, head, tile) for head in range(first, min(first + section, heads)))


def cumulated(memory, lengths):
    return memory.copy(torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32))


# Lengths; rows that belong to no sequence; heads, and how many share keys; keys of a section.
WALKS = [
    ([], 70, 2, 1, 100),
    ([64], 0, 1, 1, 1),
    ([300, 0, 65, 1, 129], 3, 6, 2, 250),
    ([0, 0, 500, 64], 0, 10, 1, 1000),
    ([i * 37 % 200 for i in range(31)], 0, 3, 3, 100),
    ([i * 37 % 200 for i in range(32)], 9, 4, 1, 300),
    ([0] * 40 + [130] + [0] * 70 + [1], 0, 2, 1, 100),
]


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("lengths, spare, heads, group, section_keys", WALKS)
def test_every_tile_comes_once(library, memory, lengths, spare, heads, group, section_keys, draws):
    keys = [2 * length + 1 for length in lengths]
    order = list(expected_order([*lengths, spare], [*keys, 0], heads, group, section_keys))
    slots = (sum(lengths) + spare) // ROWS + len(lengths) + 1
    assert len(order) <= slots * heads
    for seed, blocks in itertools.product(SEEDS, (1, 5)):
        tiles = memory.copy(torch.full((slots * heads, 3), -1, dtype=torch.int32))
        counter = memory.copy(torch.zeros(1, dtype=torch.int32)) if draws else None
        sizes = len(lengths), sum(lengths) + spare, heads, group, section_keys, blocks
        library("ragged_tiles", cumulated(memory, lengths), cumulated(memory, keys), *sizes, counter, tiles, seed=seed)
        assert [tuple(tile) for tile in tiles.tolist()[: len(order)]] == order
        assert (tiles[len(order) :] == -1).all()


@pytest.mark.parametrize("lengths, spare", [walk[:2] for walk in WALKS])
def test_every_tile_has_a_place_of_the_list(library, memory, lengths, spare):
    counts = [-(-length // ROWS) for length in (*lengths, spare)]
    places = [(number, tile) for number, count in enumerate(counts) for tile in range(count)]
    size, tiles = memory.empty(1, dtype=torch.int32), memory.empty(len(places), 2, dtype=torch.int32)
    library("packed_tiles", cumulated(memory, lengths), len(lengths), sum(lengths) + spare, size, tiles)
    assert size.item() == len(places)
    assert [tuple(tile) for tile in tiles.tolist()] == places


def test_lengths_that_are_none_end(library, memory):
    """Ends that do not ascend give some tiles, of sequences that there are, and no more than there are slots."""
    starts = memory.copy(torch.tensor([0, 600, 0, 600, 0, 600], dtype=torch.int32))
    heads, slots = 2, 600 // ROWS + 6
    size, places = memory.empty(1, dtype=torch.int32), memory.empty(slots, 2, dtype=torch.int32)
    library("packed_tiles", starts, 5, 600, size, places)
    assert all(number in range(6) and tile in range(-(-600 // ROWS)) for number, tile in places.tolist())
    tiles = memory.copy(torch.full((slots * heads, 3), -1, dtype=torch.int32))
    library("ragged_tiles", starts, starts, 5, 600, heads, 1, 100, 3, None, tiles)
    for number, head, tile in tiles.tolist():
        assert number in range(6)
        assert head in range(heads)
        assert tile in range(-(-600 // ROWS))
