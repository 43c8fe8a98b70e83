"""What `add-op` and `new` ask at a terminal where no name was given. Copier brings questionary."""

import argparse
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernelgen.errors import KernelgenError, UsageError

if TYPE_CHECKING:
    from kernelgen.scaffold.plan import Plan
    from kernelgen.scaffold.project import Project

_FUNCTION, _SCHEMA, _RECIPE = "a PyTorch function", "a schema", "a recipe under a new name"
_GRADIENTS = {
    "PyTorch's of the reference, if gradients reach the results": None,
    "an operator of its own, to write": "own",
    "none: it is for inference": "none",
}


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def need_terminal(verb: str, missing: str) -> None:
    """Raises UsageError where nothing can be asked."""
    if not is_terminal():
        raise UsageError(f"the following arguments are required: {missing}. See `kernelgen {verb} --help`.")


def ask_folder() -> Path:
    """Where to stamp a project."""
    import questionary

    return Path(questionary.text("The project's folder:", default="my-kernels").unsafe_ask())


def ask_op(options: argparse.Namespace, home: "Project", chosen_by_kernelgen: Collection[str]) -> None:
    """Asks for the op's name, and unless an option says so, for what it is made from, its shapes and its gradient.

    The recipes `chosen_by_kernelgen` are not offered.
    """
    import questionary

    from kernelgen.scaffold import ops
    from kernelgen.scaffold.schema.from_python.reference import read, split_spec
    from kernelgen.scaffold.schema.parser import parse

    question = questionary.text("The op's name:", validate=lambda name: _valid(partial(ops.check_name, home), name))
    options.name = question.unsafe_ask()
    if options.recipe is not None or options.schema is not None or options.function is not None:
        return
    source = questionary.select("Made from:", [_FUNCTION, _SCHEMA, _RECIPE]).unsafe_ask()
    if source == _RECIPE:
        summaries = home.renderer().summaries()
        offered = [name for name in summaries if name not in chosen_by_kernelgen]
        choices = [questionary.Choice(f"{name}: {summaries[name]}", value=name) for name in offered]
        options.recipe = questionary.select("The recipe:", choices).unsafe_ask()
        return
    if source == _FUNCTION:
        question = questionary.text("FILE.py:FUNCTION:", validate=lambda spec: _valid(split_spec, spec))
        options.function = question.unsafe_ask()
        schema = read(*split_spec(options.function)).schema
    else:
        example = "(Tensor x, float eps=1e-6) -> Tensor"
        question = questionary.text("The schema:", default=example, validate=lambda schema: _valid(parse, schema))
        options.schema = question.unsafe_ask()
        schema = parse(options.schema)
    if not schema.takes_tensors:
        return
    hint = "empty: learned from the function" if source == _FUNCTION else "empty: all the same"
    options.shapes = questionary.text(f"Shapes, such as x: ... D -> ... D ({hint}):").unsafe_ask() or None
    options.backward = _GRADIENTS[questionary.select("The gradient:", list(_GRADIENTS)).unsafe_ask()]


def confirm(plan: "Plan") -> bool:
    """Shows what would be written, and asks whether to."""
    import questionary

    for action in ("create", "update", "delete"):
        for path in plan.paths(action):
            print(f"  {action}  {path}")
    return questionary.confirm("Write these?").unsafe_ask()


def _valid(check: Callable[[str], object], text: str) -> bool | str:
    """True, or the first line of what is wrong."""
    try:
        check(text)
    except KernelgenError as error:
        return str(error).partition("\n")[0]
    return True
