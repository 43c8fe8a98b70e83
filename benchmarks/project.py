"""The package of a stamped project, for the benchmarks of recipes."""

import importlib
import sys
from pathlib import Path
from types import ModuleType


def import_package(project: Path) -> ModuleType:
    """The one package below the project's src, imported from there."""
    (init,) = (project / "src").glob("*/__init__.py")
    sys.path.insert(0, str(init.parents[1]))
    return importlib.import_module(init.parent.name)
