"""Faults that the emulated GPU detects: correct kernels pass under every schedule, and fail with one fault added."""

import os
import re
import shutil
from pathlib import Path

import pytest
import torch

from kernelgen.emulator import compiler
from kernelgen.emulator.compile import compile_kernel
from kernelgen.emulator.library import EmulatedLibrary, EmulatorError
from kernelgen.emulator.link import link
from kernelgen.emulator.runtime import device_objects

from . import standalone
from .conftest import ALL_SCHEDULES, ENTRIES, build


@pytest.fixture(scope="session")
def kernels(ops: Path) -> EmulatedLibrary:
    return build(ops / "elementwise", (ENTRIES / "faults.cu").read_text())


def outcomes(
    library: EmulatedLibrary, name: str, values: torch.Tensor, fault: int, expected: torch.Tensor
) -> list[str]:
    """For each schedule the emulator's report, or 'wrong' or 'right' for the result."""
    results = []
    for seed in ALL_SCHEDULES:
        out = torch.zeros_like(expected)
        try:
            library(f"run_{name}", values, out, fault, seed=seed)
            results.append("right" if torch.equal(out, expected) else "wrong")
        except EmulatorError as error:
            results.append(str(error))
    return results


NUMBERS = torch.arange(128, dtype=torch.int32) + 1000

RACES = [
    "without_barrier",
    "without_second_barrier",
    "without_warp_barrier",
    "without_waiting_for_a_copy",
    "without_atomics",
    "without_cluster_barrier",
]


@pytest.mark.parametrize("name", RACES)
def test_every_schedule_names_a_race(kernels, name):
    assert outcomes(kernels, name, NUMBERS, 0, NUMBERS) == ["right"] * len(ALL_SCHEDULES)
    for outcome in outcomes(kernels, name, NUMBERS, 1, NUMBERS):
        assert re.search("a race on|nobody has written|nothing says that the block has started", outcome), outcome


