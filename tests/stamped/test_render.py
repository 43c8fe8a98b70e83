"""What is stamped, for the answers that people give: whole, well-formed and clean."""

import py_compile
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .conftest import EVERY_OP, stamp

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ANSWERS = {
    "defaults": {},
    "no ops": {"ops": []},
    "one op": {"recipes": ["elementwise"]},
    "blank": {"recipes": ["blank"]},
    "every op": {"ops": EVERY_OP},
    "MIT": {"license": "MIT"},
    "BSD": {"license": "BSD-3-Clause"},
    "no licence": {"license": "none"},
    "pinned": {"cuda_architectures": "8.0;9.0a;10.0f;12.0+PTX"},
    "new Python": {"minimum_python": "3.13"},
    "long names": {"project_name": "a" * 60, "package_name": "p" * 40},
    "author": {"author": 'Zoë "Z" O\'Neil <zoe@example.org>'},
    # Text that is Jinja, TOML, Python or shell stays text.
    "hostile": {
        "description": "\"quoted\" 'single' {{ 7 * 7 }} {% raw %} \\ $(touch pwned) `id` <b> # ]]>",
        "author": "{{ cycler.__init__.__globals__ }} \"\\\" '''",
    },
}


@pytest.fixture(scope="module", params=ANSWERS, ids=str)
def project(request, tmp_path_factory) -> tuple[Path, dict]:
    answers = ANSWERS[request.param]
    return stamp(tmp_path_factory.mktemp("render") / "my-kernels", **answers), answers


def files(project: Path, *patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in project.rglob(pattern) if path.is_file())


def test_no_jinja_is_left(project):
    root, answers = project
    hostile = "".join(str(value) for value in answers.values())
    for path in files(root, "*"):
        text = path.read_text(encoding="utf-8")
        if "{{" in hostile and path.name in (
            ".copier-answers.yml",
            "pyproject.toml",
            "README.md",
            "LICENSE",
            "AGENTS.md",
        ):
            continue
        # GitHub's workflows have an expression syntax of their own: ${{ … }}.
        assert not re.search(r"(?<!\$)\{\{|\{%|\{#", text), path
        assert "{{" not in str(path.relative_to(root))


def test_python_compiles(project, tmp_path):
    for path in files(project[0], "*.py"):
        py_compile.compile(str(path), cfile=str(tmp_path / "compiled"), doraise=True)


def test_configuration_parses(project):
    root, answers = project
    for path in files(root, "*.yml", "*.yaml"):
        yaml.safe_load(path.read_text(encoding="utf-8"))
    configuration = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in ("description", "author"):
        if name in answers:
            stamped = configuration["description"] if name == "description" else configuration["authors"][0]["name"]
            assert stamped == answers[name]
    assert (root / "LICENSE").exists() == (answers.get("license") != "none")


def test_text_files_end_in_one_newline_and_no_blanks(project):
    for path in files(project[0], "*"):
        text = path.read_text(encoding="utf-8")
        assert not text or (text.endswith("\n") and not text.endswith("\n\n")), path
        assert not re.search(r"[ \t]+$", text, re.MULTILINE), path


def test_ruff_is_clean(project):
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check"], ["format", "--check", "--diff"]):
        result = subprocess.run([*ruff, *command, "."], cwd=project[0], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


def test_clang_format_is_clean(project):
    root, _ = project
    sources = files(root, "*.cpp", "*.cu", "*.cuh", "*.h")
    command = [str(Path(sys.executable).parent / "clang-format"), "--dry-run", "--Werror", *map(str, sources)]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_nothing_was_run(project):
    assert not files(project[0], "pwned*")
