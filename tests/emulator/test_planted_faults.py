"""The emulated GPU catches faults planted in kernels of other people's styles and of the recipes, and names those that
have a name.

One of every kind by default; EVERY_FAULT=1 plants all. `python -m tests.emulator.faults --run` says what came of each.
"""

import os
import re
import zlib

import pytest

from tests.conftest import with_sample

from . import page
from .faults import Fault, Kind
from .faults.__main__ import CORPUS, recorded
from .faults.plant import SEEDS, outcomes
from .faults.recipe_checks import CHECKS, checked
from .faults.recipes import RECIPE_FAULTS
from .faults.styles import STYLE_FAULTS
from .styles import STYLES

EVERY_FAULT = os.environ.get("EVERY_FAULT")
# Recipes whose checks take seconds and not minutes.
QUICK = ("elementwise", "include", "rms_norm")


def sample() -> list[Fault]:
    """All faults; or of each kind one in a style, and of each quick recipe one."""
    if EVERY_FAULT:
        return CORPUS
    by_chance = sorted(CORPUS, key=lambda fault: zlib.crc32(fault.name.encode()))
    in_styles = {fault.kind: fault for fault in by_chance if fault in STYLE_FAULTS}
    in_recipes = {fault.subject: fault for fault in by_chance if fault.subject in QUICK}
    return [*in_styles.values(), *in_recipes.values()]


@pytest.mark.parametrize("fault", with_sample(sample(), sample()[::6]), ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(fault):
    # Not every schedule leads to the faulty accesses.
    results = [result for result in outcomes(fault, SEEDS) if result]
    assert results
    if fault.wanted:
        assert all(re.search(fault.wanted, result.report) for result in results), [*map(str, results)]


@pytest.mark.parametrize("name", with_sample(CHECKS if EVERY_FAULT else QUICK, {"elementwise"}))
def test_a_recipe_without_a_fault_is_right(name):
    assert not (outcome := checked(name)), str(outcome)


def test_the_corpus_has_faults_of_every_kind_and_each_has_a_name_of_its_own():
    assert {fault.kind for fault in CORPUS} == set(Kind)
    assert len({fault.name for fault in CORPUS}) == len(CORPUS)
    assert len(STYLE_FAULTS) >= 40 <= len(RECIPE_FAULTS)


def test_every_fault_can_be_planted_and_leaves_no_half_of_a_comment(ops):
    for fault in STYLE_FAULTS:
        fault.planted(STYLES[fault.subject].source.read_text())
    for fault in RECIPE_FAULTS:
        fault.planted((ops / CHECKS[fault.subject].op / fault.file).read_text())


@pytest.mark.parametrize("old, new", [("a = 1;  // The", ""), ("first one", ""), ("gone", "b"), ("a = 1;", "a = 1;")])
def test_a_fault_that_cannot_be_planted_is_refused(old, new):
    with pytest.raises(AssertionError):
        Fault("name", "subject", "file.cu", Kind.INDEX, old, new).planted("a = 1;  // The first one is known.\nb = 2;")


def test_a_table_without_its_place_in_the_page_is_an_error():
    with pytest.raises(AssertionError, match="0 marks '<!-- table: gpus -->'"):
        page.filled("a page without tables")


def test_the_page_holds_the_tables_of_what_it_describes():
    assert set(recorded()) <= {fault.name for fault in CORPUS}
    assert page.filled(page.PAGE.read_text()) == page.PAGE.read_text(), "run python -m tests.emulator.page --write"
