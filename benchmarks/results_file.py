"""Writes results as JSON with one record a line, so that a change of one record is a change of one line.

    python benchmarks/results_file.py FILE ...

rewrites files in that form; their data stay the same.
"""

import json
import sys
from pathlib import Path
from typing import Any


def write(path: Path, value: Any) -> None:
    path.write_text(as_text(value) + "\n", encoding="utf-8")


def as_text(value: Any, indent: str = "") -> str:
    """JSON in which every item of a list of objects, or of rows, has a line, as has every key of the whole and of an
    object that holds such a list. A row is a list of an object and other values."""
    if not _holds_records(value) and (indent or not isinstance(value, dict)):
        return json.dumps(value)
    inner = indent + " "
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {as_text(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    lines = [inner + as_text(item, inner) for item in value]
    return "[\n" + ",\n".join(lines) + f"\n{indent}]"


def _holds_records(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_records, value.values()))
    if not isinstance(value, list) or not all(isinstance(item, dict | list) for item in value):
        return False
    return any(isinstance(item, dict) or _is_row(item) or _holds_records(item) for item in value)


def _is_row(value: Any) -> bool:
    """Whether it is a list of an object beside other values."""
    kinds = {isinstance(item, dict) for item in value} if isinstance(value, list) else set()
    return kinds == {True, False}


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        write(file, json.loads(file.read_text(encoding="utf-8")))