REPORTS = {
    "with_a_barrier_for_too_many": "barrier 1, where 64 of 128 threads are",
    "with_too_little_shared_memory": "past the end of dynamic shared memory (512 bytes)",
    "with_diverging_lanes": "lanes of a warp diverge",
    "with_too_many_threads": "256 threads in a block of a kernel that is bound to 128",
    "with_an_uninitialised_barrier": "there is no mbarrier",
    "with_too_many_arrivals": "more arrivals at the mbarrier",
    "with_a_wild_pointer": "an access to 0x1",
    "with_an_unaligned_vector": "an access that is not aligned",
    "with_a_stack_overflow": "an access to 0x",
    "with_a_wait_that_polls": "threads only spin",
    "with_an_unknown_instruction": "does not know the instruction 'brkpt'",
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_fault_is_reported(kernels, name):
    assert outcomes(kernels, name, NUMBERS, 0, NUMBERS) == ["right"] * len(ALL_SCHEDULES)
    assert all(REPORTS[name] in outcome for outcome in outcomes(kernels, name, NUMBERS, 1, NUMBERS))


@pytest.fixture(scope="module")
def failures() -> EmulatedLibrary:
    return standalone.build("failures")


FIRST_64 = torch.arange(64, dtype=torch.int32)


@pytest.mark.parametrize(
    "name, report",
    [
        ("asserts", r"the assertion `in\[threadIdx.x\] < limit` fails at failures.cu:9, in void .*asserts"),
        ("traps", "the kernel called __trap"),
        ("traps_in_a_function", "the kernel called __trap"),
        ("divides", "an integer division by 0"),
    ],
)
@pytest.mark.parametrize("seed", ALL_SCHEDULES)
def test_a_thread_that_stops_its_kernel_is_named(failures, name, report, seed):
    failures(f"run_{name}", FIRST_64, torch.zeros(64, dtype=torch.int32), 64, seed=seed)
    with pytest.raises(EmulatorError, match=rf"{report}.*\n  in block \(0, 0, 0\), thread \(\d+, 0, 0\):") as error:
        failures(f"run_{name}", FIRST_64, torch.zeros(64, dtype=torch.int32), 40, seed=seed)
    assert len(re.findall(r"\n    failures.cu:\d+", str(error.value))) >= 2


def test_the_lines_of_a_fault_are_looked_up_once(failures, tmp_path, monkeypatch):
    fresh = EmulatedLibrary(Path(shutil.copy(failures.path, tmp_path)))
    lookups, program = tmp_path / "lookups", tmp_path / "tools" / "addr2line"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >> {lookups}\nexec {shutil.which("addr2line")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    reports, counts = [], []
    for _ in range(2):
        with pytest.raises(EmulatorError) as error:
            fresh("run_asserts", FIRST_64, torch.zeros(64, dtype=torch.int32), 40)
        reports.append(str(error.value))
        counts.append(len(lookups.read_text().splitlines()))
    assert reports[0] == reports[1]
    assert len(re.findall(r"\n    failures.cu:\d+", reports[0])) >= 2
    assert counts == [counts[0]] * 2


@pytest.mark.parametrize("seed", ALL_SCHEDULES)
def test_a_copy_from_nowhere_ends_the_kernel_and_not_the_process(failures, seed):
    failures("run_copies_from", FIRST_64, seed=seed)
    with pytest.raises(EmulatorError, match="an access to 0x1000"):
        failures("run_copies_from", 0x1000, seed=seed)
    failures("run_copies_from", FIRST_64, seed=seed)


def test_more_dynamic_shared_memory_has_to_be_asked_for(failures):
    out = torch.zeros(64, dtype=torch.int32)
    failures("run_uses_shared_memory", out, 48 * 1024, False)
    with pytest.raises(EmulatorError, match=r"65536 bytes of dynamic .* may have 49152. Call cudaFuncSetAttribute"):
        failures("run_uses_shared_memory", out, 64 * 1024, False)
    failures("run_uses_shared_memory", out, 64 * 1024, True)
    assert torch.equal(out, FIRST_64)
    with pytest.raises(EmulatorError, match=r"cannot be launched.* 232464 bytes of shared memory"):
        failures("run_uses_shared_memory", out, 232448 + 16, True)


def test_shared_variables_and_dynamic_shared_memory_have_one_limit(failures):
    out = torch.zeros(64, dtype=torch.int32)
    failures("run_uses_both_kinds", out, 44 * 1024, False)
    with pytest.raises(EmulatorError, match=r"53248 bytes of shared memory, .* 49152 without cudaFuncSetAttribute"):
        failures("run_uses_both_kinds", out, 48 * 1024, False)
    failures("run_uses_both_kinds", out, 48 * 1024, True)
    assert torch.equal(out, FIRST_64)


def test_a_report_needs_no_c_plus_plus_library_of_the_process(tmp_path):
    # Some compilers have the C++ library as an archive only, of which the kernels' library gets a copy.
    tools = compiler.find()
    command = tmp_path / "g++"
    command.write_text(f'#!/bin/sh\nexec {tools.command} "$@" -static-libstdc++\n')
    command.chmod(0o755)
    target, library = tmp_path / "failures.o", tmp_path / "failures.so"
    compile_kernel(tools, standalone.KERNELS / "failures.cu", target, [])
    link(str(command), library, [str(target), *map(str, device_objects(tools, standalone.CACHE))])
    test_a_thread_that_stops_its_kernel_is_named(EmulatedLibrary(library), "traps", "the kernel called __trap", 0)


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
    "fault, report",
    [
        (1, "the mbarrier that counts the copy's bytes has not been waited for"),
        (2, "lacks 0 of 1 arrivals and 16 bytes"),
        (3, "lacks 0 of 1 arrivals and -16 bytes"),
        (4, "a missing fence.proxy.async"),
        (5, "no barrier is between"),
        (6, "without having waited for its bulk stores"),
        (7, "is no multiple of 128"),
        (8, "was initialised without a fence"),
    ],
)
def test_faults_in_copies_of_tiles(kernels, fault, report):
    tile = torch.randn(64, 64).half()
    assert outcomes(kernels, "copy_tile", tile, 0, tile) == ["right"] * len(ALL_SCHEDULES)
    assert any(report in outcome for outcome in outcomes(kernels, "copy_tile", tile, fault, tile))


# The numbers are those of ProductFault.
@pytest.mark.parametrize(
    "fault, report",
    [
        (1, "without a wgmma.fence"),
        (2, "products"),
        (3, "products"),
        (4, "the product has not been waited for"),
        (5, "1 of 4|3 of 4"),
    ],
)
def test_faults_in_products(kernels, fault, report):
    tile = torch.randint(-8, 8, (64, 64)).half()
    sums = tile.float().sum(1)
    assert outcomes(kernels, "multiply_by_ones", tile, 0, sums) == ["right"] * len(ALL_SCHEDULES)
    results = outcomes(kernels, "multiply_by_ones", tile, fault, sums)
    assert any(part in outcome for outcome in results for part in report.split("|")), results
