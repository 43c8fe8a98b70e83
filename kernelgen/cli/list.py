"""`kernelgen list`."""

import json

from kernelgen.cli.parser import Parser


def run(arguments: list[str]) -> int:
    parser = Parser("list", "List a project's ops with their state, and the recipes.")
    parser.add_project()
    parser.add_json()
    options = parser.parse_args(arguments)

    from kernelgen.scaffold import ops, project

    home = project.find(options.project)
    statuses, recipes = ops.statuses(home), home.renderer().summaries()
    if options.json:
        print(json.dumps({"root": str(home.root), "ops": [op.as_dict() for op in statuses], "recipes": recipes}))
        return 0
    rows = [(op.name, op.recipe or "?", ", ".join(op.backends) or "no backend", op.state) for op in statuses]
    print("\n".join(["Ops:", *_columns(rows), "", "Recipes:", *_columns(list(recipes.items()))]))
    return 0


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [f"  {line}".rstrip() for line in lines] or ["  none"]
