"""Runs in the project's Python, in its root: `configure.py OP KIND NAMES [SHAPES]`; prints one JSON object.

It has the project's own setup.py write the build definition of one op, with its default values, into a folder of its
own below build/tune, so that neither the project's libraries nor their objects are touched. KIND is cpu or cuda; NAMES
are the op's tunables, separated by commas; SHAPES is the class of shapes that they are tuned for, if not all.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType


def main(op: str, kind: str, names: str, shapes: str = "") -> None:
    setup = load_setup()
    folder = next((found for found in setup.op_folders() if found.name == op), None)
    if folder is None or not hasattr(setup, "tuned_header"):
        raise SystemExit(f"setup.py knows no tuned values of {op}; bring it up to date with `kernelgen update`")
    setup.op_folders = lambda: [folder]
    setup.tuned_entries = lambda op: {}
    if kind == "cpu":
        setup.find_toolkit = lambda torch: None
    variant = setup.find_variant()
    facts = setup.configure(setup.Variant(f"tune/{op}-{kind}", variant.cxx, variant.nvcc, variant.link))
    marks = {name: mark(name) for name in names.split(",")}
    entry = {"shapes": {shapes: marks}} if shapes else {"values": marks}
    library = [path for path in facts["libraries"] if path.endswith(f"_{kind}.so")]
    if not library:
        raise SystemExit(f"{op} has no library for {kind}; see `kernelgen doctor`")
    print(json.dumps({**facts, "library": library[0], "header": setup.tuned_header(folder, {"": entry})}))


def mark(name: str) -> str:
    """What stands for a value in the header."""
    return f"@{name}@"


def load_setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("project_setup", Path("setup.py").resolve())
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses look their module up there.
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:])
