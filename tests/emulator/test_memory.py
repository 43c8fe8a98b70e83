"""Accesses beside a tensor or a shared variable, and reads of what nobody has written: named with tensor and index."""

import re

import pytest
import torch

from kernelgen.emulator.library import EmulatedLibrary, EmulatorError

from .conftest import ENTRIES, build

SEEDS = range(24)  # Twice ALL_SCHEDULES.


@pytest.fixture(scope="session")
def kernels(ops) -> EmulatedLibrary:
    return build(ops / "elementwise", (ENTRIES / "memory.cu").read_text())


def outcomes(kernels: EmulatedLibrary, name: str, fault: int) -> set[str]:
    """Of all schedules: the emulator's reports, 'right' and 'wrong'."""
    values, expected = CASES[name]
    results = set()
    for seed in SEEDS:
        out = torch.zeros_like(expected)
        try:
            kernels(f"run_{name}", values.clone(), out, fault, seed=seed)
            results.add("right" if torch.equal(out, expected) else "wrong")
        except EmulatorError as error:
            results.add(str(error))
    return results


ROWS = torch.arange(24.0).view(3, 8)  # Of which a view has the first five columns.
NUMBERS = torch.arange(64.0)
CASES = {
    "doubled": (ROWS, 2 * ROWS[:, :5]),
    "through_a_temporary": (ROWS, 2 * ROWS[:, :5]),
    "shared_memory": (NUMBERS, NUMBERS.view(-1, 2).flip(1).flatten()),
    "half_words": (NUMBERS, NUMBERS.view(-1, 2).flip(1).flatten()),
}


@pytest.mark.parametrize("name", CASES)
def test_a_right_kernel_raises_no_alarm(kernels, name):
    assert outcomes(kernels, name, 0) == {"right"}


@pytest.mark.parametrize("fault", (4, 9), ids=("reads_a_gap", "reads_variables_of_the_device"))
def test_more_that_is_right(kernels, fault):
    assert outcomes(kernels, "doubled", fault) == {"right"}


def test_a_word_of_which_half_is_written_may_be_read(kernels):
    assert outcomes(kernels, "half_words", 2) == {"wrong"}  # It computes something else, without a report.


OUTPUT = r"output \(float32 \[3, 5\]\)"
FAULTS = [
    ("doubled", 1, rf"writes 4 bytes past the end of {OUTPUT}: element 15"),
    ("doubled", 2, rf"writes 4 bytes at 4 bytes before the start of {OUTPUT}"),
    ("doubled", 3, r"reads 4 bytes at 12 bytes past the end of x \(float32 \[3, 5\]\)"),
    ("doubled", 5, r"writes 4 bytes at the gap between elements, 20 bytes from the start of x \(float32 \[3, 5\]\)"),
    ("doubled", 6, r"reads 16 bytes at 12 bytes past the end of x|reads 4 bytes at 12 bytes past the end of x"),
    ("doubled", 7, rf"writes 16 bytes past the end of {OUTPUT}: element 15"),
    ("doubled", 8, rf"writes 20 bytes past the end of {OUTPUT}: element 15"),
    ("doubled", 10, rf"cudaMemset of 64 bytes goes 4 bytes past the end of {OUTPUT}"),
    ("through_a_temporary", 1, r"4 bytes that nobody has written: element \[7\] of temporary \(float32 \[20\]\)"),
    ("through_a_temporary", 2, r"that nobody has written: element \[12\] of temporary"),
    ("through_a_temporary", 3, r"that nobody has written: element \[16\] of temporary"),
    (
        "shared_memory",
        1,
        r"thread \(21, 0, 0\) .* that nobody has written: byte 80 of shared variables numbers, others",
    ),
    ("shared_memory", 2, r"writes 4 bytes past the end of shared variable numbers, others \(512 bytes\)"),
    ("shared_memory", 3, r"writes 4 bytes at 4 bytes past the end of dynamic shared memory \(256 bytes\)"),
    ("shared_memory", 4, r"writes 4 bytes at shared memory at 0x\w+, which belongs to no variable"),
    ("shared_memory", 5, r"reads 4 bytes past the end of dynamic shared memory \(256 bytes\)"),
    ("half_words", 1, r"reads 2 bytes that nobody has written: element \d+ of shared variable numbers"),
]


def test_no_store_leaves_the_tensors_once_a_fault_is_known(kernels):
    """What nobody has written is read, and is the index of a store, before the next barrier ends the kernel."""
    out = torch.zeros(128)
    with pytest.raises(EmulatorError, match="reads 2 bytes that nobody has written: element 64 of shared variable"):
        kernels("run_half_words", NUMBERS.clone(), out, 3)
    assert not out[64:].any()


@pytest.mark.parametrize("name, fault, report", FAULTS, ids=[f"{name}-{fault}" for name, fault, _ in FAULTS])
def test_every_schedule_names_a_fault(kernels, name, fault, report):
    for outcome in outcomes(kernels, name, fault):
        assert re.search(report, outcome), outcome
