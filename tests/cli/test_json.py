"""Every verb's JSON has a schema in docs/json; `run` in tests/conftest.py holds what tests print to it."""

import pytest

from kernelgen.cli import VERBS
from tests import json_schemas

WITHOUT_JSON = {"help"}


def test_every_verb_has_a_schema():
    assert {path.stem for path in json_schemas.SCHEMAS.glob("*.json")} == {*VERBS, "error"} - WITHOUT_JSON


def test_schemas_say_what_each_object_is_for():
    for path in json_schemas.SCHEMAS.glob("*.json"):
        assert json_schemas.validator(path.stem).schema["title"]


def test_output_that_is_not_as_promised_is_noticed():
    with pytest.raises(AssertionError, match=r"docs/json/diff.json does not hold for `kernelgen diff --json`"):
        json_schemas.check(["diff", "--json"], '{"root": "/p", "edited": "a", "deleted": [], "diff": ""}')
    with pytest.raises(ValueError, match="Extra data"):
        json_schemas.check(["list", "--json"], "{}\nnote")


def test_an_error_is_json_too(run, tmp_path):
    result = run("list", "--project", tmp_path, "--json")
    assert result.code == 1
    assert result.json["exit_code"] == 1
