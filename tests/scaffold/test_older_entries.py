"""Entries that early versions of `add-op --from` recorded, without the keys that came later, render as ops of today."""

import ast
from pathlib import Path

import pytest

from kernelgen.scaffold.render import Renderer, parse_yaml
from tests.conftest import ROOT

ENTRIES = parse_yaml((Path(__file__).parent / "older_entries.yml").read_bytes())


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(ROOT, {"ops": ENTRIES})


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_an_older_entry_has_today_s_files_with_its_own_formula(renderer, entry):
    folder = f"src/my_kernels/ops/{entry['name']}"
    files = {
        path.removeprefix(f"{folder}/"): file.content.decode() for path, file in renderer.op(entry["name"]).items()
    }
    for name, text in files.items():
        if name.endswith(".py"):
            ast.parse(text, name)
    formula = [line.strip() for line in files["formula.h"].splitlines()]
    traced = entry["traced"]
    recorded = [
        part.strip()
        for lines in (traced["forward"], traced["backward"]["lines"])
        for line in lines
        for part in line.splitlines()
    ]
    assert set(recorded) <= set(formula)
