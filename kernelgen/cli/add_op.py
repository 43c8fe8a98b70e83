"""`kernelgen add-op`."""

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgen.cli import output
from kernelgen.cli.parser import Parser
from kernelgen.errors import UsageError
from kernelgen.lab.new_op import DERIVED, SHAPED

if TYPE_CHECKING:
    from kernelgen.scaffold.project import Project


def run(arguments: list[str]) -> int:
    parser = Parser("add-op", "Add an op to a project: a recipe under a new name, or one of your own.")
    parser.add_argument("name", metavar="NAME", nargs="?", help="the op's name; asked for at a terminal")
    parser.add_argument(
        "--recipe", metavar="R", help="the recipe to stamp it from (default: blank; `kernelgen list` shows all)"
    )
    parser.add_argument(
        "--schema", metavar="S", help='the op\'s schema, such as "(Tensor x, float eps=1e-6) -> Tensor"'
    )
    parser.add_argument("--from", dest="function", metavar="FILE.py:FUNCTION", help="a PyTorch function")
    parser.add_argument(
        "--shapes", metavar="S", help='the shapes of its tensors, such as "x: ... D; weight: D float32 -> ... D"'
    )
    parser.add_argument(
        "--backward",
        choices=("own", "composed", "none"),
        help="the gradient: an operator of its own, PyTorch's of the reference, or none (default: composed, if any)",
    )
    parser.add_project()
    parser.add_writing()
    options = parser.parse_args(arguments)

    from kernelgen.cli import questions
    from kernelgen.scaffold import ops, project

    is_asked = options.name is None
    if is_asked:
        questions.need_terminal("add-op", "NAME")
    with project.writing(options.project) as home:
        if is_asked:
            questions.ask_op(options, home, (*DERIVED, SHAPED))
        ops.check_name(home, options.name)  # Before anything is assumed, traced or said.
        entry = _entry(options, home)
        plan = ops.add(home, entry)
        output.note(home.template.note if home.template.dirty else "")
        folder = home.relative(home.op_folder(options.name))
        edit = ops.to_write(plan) or ops.kernels(plan)
        written = entry["recipe"] in DERIVED
        if is_asked and not options.dry_run and not questions.confirm(plan):
            return 0
        steps = [*([] if written else [f"edit {', '.join(edit)}"]), "kernelgen build", f"pytest {folder}"]
        if home.root != Path.cwd().resolve():
            steps = [f"cd {shlex.quote(os.path.relpath(home.root))}", *steps]
        if output.finish(plan, plan.apply, dry_run=options.dry_run, as_json=options.json, op=entry, next=steps):
            print(output.steps(steps))
    return 0


def _entry(options: argparse.Namespace, home: "Project") -> dict[str, Any]:
    """The op's element of the answers' `ops`; with a schema, also everything that the schema implies."""
    is_derived = options.schema is not None or options.function is not None
    _check(options, is_derived)
    if not is_derived:
        return {"name": options.name, "recipe": options.recipe or "blank"}

    from kernelgen.lab.new_op.request import NewOp

    op = NewOp(home, options.name, options.shapes, options.backward, output.note, output.progress)
    if options.schema is not None:
        from kernelgen.lab.new_op.from_schema import from_schema

        return from_schema(op, options.schema)
    from kernelgen.lab.new_op.from_function import from_function

    return from_function(op, options.function, is_blank=options.recipe == "blank")


def _check(options: argparse.Namespace, is_derived: bool) -> None:
    """Raises UsageError where options exclude each other, or do not go with the recipe."""
    if options.schema and options.function:
        raise UsageError("--schema and --from both give the schema; leave one of them out.")
    if is_derived and options.recipe not in (None, "blank"):
        raise UsageError(f"--schema and --from choose the recipe; leave out --recipe {options.recipe}.")
    if options.recipe in DERIVED:
        raise UsageError(
            f"The recipe {options.recipe} is for functions that decompose; write "
            f"`kernelgen add-op {options.name} --from FILE.py:FUNCTION`."
        )
    if options.recipe == SHAPED:
        raise UsageError(
            f"The recipe {SHAPED} is for ops whose shapes are known; write `kernelgen add-op {options.name} --schema S "
            "--shapes S`."
        )
    if not is_derived and (options.shapes is not None or options.backward is not None):
        raise UsageError("--shapes and --backward go with --schema or --from.")
