"""Imports the package of a stamped project."""

import importlib
import sys
from pathlib import Path
from types import ModuleType


def import_package(project: Path) -> ModuleType:
    """Import the package in the project's `src`."""
    (init,) = (project / "src").glob("*/__init__.py")
    sys.path.insert(0, str(init.parents[1]))
    return importlib.import_module(init.parent.name)
