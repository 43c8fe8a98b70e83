"""Loads an op's lab.py and reference.py as files, without the project's package: nothing of the op runs here.

A stand-in takes the package's place. Its modules are the files of the op's folder in a trusted checkout, without the
`__init__.py` of any package; what lab.py imports from the package itself, such as the op, is a function that refuses.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from kernelgen.errors import LabError
from kernelgen.worker import op


def load(trusted: Path, package: str, name: str) -> op.Op:
    """The op as the lab.py of a trusted checkout describes it; its `function` refuses to be called.

    Raises:
        LabError: the lab.py is absent, does not import, or leaves something out.
    """
    folder = trusted / "src" / package / "ops" / name
    _stand_in(package, None)
    _stand_in(f"{package}.ops", None)
    _stand_in(f"{package}.ops.{name}", folder)
    return op.load(package, name)


class _StandIn(ModuleType):
    """A package without code."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return importlib.import_module(f"{self.__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{self.__name__}.{name}":
                raise

        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise LabError(f"{name} of the project was called in the process that judges it, which runs nothing of it.")

        return refuse


def _stand_in(name: str, folder: Path | None) -> None:
    if name not in sys.modules:
        module = sys.modules[name] = _StandIn(name)
        module.__path__ = [str(folder)] if folder else []
