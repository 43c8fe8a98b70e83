"""A folder of kernelgen says where its code runs: these are the imports that each may have, inside functions too. And
names say what things are: a class has one of its own, and nothing is called by a word that says nothing."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "kernelgen"
# Each room, and the rooms it may import. `worker` runs in the project's Python, all others in kernelgen's own.
ROOMS = {
    "scaffold": set(),
    "toolchain": {"scaffold"},
    "emulator": {"toolchain"},
    "lab": {"toolchain", "scaffold"},
    "tune": {"lab", "toolchain", "scaffold"},
    "cli": {"tune", "lab", "emulator", "toolchain", "scaffold"},
    "worker": set(),
}
# Modules beside the rooms, which all may import; a worker only what it shares with the host.
SHARED_WITH_WORKER = {"caches", "cores", "errors", "process_tree", "protocol"}
SHARED = SHARED_WITH_WORKER | {"files"}
# What no variable, argument, function or class is called.
SAYS_NOTHING = ("found", "one", "it", "each", "at", "me")
# Modules that take a noticeable time to import.
HEAVY = (
    "argparse",
    "copier",
    "jinja2",
    "matplotlib",
    "numpy",
    "optuna",
    "rich",
    "scipy",
    "subprocess",
    "torch",
    "yaml",
)


def imports(file: Path) -> Iterator[str]:
    """The modules that a file imports, anywhere in it, by their full names."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def room_of(module: str) -> str | None:
    """The room, or the module beside the rooms, of a name in kernelgen; None for the package itself."""
    part = module.split(".")[1]
    return part if (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").is_file() else None


def test_every_folder_is_a_room():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert folders == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_those_it_may(room):
    allowed = {None, room, *ROOMS[room], *(SHARED_WITH_WORKER if room == "worker" else SHARED)}
    for file in (PACKAGE / room).rglob("*.py"):
        rooms = {room_of(module) for module in imports(file) if module.startswith("kernelgen.")}
        assert rooms <= allowed, f"{file.relative_to(ROOT)} imports {rooms - allowed}"


def test_only_workers_import_torch():
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] != "worker":
            names = {module.split(".")[0] for module in imports(file)}
            assert "torch" not in names, f"{file.relative_to(ROOT)} imports torch"


def test_no_two_classes_share_a_name():
    """A private one is seen in its module alone."""
    places: dict[str, list[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(file.relative_to(PACKAGE)))
    assert not {name: files for name, files in places.items() if len(files) > 1}


@pytest.mark.parametrize("folder", ["kernelgen", "template", "tests", "benchmarks", "tools"])
def test_a_name_says_what_the_thing_is(folder):
    """CONTRIBUTING.md, 'How we write'."""
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            else:
                name = getattr(node, "arg" if isinstance(node, ast.arg) else "name", None)
            assert name not in SAYS_NOTHING, f"{file.relative_to(ROOT)}:{node.lineno} has a name {name!r}"


@pytest.mark.parametrize("code", ["import kernelgen", "from kernelgen.cli import main; main(['--help'])"])
def test_the_package_and_its_help_load_nothing_heavy(code):
    code = f"{code}; import sys; print(*sys.modules, sep=chr(10))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not set(HEAVY) & set(loaded.splitlines())
