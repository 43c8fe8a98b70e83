"""Races, which the emulated GPU names whichever order the run took: right kernels pass under every schedule, and with
one fault added every schedule names it."""

import pytest
import torch

from kernelgen.emulator.library import EmulatedLibrary, EmulatorError

from . import standalone
from .conftest import ENTRIES, build

SEEDS = range(24)  # Twice ALL_SCHEDULES.
NUMBERS = torch.arange(128, dtype=torch.int32) + 1000


@pytest.fixture(scope="session")
def kernels(ops) -> EmulatedLibrary:
    return build(ops / "elementwise", (ENTRIES / "races.cu").read_text())


def padded(values: torch.Tensor) -> torch.Tensor:
    return torch.cat((values.int(), torch.zeros(128 - len(values), dtype=torch.int32)))


def outcomes(kernels: EmulatedLibrary, name: str, fault: int, expected: torch.Tensor) -> set[str]:
    """Of all schedules: the emulator's reports, 'right' and 'wrong'."""
    results = set()
    for seed in SEEDS:
        out = torch.zeros(128, dtype=torch.int32)
        try:
            kernels(f"run_{name}", NUMBERS.clone(), out, fault, seed=seed)
            results.add("right" if torch.equal(out, expected) else "wrong")
        except EmulatorError as error:
            results.add(str(error))
    return results


# By kernel: what it computes, and the numbers of the variants that are right.
KERNELS = {
    "handed_to_the_next_warp": (NUMBERS, [0]),
    "tree_of_sums": (padded(NUMBERS.sum().view(1)), [0]),
    "named_barriers": (NUMBERS.view(-1, 2).flip(1).flatten(), [0]),
    "flag_in_shared_memory": (padded(NUMBERS[:32]), [0]),
    "same_value": (torch.full((128,), 8, dtype=torch.int32), [0]),
    "early_exit": (NUMBERS, [0]),
    "diverging_barriers": (NUMBERS[torch.arange(128) ^ 32], [0]),
    "last_block_adds": (NUMBERS, [0]),
    "spin_lock": (padded(torch.full((32,), 16)), [0]),
    "histogram": (4 * torch.bincount(NUMBERS % 8, minlength=128).int(), [0]),
    "blocks_write_the_same_place": (NUMBERS, [0]),
    "shared_by_a_cluster": (NUMBERS, [0]),
    "copied_by_others": (NUMBERS, [0, 3]),
    "overwritten_while_copied": (NUMBERS, [0]),
    "loaded_by_the_copy_engine": (NUMBERS, [0, 6]),
    "stored_by_the_copy_engine": (NUMBERS, [0, 4]),
    "bytes_that_nobody_waits_for": (NUMBERS, [0]),
}


@pytest.mark.parametrize("name, variant", [(name, i) for name, (_, right) in KERNELS.items() for i in right])
def test_a_right_kernel_raises_no_alarm(kernels, name, variant):
    assert outcomes(kernels, name, variant, KERNELS[name][0]) == {"right"}


NO_BARRIER, NO_WARP_BARRIER = "no barrier is between", "neither __syncwarp nor another barrier is between"
UNWRITTEN, BETWEEN_BLOCKS = "uninitialised memory", "nothing orders these blocks"
TOO_EARLY = "nothing says that the block has started"

# Each outcome of a fault contains one of its reports. Where a read may come before the first write, nobody has written.
FAULTS = [
    ("handed_to_the_next_warp", 1, (NO_BARRIER, UNWRITTEN)),
    ("handed_to_the_next_warp", 2, (NO_WARP_BARRIER, UNWRITTEN)),
    ("tree_of_sums", 1, (NO_WARP_BARRIER,)),
    ("named_barriers", 1, (NO_BARRIER, UNWRITTEN, "deadlock")),
    ("named_barriers", 2, (NO_BARRIER, UNWRITTEN, "deadlock")),
    ("flag_in_shared_memory", 1, (NO_BARRIER,)),
    ("flag_in_shared_memory", 2, (NO_BARRIER,)),
    ("flag_in_shared_memory", 3, ("shared variable plain_flag",)),
    ("same_value", 1, (NO_BARRIER, NO_WARP_BARRIER)),
    ("same_value", 2, (NO_BARRIER, NO_WARP_BARRIER)),
    ("early_exit", 1, (NO_BARRIER, NO_WARP_BARRIER, UNWRITTEN)),
    ("diverging_barriers", 1, ("at different __syncthreads",)),
    ("diverging_barriers", 2, ("deadlock",)),
    ("last_block_adds", 1, (BETWEEN_BLOCKS,)),
    ("last_block_adds", 2, (BETWEEN_BLOCKS,)),
    ("last_block_adds", 3, (BETWEEN_BLOCKS, NO_BARRIER, NO_WARP_BARRIER)),
    ("last_block_adds", 4, (BETWEEN_BLOCKS,)),
    ("spin_lock", 1, (BETWEEN_BLOCKS, NO_BARRIER)),
    ("spin_lock", 2, (BETWEEN_BLOCKS, NO_BARRIER)),
    ("histogram", 1, (BETWEEN_BLOCKS, NO_BARRIER, NO_WARP_BARRIER)),
    ("histogram", 2, (BETWEEN_BLOCKS, NO_BARRIER, NO_WARP_BARRIER)),
    ("blocks_write_the_same_place", 1, (BETWEEN_BLOCKS,)),
    ("shared_by_a_cluster", 1, (TOO_EARLY,)),
    ("shared_by_a_cluster", 2, (TOO_EARLY,)),
    ("shared_by_a_cluster", 3, ("nothing keeps that block from ending before", "which has ended, is used")),
    ("copied_by_others", 1, ("the cp.async has not been waited for",)),
    ("copied_by_others", 2, ("the cp.async has not been waited for", UNWRITTEN)),
    ("overwritten_while_copied", 1, ("the cp.async has not been waited for",)),
    ("overwritten_while_copied", 2, ("the cp.async has not been waited for",)),
    ("loaded_by_the_copy_engine", 1, ("the mbarrier that counts the copy's bytes has not been waited for", UNWRITTEN)),
    ("loaded_by_the_copy_engine", 2, ("a race on", "deadlock")),
    ("loaded_by_the_copy_engine", 3, ("there is no mbarrier", "a race on")),
    ("loaded_by_the_copy_engine", 4, ("a race on",)),
    ("loaded_by_the_copy_engine", 5, ("the mbarrier that counts the copy's bytes has not been waited for", UNWRITTEN)),
    ("stored_by_the_copy_engine", 1, ("the bulk store has not been waited for",)),
    ("stored_by_the_copy_engine", 2, ("a missing fence.proxy.async",)),
    ("stored_by_the_copy_engine", 3, ("a race on", UNWRITTEN, "a missing fence.proxy.async")),
    ("bytes_that_nobody_waits_for", 1, ("still waits for 16 bytes",)),
]


