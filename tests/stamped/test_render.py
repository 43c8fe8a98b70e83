"""Stamped files, for the answers that people give: complete, well-formed and clean."""

import json
import py_compile
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from .conftest import EVERY_OP, REPOSITORY, blank, stamp

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECIPES = (
    *("append_to_cache", "blank", "elementwise"),
    *("flash_attention", "flash_attention_fp8", "flash_attention_paged", "flash_attention_varlen"),
    *("layer_norm", "linear_activation", "linear_fp8", "quantize_fp8", "rms_norm", "rms_norm_fp8", "swiglu"),
    "swiglu_fp8",
)

# For the breaks of lines: short and long names, and argument lists about as long as a line.
ARGUMENTS = [f"{kind} a{i}" for i, kind in enumerate(["Tensor", "Tensor?", "int[2]", "float", "Tensor[]"] * 2)]
LENGTHS = [
    *(
        {"name": name * length, "recipe": recipe}
        for name, recipe in zip("abefighnpxqrmsw", RECIPES, strict=True)
        for length in (1, 36)
    ),
    *(
        blank(f"of_{i}", f"(Tensor {'x' * i}, {', '.join(ARGUMENTS[: i % 8 + 1])}, *, str y) -> ()")
        for i in range(1, 21)
    ),
]

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
    "line lengths": {"ops": sorted(LENGTHS, key=lambda op: op["name"])},
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
    """Jinja is written with a space or a dash after its braces, which neither C++ nor an f-string's `{{"` has.

    GitHub's workflows have an expression syntax of their own, `${{ … }}`. Answers stay as they are, Jinja or not.
    """
    root, answers = project
    for path in files(root, "*"):
        text = path.read_text(encoding="utf-8")
        for answer in filter(None, (answers.get(name) for name in ("description", "author"))):
            # The answers file folds long lines; another test reads it.
            text = (
                "" if path.name == ".copier-answers.yml" else text.replace(json.dumps(answer), "").replace(answer, "")
            )
        assert not re.search(r"(?<!\$)\{\{[ -]|\{%|\{#", text), path
        assert not re.search("[{}]", str(path.relative_to(root)))


def test_answers_are_recorded_as_they_were_given(project):
    root, answers = project
    recorded = yaml.safe_load((root / ".copier-answers.yml").read_text(encoding="utf-8"))
    answered = {name: value for name, value in answers.items() if name != "recipes"}
    assert {name: recorded[name] for name in answered} == answered


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


@pytest.mark.parametrize("workflow", ("gpu", "emulated"))
def test_a_workflow_installs_the_kernelgen_of_the_record(workflow, tmp_path, monkeypatch, capsys):
    text = (REPOSITORY / "template" / ".github" / "workflows" / f"{workflow}.yml.jinja").read_text()
    code = textwrap.dedent(text.split("<<'EOF'\n")[1].split("          EOF\n")[0])
    monkeypatch.chdir(tmp_path)
    for source, installed in (
        ("https://example.com/k.git", "https://example.com/k.git"),
        ("git+https://example.com/k", "https://example.com/k"),
        ("gh:someone/k", "https://github.com/someone/k"),
    ):
        Path(".copier-answers.yml").write_text(yaml.safe_dump({"_commit": "v1", "_src_path": source}))
        exec(code, {})
        assert capsys.readouterr().out == f"kernelgen[lab] @ git+{installed}@v1\n"
    for answers in ({"_commit": "v1", "_src_path": "/home/ann/kernelgen"}, {"_commit": "v1"}):
        Path(".copier-answers.yml").write_text(yaml.safe_dump(answers))
        with pytest.raises(SystemExit, match="names no repository that this job can reach"):
            exec(code, {})


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


# Sources that are formatted by the style beside them: most are the same in every project.
_FORMATTED: set[tuple[str, str]] = set()


def test_clang_format_is_clean(project):
    root, _ = project
    style = (root / ".clang-format").read_text(encoding="utf-8")
    texts = {path: (style, path.read_text(encoding="utf-8")) for path in files(root, "*.cpp", "*.cu", "*.cuh", "*.h")}
    sources = [path for path, text in texts.items() if text not in _FORMATTED]
    command = [str(Path(sys.executable).parent / "clang-format"), "--dry-run", "--Werror", *map(str, sources)]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert result.returncode == 0, result.stderr
    _FORMATTED.update(texts.values())


def test_no_answer_was_run(project):
    assert not files(project[0], "pwned*")
