"""Jinja that compiles a text once: what it compiled is kept in this process, and in the user's cache for later ones.

Compiling an op's templates takes 0.1 s, more than all else that `add-op` does.
"""

import functools
import hashlib
import marshal
import os
import time
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

from jinja2.bccache import bc_magic
from jinja2.sandbox import SandboxedEnvironment

from kernelgen import caches

# What the cache holds is compiled again after so many days, and removed, so that old versions of templates go.
_DAYS = 30
# A malformed file of the cache, or none; a folder that cannot be read or written; a user without a home.
_UNUSABLE = (OSError, RuntimeError, EOFError, ValueError, TypeError)
_codes: dict[str, CodeType] = {}


class CompilingOnce(SandboxedEnvironment):
    """An environment of the template's options; another with options that Jinja compiles in needs a key of its own."""

    def compile(self, source: Any, name: str | None = None, filename: str | None = None, *options: Any) -> Any:
        if not isinstance(source, str) or options:
            return super().compile(source, name, filename, *options)
        # The magic number is that of Python and of what Jinja's compiler writes.
        key = hashlib.sha256(bc_magic + repr((sorted(self.extensions), name, source)).encode()).hexdigest()
        if key not in _codes:
            code = _read(key)
            if code is None:
                code = super().compile(source, name, filename)
                _write(key, code)
            _codes[key] = code
        return _codes[key]


def folder() -> Path:
    """Where the cache is.

    Raises:
        RuntimeError: the user has no home.
    """
    return caches.folder("compiled-templates")


def _read(key: str) -> CodeType | None:
    with suppress(*_UNUSABLE):
        path = folder() / key
        if path.stat().st_mtime > time.time() - _DAYS * 86_400:
            code = marshal.loads(path.read_bytes())
            return code if isinstance(code, CodeType) else None
    return None


def _write(key: str, code: CodeType) -> None:
    with suppress(*_UNUSABLE):
        _remove_old()
        unfinished = folder() / f".{key}.{os.getpid()}"
        unfinished.write_bytes(marshal.dumps(code))
        unfinished.replace(folder() / key)


@functools.cache
def _remove_old() -> None:
    """Once a process; makes the folder where there is none."""
    folder().mkdir(parents=True, exist_ok=True)
    for path in folder().iterdir():
        if path.stat().st_mtime <= time.time() - _DAYS * 86_400:
            path.unlink()
