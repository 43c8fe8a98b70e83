"""linear_activation's sm90 forward computes what its reference does, with every kind of tile and cluster, and the same
bits under several thread schedules."""

import math

import pytest
import torch

from .conftest import ENTRIES, SEEDS, build, half
from .test_recipes import close, random

TILES = (
    "one_consumer",
    "beside",
    "four_beside",
    "four_below",
    "below_and_beside",
    "wide",
    "ping_pong",
    "ping_pong_beside",
    "narrow",
    "ping_pong_narrow",
    "halves",
    "quarters",
    "swapped",
    "swapped_beside",
    "swapped_alone",
    "swapped_one_consumer",
    "swapped_ping_pong",
    "swapped_below_and_beside",
    "swapped_halves",
    "swapped_quarters",
    "swapped_uneven_quarters",
    "swapped_eighths",
    "swapped_halves_below",
    "swapped_halves_below_and_beside",
    "quarters_beside",
    "one_strip_halves",
    "halves_below",
)
# m, n, k; multiprocessors. At most two clusters of four fit, or one of eight, so that some process several tiles. No
# size is a multiple of a tile's, and in the second case some blocks of a cluster lie outside the result. In the third
# case, rows of the result are not aligned, and the last column is half of a pair.
SIZES = ((330, 392, 200, 8), (70, 72, 136, 4), (140, 331, 136, 4))
# Clusters whose blocks share tiles of 64 by 64 process several of fewer rows, too, and take long over each.
SHARING_SMALL_TILES = ("quarters", "swapped_quarters", "swapped_uneven_quarters", "swapped_eighths", "quarters_beside")
FEWER_ROWS = 140


@pytest.fixture(scope="module")
def library(ops):
    return build(ops / "linear_activation", (ENTRIES / "linear_activation_sm90.cu").read_text())


@pytest.mark.parametrize("m, n, k, multiprocessors", SIZES)
@pytest.mark.parametrize("tile", TILES)
def test_every_kind_of_tile(library, reference, memory, tile, m, n, k, multiprocessors):
    # All of them for every kind of tile, half for each size.
    seeds = half(SEEDS, SIZES.index((m, n, k, multiprocessors)))
    if tile in SHARING_SMALL_TILES:
        m = min(m, FEWER_ROWS)
    x, bias = (memory.copy(random(*size, dtype=torch.float16)) for size in ((m, k), (n,)))
    weight = memory.copy((random(n, k) / math.sqrt(k)).to(torch.float16))
    exact_inputs = [t.double() for t in (x, weight, bias)]
    first = None
    for seed in seeds:
        y, z = (memory.empty(m, n, dtype=torch.float16) for _ in "yz")
        library(tile, x, weight, bias, y, z, m, n, k, seed=seed, multiprocessors=multiprocessors)
        close(z, reference("linear_activation").linear_activation(*exact_inputs, "none"))
        close(y, reference("linear_activation").linear_activation(*exact_inputs, "gelu"))
        assert first is None or torch.equal(y, first)
        first = y
