"""Files with functions to read, and ways to run them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from textwrap import dedent


def write(folder: Path, text: str) -> Path:
    path = folder / "ops.py"
    path.write_text(dedent(text), encoding="utf-8")
    return path


def load(path: Path):
    """Run the file, as kernelgen never does, to compare with what it read."""
    spec = importlib.util.spec_from_file_location("ops_under_test", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["ops_under_test"] = module
    spec.loader.exec_module(module)
    return module


def run(source: str) -> dict:
    names = {"__name__": "reference"}
    exec(compile(source, "reference.py", "exec", dont_inherit=True), names)
    return names
