"""`kernelgen remove-op`."""

from kernelgen.cli import output
from kernelgen.cli.parser import Parser


def run(arguments: list[str]) -> int:
    parser = Parser("remove-op", "Remove an op from a project: its files and its record.")
    parser.add_argument("name", metavar="NAME", help="the op to remove")
    parser.add_argument("--force", action="store_true", help="delete files that were edited, too")
    parser.add_project()
    parser.add_writing()
    options = parser.parse_args(arguments)

    from kernelgen.scaffold import ops, project

    with project.writing(options.project) as home:
        plan = ops.remove(home, options.name, options.force)
        output.finish(plan, plan.apply, dry_run=options.dry_run, as_json=options.json, op=options.name)
    return 0
