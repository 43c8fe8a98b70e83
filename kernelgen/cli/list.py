"""`kernelgen list`."""

import json

from kernelgen.cli.parser import Parser


def run(arguments: list[str]) -> int:
    parser = Parser("list", "List a project's ops with their state and how far each was proven, and the recipes.")
    parser.add_project()
    parser.add_json()
    options = parser.parse_args(arguments)

    from kernelgen.lab import proven
    from kernelgen.scaffold import ops, project
    from kernelgen.toolchain import current

    home = project.find(options.project)
    statuses, recipes = ops.statuses(home), home.renderer().summaries()
    proofs = {op.name: proven.of_op(home.root, home.package.name, op.name) for op in statuses}
    stale = current.reason_if_known(home.root)
    if options.json:
        listed = [{**op.as_dict(), "proven": proofs[op.name]} for op in statuses]
        print(json.dumps({"root": str(home.root), "ops": listed, "stale": stale, "recipes": recipes}))
        return 0
    rows = [
        (op.name, op.recipe or "?", ", ".join(op.backends) or "no backend", op.state, proven.in_words(proofs[op.name]))
        for op in statuses
    ]
    notes = [f"  {stale}: `kernelgen build` brings the libraries up to date"] if stale else []
    print("\n".join(["Ops:", *_columns(rows), *notes, "", "Recipes:", *_columns(list(recipes.items()))]))
    return 0


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [f"  {line}".rstrip() for line in lines] or ["  none"]
