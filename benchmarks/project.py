"""A stamped project in a benchmark: its package, and calls that take another path of an op."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def import_package(project: Path) -> ModuleType:
    """Import the package in the project's `src`."""
    (init,) = (project / "src").glob("*/__init__.py")
    sys.path.insert(0, str(init.parents[1]))
    return importlib.import_module(init.parent.name)


def on_path(call: Callable[[], Any], variable: str, path: str) -> Callable[[], Any]:
    """The call with the environment variable that chooses the op's path, such as MY_KERNELS_FLASH_ATTENTION_PATH."""

    def forced() -> Any:
        os.environ[variable] = path
        try:
            return call()
        finally:
            del os.environ[variable]

    return forced
