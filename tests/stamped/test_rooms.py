"""include/ is in rooms, each of which says what may include it; a header is found by its name alone, as it always was."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import REPOSITORY, build, stamp

(INCLUDE,) = (REPOSITORY / "template").glob("src/*/include")
HEADERS = {path.name.removesuffix(".jinja"): path for path in INCLUDE.rglob("*.*h*") if path.suffix != ".md"}
# By room: the rooms whose headers its own may include, and whether they may include torch's.
ALLOWED = {
    "torch": ({"torch", "cpu", "cuda"}, True),
    "cpu": ({"cpu"}, False),
    "cuda": ({"cuda"}, False),
    "sm80": ({"cuda", "sm80"}, False),
    "sm90": ({"cuda", "sm80", "sm90"}, False),
}


def test_every_header_is_in_a_room_that_the_readme_lists():
    readme = (INCLUDE / "README.md").read_text()
    assert {path.parent.name for path in HEADERS.values()} == set(ALLOWED)
    assert re.findall(r"^\| `(\w+)/`", readme, re.MULTILINE) == list(ALLOWED)


def test_a_header_s_name_is_unique_over_all_rooms():
    names = [path.name for room in ALLOWED for path in (INCLUDE / room).iterdir()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", sorted(HEADERS))
def test_a_header_includes_what_its_room_allows(name):
    rooms, torch = ALLOWED[HEADERS[name].parent.name]
    text = HEADERS[name].read_text()
    for included in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
        assert HEADERS[included].parent.name in rooms, included
    assert torch or "#include <torch/" not in text


# ---- An op that was written before there were rooms -----------------------------------------------------------
