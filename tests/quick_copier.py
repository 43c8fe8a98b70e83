"""Copier with the same results in less than half the time: most tests that stamp a project wait for it.

Copier compiles every name and file of a template anew each time that it renders one, and asks git about each file that
it writes. Here what was compiled is kept, and git's answer is the default of every system that these tests run on. A
process of its own, such as a stock `copier update`, is left as it is.
"""

from types import CodeType
from typing import Any

import pytest
from copier import _main
from copier._jinja_ext import SandboxedEnvironment

# What Jinja's compiler reads of an environment.
_SYNTAX = (
    *("block_start_string", "block_end_string", "variable_start_string", "variable_end_string"),
    *("comment_start_string", "comment_end_string", "line_statement_prefix", "line_comment_prefix", "trim_blocks"),
    *("lstrip_blocks", "newline_sequence", "keep_trailing_newline", "optimized", "is_async", "autoescape", "finalize"),
)
_compile = SandboxedEnvironment.compile
_compiled: dict[tuple, CodeType | str] = {}


def install(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SandboxedEnvironment, "compile", _compile_once)
    # It does something only where `core.fileMode` is false, as it is on Windows.
    patch.setattr(_main.Worker, "_sync_git_index_executable_bit", lambda *_: None)


def _compile_once(
    self: SandboxedEnvironment, source: Any, name: str | None = None, filename: str | None = None, *options: Any
) -> CodeType | str:
    if not isinstance(source, str):
        return _compile(self, source, name, filename, *options)
    key = (source, name, options, *self.extensions, *(getattr(self, attribute) for attribute in _SYNTAX))
    if key in _compiled:
        self.preprocess(source, name, filename)  # An extension of copier forgets there what it rendered before.
    else:
        _compiled[key] = _compile(self, source, name, filename, *options)
    return _compiled[key]
