"""The documents of a stamped project are true of the project and of kernelgen."""

import re
import sys
from pathlib import Path

import pytest

from kernelgen.cli import VERBS

from ..docs import pages
from .conftest import REPOSITORY, one_op_project, run

TOPICS = {page.stem for page in (REPOSITORY / "docs").glob("*.md")}
COOKBOOK = {"building", "lab", "optimising", "troubleshooting", "tuning"}


@pytest.fixture(scope="module")
def project(made_once) -> Path:
    """Built in place, and not installed."""
    return one_op_project(made_once)


@pytest.fixture(scope="module")
def documents(project) -> dict[str, str]:
    """The text of each document by its path."""
    inside = (file for folder in ("docs", "baselines", ".github") for file in (project / folder).rglob("*.md"))
    files = [*project.glob("*.md"), *inside]
    return {file.relative_to(project).as_posix(): file.read_text(encoding="utf-8") for file in files}


def test_the_import_check_works_without_an_installation(project):
    (command,) = re.findall(r"`(PYTHONPATH=.* python -c .*)`", (project / "AGENTS.md").read_text(encoding="utf-8"))
    command = command.replace("python", sys.executable, 1)
    checked = run(["bash", "-c", command], project, PYTHONPATH=None)
    assert checked.stdout.startswith("{'CPU': None, 'CUDA': "), checked.stderr


def test_links_lead_somewhere(project, documents):
    for name, text in documents.items():
        for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", text):
            path, _, heading = target.partition("#")
            file = (project / name).parent / path if path else project / name
            assert file.exists(), f"{name} links to {target}"
            if heading:
                assert heading in pages.anchors_in(file.read_text(encoding="utf-8")), f"{name} links to {target}"


def test_the_readme_s_tree_is_there(project):
    readme = (project / "README.md").read_text(encoding="utf-8")
    (tree,) = re.findall(r"## Where things are\n\n```\n(.*?)```", readme, re.DOTALL)
    folders: list[str] = []
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        folders = [*folders[:depth], name]
        path = project / "".join(folders).replace("NAME", "elementwise")
        assert path.exists(), f"README.md shows {path.relative_to(project)}"
    for room in re.search(r"include/ +.*: (.*)", tree)[1].split():
        assert list((project / "src" / "demo_kernels" / "include" / room).glob("*.*h")), room


def test_every_room_and_module_is_described(project):
    architecture = (project / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = [folder.name for folder in (project / "src" / "demo_kernels" / "include").iterdir() if folder.is_dir()]
    assert sorted(re.findall(r"^\| `(\w+)/` \|", architecture, re.MULTILINE)) == sorted(rooms)
    suite = {file.stem for file in (project / "tests" / "suite").glob("*.py")} - {"__init__"}
    assert {module for module in suite if f"`{module}.py`" not in architecture} == set()


def test_every_header_that_is_named_is_there(project, documents):
    include = project / "src" / "demo_kernels" / "include"
    for name, text in documents.items():
        for header in re.findall(r"`include/([\w/]+\.c?u?h)`", text):
            assert (include / header).exists(), f"{name} names include/{header}"


def test_recipes_name_files_that_are_there():
    files = [path for folder in ("template", "docs") for path in (REPOSITORY / folder).rglob("*") if path.is_file()]
    names = [path.as_posix().removesuffix(".jinja").replace("{{ op.name }}", "NAME") for path in files]
    for page in (REPOSITORY / "template").glob("src/*/ops/*/**/*.jinja"):
        text = page.read_text(encoding="utf-8").replace("{{ op.name }}", "NAME")
        for name in set(re.findall(r"`([\w./-]+\.(?:cuh?|h|cpp|py|md|json))`", text)) - {"tuned.json"}:
            assert any(file.endswith(name.lstrip(".")) for file in names), f"{page.name} names {name}"


def test_every_command_of_kernelgen_is_there(documents):
    text = "\n".join(documents.values())
    assert set(re.findall(r"(?:`|\$ )kernelgen ([\w-]+)", text)) <= set(VERBS)
    named = set(re.findall(r"kernelgen help ([a-z-]+)", text))
    assert named <= TOPICS
    for name in ("README.md", "AGENTS.md"):
        assert set(re.findall(r"kernelgen help ([a-z-]+)", documents[name])) >= COOKBOOK


def test_the_template_of_pull_requests_asks_for_evidence(project):
    template = (project / ".github" / "pull_request_template.md").read_text(encoding="utf-8")
    for evidence in ("ratio", "interval", "Cliff's δ", "p (Holm)", "Profile before and after"):
        assert evidence in template
