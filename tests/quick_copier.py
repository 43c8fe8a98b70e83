"""Copier with the same results in less than half the time: most tests that stamp a project wait for it.

Copier compiles every name and file of a template anew each time that it renders one, collects the answers for each of
them several times, and asks git about each file that it writes. Here what was compiled is kept, the answers are
collected once all are given, and git's answer is the default of every system that these tests run on. YAML is read by
libyaml, where PyYAML has it. A process of its own, such as a stock `copier update`, is left as it is. What kernelgen's
own renderer compiles is kept, too.
"""

from collections.abc import MutableMapping
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import yaml
from copier import _main
from jinja2.sandbox import SandboxedEnvironment

# What Jinja's compiler reads of an environment.
_SYNTAX = (
    *("block_start_string", "block_end_string", "variable_start_string", "variable_end_string"),
    *("comment_start_string", "comment_end_string", "line_statement_prefix", "line_comment_prefix", "trim_blocks"),
    *("lstrip_blocks", "newline_sequence", "keep_trailing_newline", "optimized", "is_async", "autoescape", "finalize"),
)
_compile = SandboxedEnvironment.compile
_compiled: dict[tuple, CodeType | str] = {}
_answers_relpath = _main.Worker.answers_relpath.fget
_render_context = _main.Worker._render_context
_render_template = _main.Worker._render_template
# While a worker renders its template, which no answer changes any more: its context, and the file of its answers.
_contexts: dict[int, tuple[MutableMapping[str, Any], Path]] = {}


def install(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SandboxedEnvironment, "compile", _compile_once)
    # It does something only where `core.fileMode` is false, as it is on Windows.
    patch.setattr(_main.Worker, "_sync_git_index_executable_bit", lambda *_: None)
    patch.setattr(_main.Worker, "_render_template", _render_with_one_context)
    patch.setattr(_main.Worker, "_render_context", _context_of)
    patch.setattr(_main.Worker, "answers_relpath", property(_answers_relpath_of))
    if yaml.__with_libyaml__:
        patch.setattr(yaml, "SafeLoader", yaml.CSafeLoader)


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


def _render_with_one_context(self: _main.Worker) -> None:
    # `answers_relpath` changes the context that it asks for.
    _contexts[id(self)] = _render_context(self), _answers_relpath(self)
    try:
        _render_template(self)
    finally:
        del _contexts[id(self)]


def _context_of(self: _main.Worker) -> MutableMapping[str, Any]:
    return _contexts[id(self)][0] if id(self) in _contexts else _render_context(self)


def _answers_relpath_of(self: _main.Worker) -> Path:
    return _contexts[id(self)][1] if id(self) in _contexts else _answers_relpath(self)
