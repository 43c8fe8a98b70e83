"""linear_fp8's kernels compute what its reference does, with every kind of tile and cluster, and the same bits under
several thread schedules."""

import pytest
import torch

from tests.conftest import with_sample
from tests.stamped.conftest import stamp

from .conftest import ENTRIES, build
from .test_recipes import random

TILES = (
    *("fast_alone", "fast_ping_pong", "fast_wide", "fast_halves"),
    *("promoted_alone", "promoted_below", "promoted_beside", "promoted_quarters", "promoted_e5m2"),
    *("promoted_broad", "promoted_high", "promoted_wide"),
)
# m, n, k; multiprocessors. Some blocks process several tiles; no size is a multiple of a tile's, and k is 5, 4 or 3
# stages, so that one of four splits has none.
SIZES = ((200, 272, 528, 4), (70, 80, 512, 4), (130, 144, 272, 8))
SEEDS = (4, 10)


@pytest.fixture(scope="module")
def fp8(made_once):
    folder = made_once("emulated-linear-fp8", lambda folder: stamp(folder / "p", recipes=["linear_fp8"]))
    return build(
        folder / "p" / "src" / "demo_kernels" / "ops" / "linear_fp8", (ENTRIES / "linear_fp8_sm90.cu").read_text()
    )


def codes_and_scales(rows, k, groups, dtype=torch.float8_e4m3fn):
    """Codes up to 8 in magnitude, and scales that differ by up to 4."""
    return (2 * random(rows, k)).clamp(-8, 8).to(dtype), torch.rand(groups) + 0.25


def problem(m, n, k, promotes, dtype):
    """The operands, their scales and a bias in float32, and the pre-activation in float64."""
    groups = -(-k // 128)
    x, x_scales = codes_and_scales(m, k, (groups, m) if promotes else (1, m), dtype)
    weight, scales = codes_and_scales(n, k, (-(-n // 128), groups) if promotes else (n, 1))
    bias = random(n).bfloat16().float()
    columns = scales.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k] if promotes else scales
    rows = x_scales.T.repeat_interleave(128, 1)[:, :k] if promotes else x_scales.T
    z = (x.double() * rows) @ (weight.double() * columns).T / k + bias.double()
    return (x, x_scales / k, weight, scales, bias), z


@pytest.mark.parametrize("m, n, k, multiprocessors", SIZES)
@pytest.mark.parametrize("tile", with_sample(TILES, {"promoted_below"}))
def test_every_kind_of_tile(fp8, memory, tile, m, n, k, multiprocessors):
    dtype = torch.float8_e5m2 if tile.endswith("e5m2") else torch.float8_e4m3fn
    (*operands, bias), z = problem(m, n, k, tile.startswith("promoted"), dtype)
    arguments = [memory.copy(tensor) for tensor in (*operands, bias.half())]
    first = None
    for seed in SEEDS:
        y = memory.empty(m, n, dtype=torch.float16)
        fp8(tile, *arguments, None, y, m, n, k, True, seed=seed, multiprocessors=multiprocessors)
        torch.testing.assert_close(y.double(), torch.nn.functional.silu(z), rtol=2**-10, atol=1e-3)
        assert first is None or torch.equal(y, first)
        first = y


@pytest.mark.parametrize(
    "tile", with_sample(("fast_wide", "promoted_broad", "promoted_high", "promoted_wide"), {"promoted_high"})
)
@pytest.mark.parametrize("has_bias", (False, True))
def test_results_without_an_activation(fp8, memory, tile, has_bias):
    """Large tiles are rounded while the next one's first products are computed: a block has several here."""
    m, n, k, _ = SIZES[0]
    (*operands, bias), z = problem(m, 2 * n, k, tile.startswith("promoted"), torch.float8_e4m3fn)
    arguments = [memory.copy(tensor) for tensor in operands]
    biases = memory.copy(bias.half()) if has_bias else None
    results = [memory.empty(m, 2 * n, dtype=torch.float16) for _ in SEEDS]
    for y, seed in zip(results, SEEDS, strict=True):
        fp8(tile, *arguments, biases, None, y, m, 2 * n, k, False, seed=seed, multiprocessors=2)
    exact = z if has_bias else z - bias.double()
    torch.testing.assert_close(results[0].double(), exact, rtol=2**-10, atol=1e-3)
    assert torch.equal(*results)


@pytest.mark.parametrize("tile", with_sample(("fast_alone", "promoted_below", "promoted_quarters"), {"promoted_below"}))
def test_results_as_codes(fp8, memory, tile):
    m, n, k, multiprocessors = SIZES[0]
    (*operands, bias), z = problem(m, n, k, tile.startswith("promoted"), torch.float8_e4m3fn)
    scale = torch.tensor(2.0**-8)  # What is beyond 1.75 becomes 448 of it.
    arguments = [memory.copy(tensor) for tensor in (*operands, bias.bfloat16(), scale)]
    codes = memory.empty(m, n, dtype=torch.float8_e4m3fn)
    fp8(tile, *arguments, codes, m, n, k, True, seed=SEEDS[0], multiprocessors=multiprocessors)
    exact = torch.nn.functional.silu(z).clamp(max=1.75)
    assert (codes.double() == 448).any()
    torch.testing.assert_close(codes.double() * scale.double(), exact, rtol=2**-4, atol=1e-3)
