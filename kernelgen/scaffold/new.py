"""Plans a new project: copier asks the questions and checks the answers, the renderer makes the files."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kernelgen.errors import ConflictError, KernelgenError, UsageError
from kernelgen.scaffold import git, journal, lock, names, ops
from kernelgen.scaffold.plan import Plan
from kernelgen.scaffold.render import Renderer, parse_yaml
from kernelgen.scaffold.template import Template


@dataclass(frozen=True)
class Stamp:
    """The plan of a new project, and the message to print once it is applied."""

    plan: Plan
    message: str


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Stamp into `directory` alone; what a killed command left half written there is undone first."""
    directory = Path(os.path.abspath(directory))
    with lock.exclusive(directory):
        journal.recover_locked(directory)
        yield


def stamp(template: Template, directory: Path, data: dict[str, Any], defaults: bool) -> Stamp:
    """Plan a project in `directory`: `data` answers questions, and `defaults` takes defaults for the rest unasked.

    Raises:
        ConflictError: the directory is not empty.
        UsageError: an answer is not allowed, or there is no terminal to ask at.
        KeyboardInterrupt: Ctrl-C at a prompt.
    """
    directory = Path(os.path.abspath(directory))
    if os.path.lexists(directory) and not (directory.is_dir() and not any(directory.iterdir())):
        raise ConflictError(f"{directory} exists and is not an empty folder; name a folder that does not exist yet.")
    if not defaults and not sys.stdin.isatty():
        raise UsageError(
            "The questions need a terminal; answer them with --defaults, --data name=value or --data-file."
        )
    _check_data(template, data)
    answers = _ask(template.folder, directory.name, data, defaults)
    renderer = Renderer(template.folder, answers | template.stamp(), directory.name)
    for op in answers["ops"]:
        names.check(op["name"])
        ops.check_recipe(op["recipe"], renderer)
    plan = Plan(directory)
    for path, file in renderer.everything().items():
        plan.set(path, file.content, file.executable)
    return Stamp(plan, renderer.message(directory))


def changed_answers(
    template: Template, folder_name: str, answers: Mapping[str, Any], data: dict[str, Any]
) -> dict[str, Any]:
    """The answers `data` for an existing project, checked beside its other answers.

    Raises:
        UsageError: there is no such question, or an answer is not allowed.
    """
    if data.keys() & {"recipes", "ops"}:
        raise UsageError("Ops are no answers to change; `kernelgen add-op NAME --recipe RECIPE` adds one.")
    _check_data(template, data)
    known = {name: value for name, value in answers.items() if not name.startswith(("_", "kernelgen_"))}
    complete = _ask(template.folder, folder_name, known | data, defaults=True)
    return {name: complete[name] for name in data}


def read_data(pairs: list[str], file: Path | None) -> dict[str, Any]:
    """The answers of a YAML file, overridden by the command line's name=value pairs.

    Raises:
        UsageError: a pair has no '=' or is no UTF-8, or the file is not a YAML mapping.
    """
    data = _read_file(file) if file else {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--data takes name=value, not {pair!r}.")
        if any("\ud800" <= character <= "\udfff" for character in pair):  # Bytes that Python could not decode.
            raise UsageError(f"--data takes text in UTF-8, not {os.fsencode(pair)!r}.")
        data[name.strip()] = value
    return data


def _read_file(file: Path) -> dict[str, Any]:
    try:
        data = parse_yaml(file.read_bytes())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not valid YAML; write lines such as `license: MIT`.") from error
    if not isinstance(data, dict):
        raise UsageError(f"{file} holds no answers; write lines such as `license: MIT`.")
    return data


def _check_data(template: Template, data: dict[str, Any]) -> None:
    """Refuse answers to unknown questions, and unknown recipes: copier ignores both."""
    config = parse_yaml((template.folder / "copier.yml").read_bytes())
    questions = {name for name, q in config.items() if not name.startswith("_") and q.get("when") is not False}
    for name in data:
        if name not in questions:
            raise UsageError(f"There is no question {name!r}. {names.did_you_mean(str(name), questions)}")
    if "recipes" in data:
        data["recipes"] = _recipes(data["recipes"], config["recipes"]["choices"])


def _recipes(answer: Any, known: list[str]) -> list[str]:
    """The recipes of an answer that is a list, or text with commas."""
    words = answer if isinstance(answer, list) else str(answer).strip("[] ").split(",")
    recipes = [recipe for word in words if (recipe := str(word).strip(" '\""))]
    for recipe in recipes:
        if recipe not in known:
            raise UsageError(f"There is no recipe {recipe!r}. {names.did_you_mean(recipe, known)}")
    return recipes


def _ask(template: Path, folder_name: str, data: dict[str, Any], defaults: bool) -> dict[str, Any]:
    """All answers, computed ones included. Copier stamps a template of the questions alone, into a scratch folder."""
    import copier
    from copier.errors import CopierError
    from jinja2 import TemplateError

    with tempfile.TemporaryDirectory() as scratch:
        questions = Path(scratch, "questions")
        (questions / "template").mkdir(parents=True)
        shutil.copy(template / "copier.yml", questions)
        author = git.text_or("", Path.cwd(), "config", "user.name").strip()
        own_defaults = {"author": author} if author.isprintable() and len(author) <= 100 else {}
        try:
            worker = copier.run_copy(
                str(questions),
                Path(scratch, folder_name),
                data,
                user_defaults=own_defaults,
                defaults=defaults,
                quiet=True,
            )
        except KeyboardInterrupt:
            # Copier raises one that is a CopierError too; the next clause must not catch it.
            raise
        except (CopierError, ValueError, TypeError, TemplateError, yaml.YAMLError) as error:
            raise _refusal(error) from error
        # Names that begin with an underscore describe the scratch folder.
        return {name: value for name, value in worker.answers.combined.items() if not name.startswith("_")}


def _refusal(error: Exception) -> KernelgenError:
    """Copier's exception as a UsageError: the question, and the sentence of its validator."""
    message = str(error).strip() or type(error).__name__
    before, quoted, rest = message.partition("question '")
    name, end, sentence = rest.partition("': ")
    return UsageError(f"{name}: {sentence}" if before == "Validation error for " and quoted and end else message)
