"""What the emulated GPU notices: kernels that are right pass in every order, and lacking one thing, they do not."""

from pathlib import Path

import pytest
import torch

from kernelgen.emulator.library import EmulatorError, Library

from .conftest import ENTRIES, EVERY_PAIR, build


@pytest.fixture(scope="session")
def kernels(ops: Path) -> Library:
    return build(ops / "elementwise", (ENTRIES / "faults.cu").read_text())


def outcomes(library: Library, name: str, given: torch.Tensor, fault: int, expected: torch.Tensor) -> list[str]:
    """For each order, what is told, or 'wrong', or 'right'."""
    results = []
    for seed in EVERY_PAIR:
        out = torch.zeros_like(expected)
        try:
            library(f"run_{name}", given, out, fault, seed=seed)
            results.append("right" if torch.equal(out, expected) else "wrong")
        except EmulatorError as error:
            results.append(str(error))
    return results


NUMBERS = torch.arange(128, dtype=torch.int32) + 1000

WRONG = [
    "without_barrier",
    "without_second_barrier",
    "without_warp_barrier",
    "without_waiting_for_a_copy",
    "without_atomics",
    "before_the_others_run",
]


@pytest.mark.parametrize("name", WRONG)
def test_an_order_that_gives_something_else_is_found(kernels, name):
    assert outcomes(kernels, name, NUMBERS, 0, NUMBERS) == ["right"] * len(EVERY_PAIR)
    assert "wrong" in outcomes(kernels, name, NUMBERS, 1, NUMBERS)


TOLD = {
    "with_a_barrier_for_too_many": "barrier 1, where 64 of 128 threads are",
    "with_too_little_shared_memory": "wrote past the end of its dynamic shared memory",
    "with_lanes_that_part": "lanes of a warp part",
    "with_too_many_threads": "256 threads in a block of a kernel that is bound to 128",
    "with_a_barrier_that_was_never_made": "there is no mbarrier",
    "with_an_arrival_too_many": "more arrivals at the mbarrier",
    "with_a_wild_pointer": "an access to 0x1",
    "with_a_vector_out_of_line": "an access that is not aligned",
    "with_too_deep_a_stack": "an access to 0x",
    "with_a_wait_by_asking": "threads only spin",
    "with_an_unknown_instruction": "does not know the instruction 'brkpt'",
}


@pytest.mark.parametrize("name", TOLD)
def test_what_cannot_be_is_told(kernels, name):
    assert outcomes(kernels, name, NUMBERS, 0, NUMBERS) == ["right"] * len(EVERY_PAIR)
    assert all(TOLD[name] in outcome for outcome in outcomes(kernels, name, NUMBERS, 1, NUMBERS))


def test_a_report_says_where_threads_are(kernels):
    (line,) = [
        number
        for number, text in enumerate((ENTRIES / "faults.cu").read_text().splitlines(), 1)
        if "named_barrier_sync(1, faulty" in text
    ]
    with pytest.raises(EmulatorError, match=r"block 0, warp 0, lanes ffffffff: barrier 1") as error:
        kernels("run_with_a_barrier_for_too_many", NUMBERS, NUMBERS.clone(), 1)
    assert f"entry.cu:{line}\n" in str(error.value)


# The numbers are those of TileFault.
@pytest.mark.parametrize(
    "fault, what",
    [
        (1, "ends while copies to its shared memory are under way"),
        (2, "lacks 0 of 1 arrivals and 16 bytes"),
        (3, "lacks 0 of 1 arrivals and -16 bytes"),
        (4, "wrong"),
        (5, "wrong"),
        (6, "without having waited for its bulk stores"),
        (7, "is no multiple of 128"),
        (8, "was made without a fence"),
    ],
)
def test_faults_in_copies_of_tiles(kernels, fault, what):
    tile = torch.randn(64, 64).half()
    assert outcomes(kernels, "copy_tile", tile, 0, tile) == ["right"] * len(EVERY_PAIR)
    assert any(what in outcome for outcome in outcomes(kernels, "copy_tile", tile, fault, tile))


# The numbers are those of ProductFault.
@pytest.mark.parametrize(
    "fault, what", [(1, "without a wgmma.fence"), (2, "products"), (3, "products"), (4, "wrong"), (5, "1 of 4|3 of 4")]
)
def test_faults_in_products(kernels, fault, what):
    tile = torch.randint(-8, 8, (64, 64)).half()
    sums = tile.float().sum(1)
    assert outcomes(kernels, "multiply_by_ones", tile, 0, sums) == ["right"] * len(EVERY_PAIR)
    results = outcomes(kernels, "multiply_by_ones", tile, fault, sums)
    assert any(part in outcome for outcome in results for part in what.split("|")), results
