"""Faults that engineers make in an op: `kernelgen fuzz` finds them with its default cases.

The ordinary run plants one fault of each kind; EVERY_FAULT=1 plants all.
"""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
import torch

from kernelgen.worker import calls, fuzz
from kernelgen.worker.cases import Case, all_cases, core
from kernelgen.worker.op import Op
from tests.conftest import with_sample

from . import planted, same_process
from .planted import arguments, gradients, graphs, numbers, results  # noqa: F401  # They register their faults.

# What fuzz does not find, and why.
MISSED: dict[str, str] = {}
OF_EACH_KIND = {fault.kind: name for name, fault in reversed(planted.FAULTS.items())}
PLANTED = list(planted.FAULTS if os.environ.get("EVERY_FAULT") else {*OF_EACH_KIND.values(), *MISSED})


def default_cases(op: Op, seed: int) -> Iterator[Case]:
    dtypes = list(op.dtypes_on("cpu"))
    first = list(core(op, dtypes, calls.on_device("cpu")))
    return all_cases(op, dtypes, seed, len(first) + fuzz._DRAWN, first=first)


def first_fault(op: Op, seed: int = 1) -> tuple[str, Case] | None:
    for case in default_cases(op, seed):
        if fault := same_process.run_case(op, case, seed):
            return f"{fault.check}: {fault.text}", case
    return None


@pytest.fixture(autouse=True)
def restored():
    """A fault that changes the process' state is put right, for the tests after this one."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)


def test_there_are_faults_of_every_kind():
    kinds = Counter(fault.kind for fault in planted.FAULTS.values())
    assert len(planted.FAULTS) >= 44
    assert len(kinds) >= 15
    assert set(MISSED) <= set(planted.FAULTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", with_sample(sorted(PLANTED), sorted(PLANTED)[::5]))
def test_fuzz_finds(name):
    fault = first_fault(planted.FAULTS[name].op())
    if name in MISSED:
        assert fault is None, f"{name} is found now: {fault}"
    else:
        assert fault is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", with_sample(planted.RIGHT, [*planted.RIGHT][::3]))
def test_fuzz_finds_nothing_in_a_right_op(name):
    assert first_fault(planted.described(name, planted.RIGHT[name])) is None
    if name == "fma":
        assert first_fault(planted.described(name, results.right_custom_op)) is None