@pytest.mark.parametrize("name, fault, reports", FAULTS, ids=[f"{name}-{fault}" for name, fault, _ in FAULTS])
def test_every_schedule_names_a_fault(kernels, name, fault, reports):
    for outcome in outcomes(kernels, name, fault, KERNELS[name][0]):
        assert any(report in outcome for report in reports), outcome


def test_a_race_is_reported_with_both_places_and_threads(kernels):
    lines = (ENTRIES / "races.cu").read_text().splitlines()
    (write,) = [i for i, line in enumerate(lines, 1) if line == "  sums[threadIdx.x] = in[threadIdx.x];"]
    add = next(i for i, line in enumerate(lines, 1) if "sums[threadIdx.x] += sums[threadIdx.x + half]" in line)
    assert write < add
    with pytest.raises(
        EmulatorError, match=r"a race on element \d+ of shared variable sums: thread \(\d+, 0, 0\)"
    ) as error:
        kernels("run_tree_of_sums", NUMBERS, torch.zeros(128, dtype=torch.int32), 1)
    assert str(error.value).count(f"entry.cu:{add}\n") >= 2
    assert "\n  and thread (" in str(error.value)


# ---- Orders that few kernels use: kernels/edges.cu ----------------------------------------------------------------


@pytest.fixture(scope="module")
def edges() -> EmulatedLibrary:
    return standalone.build("edges")


COUNTED = "the mbarrier that counts the cp.async has not been waited for"
NO_WAIT = ("the cp.async has not been waited for", COUNTED, UNWRITTEN)
# What remains of the numbers, and the reports of each fault.
EDGES = {
    "grid_barrier": (torch.arange(256).roll(-64), [(BETWEEN_BLOCKS,)]),
    "grid_barrier_in_two_parts": (torch.arange(256).roll(-64), [(BETWEEN_BLOCKS,)]),
    "counted_blocks": (torch.arange(256).roll(-64), [(BETWEEN_BLOCKS,)]),
    "counted_copies": (torch.cat((31 - torch.arange(32), torch.arange(32, 256))), [NO_WAIT, NO_WAIT]),
    "added_copies": (torch.cat((31 - torch.arange(32), torch.arange(32, 256))), [NO_WAIT, (COUNTED,)]),
}


@pytest.mark.parametrize(
    "name, fault, reports",
    [(name, fault, reports) for name, (_, faults) in EDGES.items() for fault, reports in enumerate([(), *faults])],
)
def test_an_order_that_few_kernels_use(edges, name, fault, reports):
    expected, _ = EDGES[name]
    for seed in SEEDS:
        numbers, others = torch.arange(256, dtype=torch.int32), torch.zeros(260, dtype=torch.int32)
        if "copies" in name:
            others[:32] = torch.arange(32)
        if not fault:
            edges(f"run_{name}", numbers, others, fault, seed=seed)
            assert torch.equal(numbers, expected.int())
            continue
        with pytest.raises(EmulatorError) as error:
            edges(f"run_{name}", numbers, others, fault, seed=seed)
        assert any(report in str(error.value) for report in reports), error.value


@pytest.mark.parametrize("early", [False, True])
def test_a_ring_of_bulk_copies(early):
    """Each of its stages is released once all consumers have read it; released before, it races with the next copy."""
    values = torch.randn(5, 256, generator=torch.Generator().manual_seed(1))
    kernels = standalone.build("ring")
    for seed in SEEDS:
        sums = torch.zeros(256)
        if early:
            with pytest.raises(EmulatorError, match=r"a race on element .* copy engine"):
                kernels("sum_by_ring", values, sums, 5, True, seed=seed)
        else:
            kernels("sum_by_ring", values, sums, 5, False, seed=seed)
            torch.testing.assert_close(sums, values.sum(0))
