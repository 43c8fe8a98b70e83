"""`kernelgen update`."""

from kernelgen.cli import output
from kernelgen.cli.parser import Parser
from kernelgen.errors import ConflictError


def run(arguments: list[str]) -> int:
    parser = Parser("update", "Bring a project to the newest template, keeping what was edited.")
    parser.add_project()
    parser.add_writing()
    options = parser.parse_args(arguments)

    from kernelgen.scaffold import project, update

    home = project.find(options.project)
    output.note(f"Merging the newest template into {home.root} …")
    merge = update.update(home)
    facts = {"before": merge.before, "after": merge.after, "conflicts": merge.conflicts}
    if output.finish(merge.plan, merge.apply, dry_run=options.dry_run, as_json=options.json, **facts):
        print(f"\nThe template was {merge.before} and is {merge.after}.")
    if merge.conflicts:
        listed = ", ".join(merge.conflicts)
        if not options.json:
            raise ConflictError(
                f"Both you and the template changed {listed}; choose between the marked lines, then git add."
            )
        return ConflictError.exit_code
    return 0
