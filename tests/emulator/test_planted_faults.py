"""The emulated GPU catches faults planted in kernels of other people's styles, and names those that have a name.

A sample of them by default; EVERY_FAULT=1 plants all. `python -m tests.emulator.faults --run` says what came of each.
"""

import os
import re
import zlib

import pytest

from . import page
from .faults import Kind
from .faults.__main__ import CORPUS, recorded
from .faults.plant import SEEDS, outcomes
from .faults.styles import STYLE_FAULTS

ONE_IN = 1 if os.environ.get("EVERY_FAULT") else 6
SAMPLE = [fault for fault in STYLE_FAULTS if zlib.crc32(fault.name.encode()) % ONE_IN == 0]


@pytest.mark.parametrize("fault", SAMPLE, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(fault):
    results = outcomes(fault, SEEDS)
    assert any(results)
    if fault.wanted:
        assert all(re.search(fault.wanted, result.report) for result in results), [*map(str, results)]


def test_the_corpus_has_faults_of_every_kind_and_each_has_a_name_of_its_own():
    assert {fault.kind for fault in CORPUS} == set(Kind)
    assert len({fault.name for fault in CORPUS}) == len(CORPUS)
    assert sum(fault in STYLE_FAULTS for fault in CORPUS) >= 40 <= len(CORPUS) - 20


def test_the_page_holds_the_tables_of_what_it_describes():
    assert set(recorded()) <= {fault.name for fault in CORPUS}
    assert page.filled(page.PAGE.read_text()) == page.PAGE.read_text(), "run python -m tests.emulator.page --write"
