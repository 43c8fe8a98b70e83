"""Whether what `kernelgen VERB --json` prints is as docs/json/VERB.json says."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).parents[1] / "docs" / "json"


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def check(arguments: Sequence[str], out: str) -> None:
    """Holds the output of a command line to its schema, where it asked for JSON.

    Raises:
        AssertionError: there is something else than one JSON object on standard output, or the schema does not hold.
    """
    if "--json" not in arguments or "--help" in arguments:
        return
    answer: Any = json.loads(out)
    name = "error" if isinstance(answer, dict) and "error" in answer else arguments[0]
    problems = [f"{error.json_path}: {error.message}" for error in validator(name).iter_errors(answer)]
    assert problems == [], f"docs/json/{name}.json does not hold for `kernelgen {' '.join(arguments)}`"
