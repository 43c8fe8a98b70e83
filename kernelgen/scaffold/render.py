"""Renders the template as copier does, byte for byte, without the 0.3 s that importing copier takes.

It implements the features of copier that `copier.yml` and the template use: questions with defaults, computed
answers (`when: false`), names of files and folders that are templates, and a folder for each item of a `yield`. A
parity test stamps with both.
"""

import fnmatch
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from jinja2 import FileSystemLoader, StrictUndefined, TemplateError

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.compiled import CompilingOnce
from kernelgen.scaffold.template import ANSWERS_FILE

_SUFFIX = ".jinja"
_YIELD = re.compile(r"\{% yield (\w+) from (.+?) %\}(.*)\{% endyield %\}")
_FALSE = {"", "0", "f", "false", "n", "no", "off", "none", "null", "~"}
# Rendering raises these where an edited answer has the wrong type or value.
_ANSWER_ERRORS = (TemplateError, TypeError, ValueError, LookupError, AttributeError)
# A rendered name, the context of what is inside, and the op that owns it.
_Name = tuple[str, dict[str, Any], str | None]
# PyYAML's C parser gives the same as its Python parser, in a tenth of the time.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class File:
    """A rendered file; `source` is the template's file that it comes from, and `op` the op that owns it."""

    content: bytes
    executable: bool = False
    source: str = ""
    op: str | None = None


def parse_yaml(text: str | bytes) -> Any:
    """Read YAML as copier does, faster.

    Raises:
        yaml.YAMLError: the text is not YAML.
    """
    return yaml.load(text, Loader=_Loader)


def recipes(folder: Path) -> dict[str, Path]:
    """The folder of each recipe of the template that lies in `folder`, by name."""
    folders = (folder / "template").glob("src/*/ops/*ops_by_recipe.*")
    return {re.search(r"ops_by_recipe\.(\w+)", recipe.name)[1]: recipe for recipe in sorted(folders)}


