"""`kernelgen add-op`."""

import argparse
from typing import Any

from kernelgen.cli import output
from kernelgen.cli.parser import Parser
from kernelgen.errors import UsageError


def run(arguments: list[str]) -> int:
    parser = Parser("add-op", "Add an op to a project: a recipe under a new name, or one of your own.")
    parser.add_argument("name", metavar="NAME", help="the op's name, such as fused_add")
    parser.add_argument(
        "--recipe", metavar="R", help="the recipe to stamp it from (default: blank; `kernelgen list` shows all)"
    )
    parser.add_argument(
        "--schema", metavar="S", help='the op\'s schema, such as "(Tensor x, float eps=1e-6) -> Tensor"'
    )
    parser.add_argument("--from", dest="function", metavar="FILE.py:FUNCTION", help="a type-hinted PyTorch function")
    parser.add_project()
    parser.add_writing()
    options = parser.parse_args(arguments)

    from kernelgen.scaffold import ops, project

    with project.writing(options.project) as home:
        entry = _entry(options)
        plan = ops.add(home, entry)
        output.note(home.template.note if home.template.dirty else "")
        folder = home.relative(home.op_folder(options.name))
        edit = ops.to_write(plan) or ops.kernels(plan)
        steps = [f"edit {', '.join(edit)}", "kernelgen build", f"pytest {folder}"]
        if output.finish(plan, plan.apply, dry_run=options.dry_run, as_json=options.json, op=entry, next=steps):
            print(output.steps(steps))
    return 0


def _entry(options: argparse.Namespace) -> dict[str, Any]:
    """The op's element of the answers' `ops`; with a schema, also everything that the schema implies."""
    if options.schema and options.function:
        raise UsageError("--schema and --from both give the schema; leave one of them out.")
    derived = options.schema is not None or options.function is not None
    if derived and options.recipe not in (None, "blank"):
        raise UsageError(f"--schema and --from stamp the blank recipe; leave out --recipe {options.recipe}.")
    entry = {"name": options.name, "recipe": options.recipe or "blank"}
    if not derived:
        return entry

    if options.schema is not None:
        from kernelgen.scaffold.schema.parser import parse

        return entry | {"schema": parse(options.schema).entry()}

    from kernelgen.scaffold.schema.from_python import reference

    function = reference.read(*reference.split_spec(options.function))
    if function.packages:
        packages = ", ".join(function.packages)
        output.note(f"{function.name} imports {packages}; add them to `dependencies` in pyproject.toml.")
    return entry | {"schema": function.schema.entry(), "reference": function.source_as(options.name)}
