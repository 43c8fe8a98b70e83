"""`kernelgen diff`."""

import json
import sys

from kernelgen.cli.parser import Parser


def run(arguments: list[str]) -> int:
    parser = Parser("diff", "Show what was changed of the stamped files since the project was stamped or updated.")
    parser.add_project()
    parser.add_json()
    options = parser.parse_args(arguments)

    from kernelgen.scaffold import project
    from kernelgen.scaffold.update import edits

    plan = edits.since_stamping(project.find(options.project))
    if options.json:
        edited = {"root": str(plan.root), "edited": plan.paths("update"), "deleted": plan.paths("delete")}
        print(json.dumps(edited | {"diff": plan.diff()}))
    else:
        sys.stdout.write(plan.diff())
    return 0
