"""What kernelgen writes is, byte for byte, what copier writes."""

import json
import re
from pathlib import Path

import copier
import pytest

from kernelgen.scaffold.render import parse_yaml
from tests.conftest import ROOT, git, tree

RECIPES = sorted(
    folder.name.split("ops_by_recipe.")[1].split(" ")[0]
    for folder in (ROOT / "template").glob("src/*/ops/*ops_by_recipe.*")
    if not re.search(r"ops_by_recipe\.(pointwise|row_wise|shaped)", folder.name)  # `add-op` chooses these.
)
SCHEMAS = [
    "(Tensor x, Tensor? bias, float eps=1e-6) -> Tensor",
    "(Tensor(a!) out, Tensor[] xs, int[2] size, *, bool flag=False, str mode='a\"b') -> ()",
    "(Tensor lambda, Tensor operator) -> (Tensor left, Tensor right)",
]


def with_copier(checkout: Path, folder: Path, data: dict) -> dict:
    copier.run_copy(str(checkout), folder, data, defaults=True, quiet=True)
    return tree(folder)


@pytest.mark.parametrize("recipes", ([], *([recipe] for recipe in RECIPES), RECIPES))
def test_new_writes_what_copier_writes(checkout, stamp, tmp_path, recipes):
    project = stamp(*recipes)
    expected = with_copier(checkout, tmp_path / "copier" / project.name, {"recipes": recipes, "author": "Ada Lovelace"})
    assert tree(project) == expected


@pytest.mark.parametrize(
    "answers",
    (
        {"project_name": "Fast.Ops", "description": 'It\'s "quick": {{ 7 * 7 }} # yes', "license": "MIT"},
        {
            "cuda_architectures": "8.0;9.0a",
            "minimum_python": "3.12",
            "author": "Zoë 'Z' \\ O'Neil",
            "license": "none",
        },
    ),
)
def test_new_writes_what_copier_writes_for_other_answers(checkout, run, tmp_path, answers):
    answers = {"author": "", "recipes": ["elementwise"]} | answers
    file = tmp_path / "answers.yml"
    file.write_text(json.dumps(answers))
    done = run("new", tmp_path / "kernelgen" / "x", "--defaults", "--data-file", file)
    assert done.code == 0, done.err
    assert tree(tmp_path / "kernelgen" / "x") == with_copier(checkout, tmp_path / "copier" / "x", answers)


@pytest.mark.parametrize("recipe", RECIPES)
def test_add_op_writes_what_copier_writes(checkout, stamp, run, tmp_path, recipe):
    project = stamp("elementwise")
    for name in ("zeta", "an_op"):
        assert run("add-op", name, "--recipe", recipe, "--project", project).code == 0
    assert_as_copier_would(checkout, project, tmp_path)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_add_op_with_a_schema_writes_what_copier_writes(checkout, stamp, run, tmp_path, schema):
    project = stamp()
    added = run("add-op", "my_own", "--schema", schema, "--project", project)
    assert added.code == 0, added.err
    assert_as_copier_would(checkout, project, tmp_path)


def test_add_op_with_shapes_writes_what_copier_writes(checkout, stamp, run, tmp_path):
    project = stamp()
    for name, schema, shapes, backward in (
        ("gate", "(Tensor x, Tensor? b, SymInt k) -> (Tensor, Tensor)", "x: T E; b: E -> T k, T k int32", "none"),
        ("rotary", "(Tensor q, Tensor cos) -> Tensor", "q: ... S H D; cos: S D/2 -> ... S H D", "own"),
        ("total", "(Tensor(a!) xor, Tensor[] xs, *, str m='a\"b') -> ()", "xor: ... D; xs: D int64 < D", "none"),
    ):  # fmt: skip
        options = ["--schema", schema, "--shapes", shapes, "--backward", backward, "--project", project]
        added = run("add-op", name, *options)
        assert added.code == 0, added.err
    assert_as_copier_would(checkout, project, tmp_path)


def test_add_op_from_a_function_writes_what_copier_writes(checkout, stamp, run, tmp_path):
    source = tmp_path / "maths.py"
    source.write_text(
        "import torch\nfrom torch import Tensor\n\nSCALE = 2.0\n\n\n"
        "def scaled(x: Tensor, by: float = 1.0) -> Tensor:\n"
        '    """Scale {{ x }}."""\n    return x * by * SCALE  # {% if %} "quoted" \\n\n\n\n'
        "def share(x: Tensor) -> Tensor:\n    return x.softmax(-1)\n"
    )
    project = stamp()
    for name, function, recipe in (
        ("scaled", "scaled", []),
        ("share", "share", []),
        ("skeleton", "scaled", ["--recipe", "blank"]),
    ):
        added = run("add-op", name, "--from", f"{source}:{function}", *recipe, "--project", project)
        assert added.code == 0, added.err
    recorded = parse_yaml((project / ".copier-answers.yml").read_bytes())["ops"]
    assert [op["recipe"] for op in recorded] == ["pointwise", "row_wise", "shaped"]
    assert_as_copier_would(checkout, project, tmp_path)


def test_every_order_of_adding_gives_the_same_project(checkout, stamp, run):
    first, second = stamp(name="one/my-kernels"), stamp(name="two/my-kernels")
    for folder, names in ((first, "abc"), (second, "cab")):
        for name in names:
            assert run("add-op", f"op_{name}", "--recipe", "elementwise", "--project", folder).code == 0
    assert tree(first) == tree(second)


def assert_as_copier_would(checkout: Path, project: Path, scratch: Path) -> None:
    answers = parse_yaml((project / ".copier-answers.yml").read_bytes())
    assert answers["_commit"] == git(checkout, "describe", "--tags", "--always")
    data = {name: value for name, value in answers.items() if name[0] != "_" and name != "kernelgen_template"}
    assert tree(project) == with_copier(checkout, scratch / "copier" / project.name, data)