class Renderer:
    """A template with a set of answers.

    Raises (from every method):
        KernelgenError: the template cannot be rendered with these answers.
    """

    def __init__(self, folder: Path, answers: Mapping[str, Any], folder_name: str = "my-kernels") -> None:
        """`folder` holds copier.yml and template/; `answers` may lack some questions, and may hold more."""
        config = parse_yaml((folder / "copier.yml").read_bytes())
        self.folder = folder
        self.questions = {name: question for name, question in config.items() if not name.startswith("_")}
        self._excluded = config["_exclude"]
        self._message = config.get("_message_after_copy", "")
        self._source = {name: answers[name] for name in ("_commit", "_src_path") if name in answers}
        self._hidden: set[str] = set()
        self.context = self._complete(answers, folder_name)

    def everything(self) -> dict[str, File]:
        """The whole project: every file by its path below the project's root."""
        return dict(self._files())

    def op(self, name: str) -> dict[str, File]:
        """The files of the op of this name."""
        return dict(self._files(only=name))

    def answers_file(self) -> bytes:
        """The content of `.copier-answers.yml`."""
        source = next((self.folder / "template").glob("*answers_file*"))
        return self._content(source, self.context)

    def message(self, destination: Path) -> str:
        """The message to print after stamping into `destination`."""
        return self._string(self._message, self.context | {"_copier_conf": {"dst_path": str(destination)}}).strip("\n")

    def recipes(self) -> dict[str, Path]:
        """Each recipe's folder in the template, by name."""
        return recipes(self.folder)

    def summaries(self) -> dict[str, str]:
        """Each recipe's one-line summary, by name: the first line of its op's docstring."""
        return {name: self._summary(name, folder) for name, folder in self.recipes().items()}

    def excluded(self, name: str) -> bool:
        """Whether copier would leave out a file or folder of this name."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._excluded)

    @cached_property
    def _environment(self) -> CompilingOnce:
        return CompilingOnce(
            loader=FileSystemLoader(self.folder),
            extensions=["jinja2_ansible_filters.AnsibleCoreFiltersExtension"],
            undefined=StrictUndefined,
            keep_trailing_newline=True,
        )

    def _complete(self, answers: Mapping[str, Any], folder_name: str) -> dict[str, Any]:
        """The answers with what copier adds: computed answers, defaults for missing ones, and its own variables."""
        known = {name: value for name, value in answers.items() if not name.startswith("_")}
        known["_folder_name"] = folder_name
        known["_copier_conf"] = {"answers_file": ANSWERS_FILE}
        for name, question in self.questions.items():
            if self._is_false(question.get("when", True), known):
                self._hidden.add(name)
                known.pop(name, None)
            if name not in known and "default" in question:
                known[name] = self._default(question, known)
        known["_copier_answers"] = self._source | {
            name: known[name] for name, question in self.questions.items() if self._is_kept(name, question, known)
        }
        return known

    def _is_kept(self, name: str, question: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
        return name in known and name not in self._hidden and not question.get("secret")

    def _is_false(self, condition: str | bool, known: Mapping[str, Any]) -> bool:
        value = self._string(condition, known) if isinstance(condition, str) else condition
        return str(value).strip().lower() in _FALSE

    def _default(self, question: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
        default, kind = question["default"], question.get("type")
        if not isinstance(default, str):
            return default
        text = self._string(default, known)
        if kind == "str" and not question.get("multiselect"):
            return text
        return json.loads(text) if kind == "json" else parse_yaml(text)

    def _files(self, only: str | None = None) -> Iterator[tuple[str, File]]:
        for source, path, context, op in self._walk(self.folder / "template", "", self.context, None, only):
            if op or only is None:
                executable = bool(source.stat().st_mode & 0o100)
                name = source.relative_to(self.folder).as_posix()
                yield path, File(self._content(source, context), executable, name, op)

    def _walk(self, folder: Path, below: str, context: dict[str, Any], op: str | None, only: str | None) -> Iterator:
        """Each template file below `folder`: its path, the path it renders to, its context, the op that owns it."""
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            is_folder = entry.is_dir()
            if not is_folder and os.path.exists(entry.path + _SUFFIX):
                continue
            pattern = entry.name if is_folder else entry.name.removesuffix(_SUFFIX)
            for name, inner, owner in self._names(pattern, context, op, only):
                if not name or self.excluded(name):
                    continue
                if is_folder:
                    yield from self._walk(Path(entry.path), f"{below}{name}/", inner, owner, only)
                else:
                    yield Path(entry.path), below + name, inner, owner

    def _names(self, pattern: str, context: dict[str, Any], op: str | None, only: str | None) -> Iterator[_Name]:
        """What a file or folder name renders to: a single name, or a name for each op that it yields."""
        yielded = _YIELD.fullmatch(pattern)
        if not yielded:
            yield self._string(pattern, context), context, op
            return
        variable, items, body = yielded.groups()
        for item in self._environment.compile_expression(items, undefined_to_none=False)(context):
            if only is None or item["name"] == only:
                inner = context | {variable: item}
                yield self._string(body, inner), inner, item["name"]

    def _content(self, source: Path, context: Mapping[str, Any]) -> bytes:
        if source.suffix != _SUFFIX:
            return source.read_bytes()
        path = source.relative_to(self.folder).as_posix()
        try:
            return self._environment.get_template(path).render(context).encode()
        except _ANSWER_ERRORS as error:
            raise KernelgenError(f"The template's {path} does not fit this project's answers: {error}") from error

    def _string(self, text: str, context: Mapping[str, Any]) -> str:
        if "{" not in text and "\r" not in text:
            return text  # Jinja would compile it first, and return the same.
        try:
            return self._environment.from_string(text).render(context)
        except _ANSWER_ERRORS as error:
            raise KernelgenError(f"The template cannot be rendered with this project's answers: {error}") from error

    def _summary(self, recipe: str, folder: Path) -> str:
        sources = (folder / name for name in ("__init__.py.jinja", "__init__.py"))
        source = next((file.read_text(encoding="utf-8") for file in sources if file.is_file()), "")
        # A recipe whose docstring is for the user to write has its summary in a comment.
        match = re.search(r"\{#- recipe: (.+?) -#\}", source) or re.search(r'"""\s*([^"\n]+)', source)
        summary = match[1] if match else ""
        with suppress(KernelgenError):
            summary = self._string(summary, self.context | {"op": {"name": recipe, "recipe": recipe}})
        return summary.removeprefix(f"{recipe}: ")
