"""What a project pins of its build. Its setup.py spells the pins out; everything here takes them as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .messages import BuildError

# In a table of flags, the key for every op.
EVERY_OP = "*"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_flags(value: Any) -> bool:
    if not isinstance(value, Mapping) or not all(isinstance(flags, (list, tuple)) for flags in value.values()):
        return False
    return all(isinstance(flag, str) and "\n" not in flag for flags in value.values() for flag in flags)


def _is_version(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, int) for part in value)


_TEXT = _is_text, 'a text such as "8.0;9.0a"'
_FLAGS = _are_flags, "a list of words for each op, such as {'*': ['-O3']}"
# By pin: what it has to be, and how that is said.
_PINS = {
    "cuda_architectures": _TEXT,
    "portable_architectures": _TEXT,
    "oldest_torch": (_is_version, "two whole numbers such as (2, 10)"),
    "cxx_flags": _FLAGS,
    "nvcc_flags": _FLAGS,
}


@dataclass(frozen=True)
class Project:
    """The pins, which setup.py explains.

    Args:
        package: the name that Python imports.
        cuda_architectures: a list such as "8.0;9.0a", or "native"; portable_architectures: a list.
        oldest_torch: the oldest torch that the libraries run on, as (major, minor).
        torch_target_version: the same, as the macro TORCH_TARGET_VERSION spells it.
        cxx_flags, nvcc_flags: further flags by the name of an op, or under "*" for all.

    Raises:
        BuildError: a pin is of another type.
    """

    package: str
    cuda_architectures: str
    portable_architectures: str
    torch_target_version: str
    oldest_torch: tuple[int, int]
    cxx_flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    nvcc_flags: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, (is_right, takes) in _PINS.items():
            value = getattr(self, name)
            if not is_right(value):
                raise BuildError(f"{name.upper()} in setup.py is {value!r}; write {takes}.")

    @property
    def source(self) -> Path:
        return Path("src") / self.package

    @property
    def include_folders(self) -> list[Path]:
        """The folders of headers. Each is on the include path, so a header is included by its name alone."""
        include = self.source / "include"
        return [include, *sorted(path for path in include.glob("*") if path.is_dir())]


def load() -> Project:
    """The PROJECT of the setup.py in the working folder.

    Raises:
        BuildError: that file does not run, or makes no PROJECT.
    """
    script = Path("setup.py").resolve()
    names = {"__name__": "setup", "__file__": str(script)}
    try:
        exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), names)
    except BuildError:
        raise
    except Exception as error:
        raise BuildError(f"setup.py stopped with {type(error).__name__}: {error}") from error
    if not isinstance(names.get("PROJECT"), Project):
        raise BuildError("setup.py makes no PROJECT; bring it up to date with `kernelgen update` or `copier update`.")
    return names["PROJECT"]
