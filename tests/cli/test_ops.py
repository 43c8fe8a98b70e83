"""`kernelgen add-op`, `remove-op` and `list`."""

import errno
import json
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from kernelgen.scaffold.render import parse_yaml
from tests.conftest import commit_all, git, tree

OPS = Path("src/my_kernels/ops")


def recorded(project: Path) -> list[str]:
    return [op["name"] for op in parse_yaml((project / ".copier-answers.yml").read_bytes())["ops"]]


def test_add_op_writes_one_folder_and_one_record(project, run):
    before = tree(project)
    added = run("add-op", "second", "--recipe", "elementwise")
    assert added.code == 0
    after = tree(project)
    assert {path for path in after if after[path] != before.get(path)} == {
        ".copier-answers.yml",
        *(path for path in after if path.startswith(f"{OPS}/second/")),
    }
    assert recorded(project) == ["elementwise", "second"]
    for step in ("1. edit", "2. kernelgen build", f"3. pytest {OPS}/second"):
        assert step in added.out


@pytest.mark.parametrize(("name", "code"), [("class", 2), ("a" * 101, 2), ("elementwise", 3)])
def test_a_name_is_refused_before_anything_is_assumed_of_the_op(project, run, name, code):
    refused = run("add-op", name, "--schema", "(Tensor x) -> Tensor")
    assert refused.code == code
    assert refused.err.count("\n") == 1


def test_an_operator_is_defined_once(project, run):
    with_gradient = ("--schema", "(Tensor x) -> Tensor", "--shapes", "x: ... D -> ... D", "--backward", "own")
    assert run("add-op", "gate", *with_gradient).code == 0
    refused = run("add-op", "gate_backward", "--recipe", "elementwise")
    assert refused.code == 3
    assert "gate_backward would define the operator gate_backward, which the op gate defines already" in refused.err
    assert run("add-op", "norm_backward", "--recipe", "elementwise").code == 0
    assert "which the op norm_backward defines already" in run("add-op", "norm", *with_gradient).err


@pytest.mark.parametrize("verb", (["list"], ["add-op", "x"], ["remove-op", "elementwise"], ["update"], ["build"]))
def test_a_package_whose_folder_was_renamed_is_missed(project, run, verb):
    (project / "src/my_kernels").rename(project / "src/other")
    before = tree(project)
    refused = run(*verb)
    assert refused.code == 1
    assert "src/my_kernels, which .copier-answers.yml names" in refused.err or "there is no folder src" in refused.err
    assert tree(project) == before


def test_a_project_that_is_not_there(project, run, tmp_path):
    for folder in (tmp_path / "nowhere", project / "misspelt"):
        refused = run("list", "--project", folder)
        assert refused.code == 2
        assert refused.err == f"kernelgen: There is no folder {folder}; name a project with --project.\n"


def test_what_to_do_next_holds_for_the_folder_one_is_in(project, run, monkeypatch):
    with_text_of_kernels = ("--schema", "(Tensor x) -> Tensor", "--shapes", "x: ... D -> ... D")
    assert run("add-op", "first", *with_text_of_kernels).code == 0
    monkeypatch.chdir(project.parent)
    added = run("add-op", "second", "--recipe", "elementwise", "--project", project.name, "--json").json
    here = f"{OPS}/second"
    assert added["next"] == [f"cd {project.name}", f"edit {here}/kernel.cu", "kernelgen build", f"pytest {here}"]


def test_add_then_remove_leaves_the_project_as_it_was(project, run):
    before = tree(project)
    assert run("add-op", "second", "--recipe", "elementwise").code == 0
    bytecode = OPS / "second/__pycache__/x.pyc"
    bytecode.parent.mkdir()
    bytecode.write_bytes(b"")
    assert run("remove-op", "second").code == 0
    assert tree(project) == before
    assert not (OPS / "second").exists()


@pytest.mark.parametrize("folder", (".", "src", "src/my_kernels/ops/elementwise"))
def test_ops_are_added_and_removed_from_every_folder_of_a_dirty_project(project, run, monkeypatch, folder):
    commit_all(project)
    (project / "mine.txt").write_text("uncommitted")
    monkeypatch.chdir(project / folder)
    assert run("add-op", "second", "--recipe", "elementwise").code == 0
    assert run("remove-op", "second").code == 0
    assert git(project, "status", "--porcelain") == "?? mine.txt"


def test_a_schema_is_recorded_with_the_shapes_that_are_assumed(project, run):
    added = run("add-op", "mine", "--schema", "(Tensor x, float eps=1e-6) -> Tensor", "--json")
    assert added.code == 0, added.out
    assert 'assumed --shapes "x: ... -> ...":' in added.err
    assert added.json["op"]["recipe"] == "shaped"
    assert added.json["op"]["shapes"]["text"] == "x: ... -> ..."
    assert added.json["op"]["schema"]["text"] == "(Tensor x, float eps=1e-6) -> Tensor"
    first = "edit " + ", ".join(f"{OPS}/mine/{name}" for name in ("cpu.cpp", "cuda.cpp", "kernel.cu"))
    assert added.json["next"] == [first, "kernelgen build", f"pytest {OPS}/mine"]
    listed = {op["name"]: op for op in run("list", "--json").json["ops"]}
    assert listed["mine"]["state"] == "pristine"
    assert "cuda" not in listed["mine"]["backends"]
    assert listed["elementwise"]["backends"] == ["cpu", "cuda"]


@pytest.mark.parametrize("recipe", ("elementwise", "rms_norm"))
def test_the_first_step_names_the_files_with_kernels(project, run, recipe):
    first = run("add-op", "mine", "--recipe", recipe, "--json").json["next"][0]
    assert first.startswith("edit ")
    for file in first.removeprefix("edit ").split(", "):
        assert "__global__" in (project / file).read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    (
        (["x", "--recipe", "elementwize"], 2, "Did you mean elementwise?"),
        (["x", "--schema", "(Tensor x) -> Tensor", "--from", "a.py:f"], 2, "leave one of them out"),
        (
            ["x", "--schema", "(Tensor x) -> Tensor", "--recipe", "elementwise"],
            2,
            "leave out --recipe elementwise",
        ),
        (["x", "--schema", "(Tensr x) -> Tensor"], 2, "^"),
        (["x", "--schema", ""], 2, "^"),
        (["x", "--from", "nowhere.py:f"], 2, "nowhere.py"),
        (["x", "--from", "nowhere"], 2, "FILE.py:FUNCTION"),
        (["elementwise"], 3, "already"),
        (["../x"], 2, "lower-case"),
        (["class"], 2, "is reserved in"),
        (["torch"], 2, "cannot name an op"),
        (["test_time_norm"], 2, "pytest would take its function for a test. Try op_test_time_norm."),
        (["list", "--recipe", "elementwise"], 2, "'list' cannot name this op: __init__.py uses that name itself"),
        (["flops", "--recipe", "swiglu"], 2, "lab.py uses that name itself. Try flops_op."),
        (["paged", "--recipe", "append_to_cache"], 2, "test_paged.py uses that name itself"),
        (["sys"], 2, "__init__.py uses that name itself"),
        (["x", "--schema", "(Tensor[]? xs) -> Tensor"], 2, "takes tensors only in lists that may be None"),
        (["x", "--schema", "y.out(Tensor x) -> Tensor"], 2, "let the op's name begin with y"),
        (["x", "--schema", "(int n) -> Tensor", "--shapes", "n: N"], 2, "takes no tensor, so leave out --shapes"),
        (["x", "--schema", "(int n) -> Tensor", "--backward", "own"], 2, "takes no tensor to differentiate by"),
        (["x_other", "--schema", "x.o(Tensor x) -> Tensor", "--shapes", "x: N -> N"], 2, "which x.o is not"),
        (["sharding"], 3, "in the way"),
    ),
)
def test_an_op_that_cannot_be_added_is_refused_and_nothing_is_written(project, run, arguments, code, message):
    before = tree(project)
    refused = run("add-op", *arguments)
    assert refused.code == code
    assert message in refused.err
    assert tree(project) == before


def test_a_folder_in_the_way_is_not_touched(project, run):
    (OPS / "second").mkdir()
    (OPS / "second/mine.txt").write_text("mine")
    before = tree(project)
    refused = run("add-op", "second", "--recipe", "elementwise")
    assert refused.code == 3
    assert f"{OPS}/second is in the way" in refused.err
    assert tree(project) == before
    (OPS / "second/mine.txt").unlink()
    assert run("add-op", "second", "--recipe", "elementwise").code == 0


@pytest.mark.parametrize("verb", (["add-op", "second", "--recipe", "elementwise"], ["remove-op", "elementwise"]))
def test_a_dry_run_is_a_diff_that_git_applies(project, run, tmp_path, verb):
    commit_all(project)
    before = tree(project)
    result = run(*verb, "--dry-run")
    assert result.code == 0
    assert tree(project) == before
    (tmp_path / "plan.diff").write_text(result.out)
    git(project, "apply", str(tmp_path / "plan.diff"))
    by_git = tree(project)
    git(project, "add", "--all")
    git(project, "reset", "--quiet", "--hard")
    assert run(*verb).code == 0
    assert tree(project) == by_git


def test_remove_op_refuses_edits_and_additions(project, run):
    run("add-op", "second", "--recipe", "elementwise")
    (OPS / "second/reference.py").write_text("mine")
    (OPS / "second/notes.txt").write_text("mine")
    before = tree(project)
    refused = run("remove-op", "second")
    assert refused.code == 3
    assert f"{OPS}/second/notes.txt, {OPS}/second/reference.py" in refused.err
    assert tree(project) == before
    assert run("remove-op", "second", "--force").code == 0
    assert recorded(project) == ["elementwise"]
    assert not (OPS / "second").exists()


def test_build_outputs_and_line_ends_are_no_edits(project, run):
    (OPS / "elementwise/_cpu.so").write_bytes(b"\x7fELF")
    reference = OPS / "elementwise/reference.py"
    reference.write_bytes(reference.read_bytes().replace(b"\n", b"\r\n"))
    assert run("list", "--json").json["ops"][0]["state"] == "pristine"
    assert run("remove-op", "elementwise").code == 0
    assert not (OPS / "elementwise").exists()


def test_remove_op_brings_record_and_disk_together(project, run):
    import shutil

    shutil.rmtree(OPS / "elementwise")
    assert run("list", "--json").json["ops"][0]["state"] == "missing"
    assert run("remove-op", "elementwise").code == 0
    assert recorded(project) == []

    (OPS / "stray").mkdir()
    (OPS / "stray/kernel.cu").write_text("mine")
    assert run("list", "--json").json["ops"] == [
        {"name": "stray", "recipe": None, "state": "unrecorded", "backends": [], "proven": {}}
    ]
    assert run("remove-op", "stray").code == 3
    assert run("remove-op", "stray", "--force").code == 0
    assert not (OPS / "stray").exists()
    refused = run("remove-op", "stray")
    assert refused.code == 2
    assert "There is no op 'stray'" in refused.err


@pytest.mark.parametrize("name", ("../../..", "..", ".", "", "/", "__pycache__"))
def test_remove_op_takes_only_names_of_ops(project, run, name):
    before = tree(project)
    assert run("remove-op", name, "--force").code == 2
    assert tree(project) == before


def test_list_shows_ops_and_recipes(project, run):
    run("add-op", "second", "--recipe", "elementwise")
    (OPS / "second/reference.py").write_text("mine")
    (OPS / "second/cuda.cpp").write_text("NOT_WRITTEN(x)")
    listed = run("list", "--json").json
    assert listed["ops"] == [
        {
            "name": "elementwise",
            "recipe": "elementwise",
            "state": "pristine",
            "backends": ["cpu", "cuda"],
            "proven": {},
        },
        {"name": "second", "recipe": "elementwise", "state": "edited", "backends": ["cpu"], "proven": {}},
    ]
    assert {"blank", "elementwise"} <= listed["recipes"].keys()
    assert all(summary and "{" not in summary for summary in listed["recipes"].values())
    result = run("list").out
    assert "elementwise  cpu, cuda  pristine  not proven" in result
    assert "Recipes:" in result


@pytest.mark.parametrize("verb", (["add-op", "x"], ["remove-op", "x"], ["list"], ["update"], ["build"]))
@pytest.mark.parametrize(
    ("text", "message"),
    (
        (None, "not inside a kernelgen project"),
        ("_commit: v1\nops: []\n", "another template"),
        ("just text\n", "another template"),
        ("ops: []\npackage_name: x\nkernelgen_template: 2\n", "newer kernelgen"),
        ("<<<<<<< ours\nops: []\n=======\n", "not valid YAML"),
        ("a: [\n", "not valid YAML (line"),
        ("package_name: ../../x\nops: []\nkernelgen_template: 1\n", "`package_name`"),
        ("package_name: x\nops: [{name: ../x, recipe: elementwise}]\nkernelgen_template: 1\n", "`ops`"),
        ("package_name: x\nops: 7\nkernelgen_template: 1\n", "`ops`"),
    ),
)
def test_a_folder_that_is_no_project_is_refused(checkout, run, tmp_path, verb, text, message):
    if text is not None:
        (tmp_path / ".copier-answers.yml").write_text(text)
    refused = run(*verb, "--project", tmp_path)
    assert refused.code == 1
    assert message in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize("code", (errno.ENOSPC, errno.EROFS))
def test_a_full_or_read_only_disk_is_one_sentence_and_no_change(project, run, monkeypatch, code):
    import os

    before = tree(project)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", Mock(side_effect=OSError(code, os.strerror(code), "kernel.cu")))
        failed = run("add-op", "second", "--recipe", "elementwise")
    assert failed.code == 1
    assert os.strerror(code) in failed.err
    assert failed.err.count("\n") == 1
    assert tree(project) == before


def test_json_lists_the_changes(project, run):
    added = run("add-op", "second", "--recipe", "elementwise", "--json").json
    assert added["applied"] is True
    assert added["update"] == [".copier-answers.yml"]
    assert f"{OPS}/second/kernel.cu" in added["create"]
    assert added["op"] == {"name": "second", "recipe": "elementwise"}
    removed = run("remove-op", "second", "--json", "--dry-run").json
    assert removed["delete"] == added["create"]
    assert removed["applied"] is False
    assert json.dumps(removed["diff"])


@pytest.mark.parametrize("verb", ("new", "add-op", "remove-op", "update"))
def test_verbs_that_write_sources_can_show_their_plan_first(run, verb):
    options = run(verb, "--help").out
    assert "--dry-run" in options
    assert "--json" in options


def functions(folder: Path) -> Path:
    file = folder / "functions.py"
    file.write_text(
        "import torch\nfrom torch import Tensor\n\n\n"
        "def gate(x: Tensor, up: Tensor, scale: float = 1.0) -> Tensor:\n    return x.sigmoid() * up * scale\n\n\n"
        "def products(x: Tensor) -> Tensor:\n    return x @ x.mT\n\n\n"
        "def step_(p: Tensor, g: Tensor, lr: float = 0.1) -> None:\n    p.sub_(lr * g)\n\n\n"
        "def pack(low: Tensor, high: Tensor) -> Tensor:\n    return (high & 15) << 4 | low & 15\n\n\n"
        "def pairs(x):\n    return x + 1, x.sum(-1)\n\n\n"
        "def first(x):\n    return torch.topk(x, 1)\n\n\n"
        "def dequantized(q: Tensor, scale: Tensor) -> Tensor:\n    return q.to(torch.float32) * scale\n\n\n"
        "def counted(x: Tensor, labels: Tensor) -> Tensor:\n    return torch.where(labels != -100, x, 0.0)\n\n\n"
        "def both(x: Tensor) -> Tensor:\n    return x + 1, x.sum(-1)\n\n\n"
        "def triples(x: Tensor) -> Tensor:\n    return x.reshape(-1, 3, 7, 5).cumsum(1)\n\n\n"
        "def tops(x: Tensor) -> Tensor:\n    return x.sort().values[: x.shape[0] // x.shape[1]]\n\n\n"
        "def spectrum(x: Tensor) -> Tensor:\n    return torch.fft.rfft(x).abs()\n"
    )
    return file


def test_a_function_that_decomposes_needs_no_hand(project, run, tmp_path):
    added = run("add-op", "gate", "--from", f"{functions(tmp_path)}:gate", "--json")
    assert added.code == 0, added.err
    assert added.json["op"]["recipe"] == "pointwise"
    assert added.json["next"] == ["kernelgen build", f"pytest {OPS}/gate"]
    listed = {op["name"]: op for op in run("list", "--json").json["ops"]}
    assert listed["gate"]["state"] == "pristine"
    assert listed["gate"]["backends"] == ["cpu", "cuda"]


def test_the_operator_that_was_in_the_way_is_named(project, run, tmp_path):
    added = run("add-op", "products", "--from", f"{functions(tmp_path)}:products", "--json")
    assert added.code == 0, added.err
    assert added.json["op"]["recipe"] == "shaped"
    assert "In the way was the operator aten.bmm." in added.err
    assert f'assumed --shapes "{added.json["op"]["shapes"]["text"]}":' in added.err


def test_a_function_that_writes_to_its_arguments_is_refused_with_the_schema_to_write(project, run, tmp_path):
    added = run("add-op", "step", "--from", f"{functions(tmp_path)}:step_")
    assert added.code == 2
    schema = "(Tensor(a0!) p, Tensor g, float lr=0.1) -> ()"
    assert (
        f'step_ writes to p, which annotations do not say; write `kernelgen add-op step --schema "{schema}"`'
        in added.err
    )
    assert run("add-op", "step", "--schema", schema).code == 0


def test_shapes_are_learned_of_whole_numbers_alone(project, run, tmp_path):
    added = run("add-op", "pack", "--from", f"{functions(tmp_path)}:pack", "--backward", "none", "--json")
    assert added.json["op"]["shapes"]["text"] == "low, high: ... N int64 -> ... N int64"


def test_a_function_without_annotations(project, run, tmp_path):
    added = run("add-op", "pairs", "--from", f"{functions(tmp_path)}:pairs", "--json")
    assert added.json["op"]["recipe"] == "row_wise"
    assert 'assumed "(Tensor x) -> (Tensor, Tensor)": annotate x and its result if that is not so' in added.err


def test_the_results_of_a_function_without_annotations_are_counted(project, run, tmp_path):
    added = run("add-op", "first", "--from", f"{functions(tmp_path)}:first", "--json")
    assert added.json["op"]["recipe"] == "row_wise"
    assert 'first returned 2 tensors: assumed "(Tensor x) -> (Tensor, Tensor)"' in added.err


def test_integers_are_read_where_shapes_say_so(project, run, tmp_path):
    shapes = "q: ... D int8; scale: ... 1 float32 -> ... D float32"
    added = run("add-op", "dequantized", "--from", f"{functions(tmp_path)}:dequantized", "--shapes", shapes, "--json")
    assert added.json["op"]["recipe"] == "pointwise"
    assert [tensor["dtype"] for tensor in added.json["op"]["traced"]["tensors"]] == ["int8", "float"]


def test_what_was_assumed_of_tensors_that_are_only_compared(project, run, tmp_path):
    added = run("add-op", "counted", "--from", f"{functions(tmp_path)}:counted")
    assert "assumed labels of floating-point numbers: write dtypes as --shapes if that is not so" in added.err


@pytest.mark.parametrize("recipe", [[], ["--recipe", "blank"]])
def test_a_function_that_returns_more_tensors_than_it_says(project, run, tmp_path, recipe):
    refused = run("add-op", "both", "--from", f"{functions(tmp_path)}:both", *recipe)
    assert refused.code == 2
    assert "both returned 2 tensors, its signature says 1; annotate it by `-> tuple[Tensor, Tensor]`." in refused.err


@pytest.mark.parametrize(
    ("function", "sides", "line"),
    [
        ("triples", [], 'raise NotImplementedError("inputs not written yet")'),
        ("tops", [17, 20, 1, 101], "cases = ((17, 17), (20, 20), (1, 1), (101, 101))"),
        ("spectrum", [17, 20, 1, 101], "cases = ((17, 17), (20, 20), (1, 1), (101, 101))"),
    ],
)
def test_where_no_shapes_are_known_the_tests_draw_what_the_function_takes(
    project, run, tmp_path, function, sides, line
):
    added = run("add-op", function, "--from", f"{functions(tmp_path)}:{function}", "--json")
    assert added.json["op"]["recipe"] == "blank"
    assert added.json["op"]["sides"] == sides
    assert line in (project / OPS / function / f"test_{function}.py").read_text()


def test_the_skeleton_is_to_be_had(project, run, tmp_path):
    added = run("add-op", "gate", "--recipe", "blank", "--from", f"{functions(tmp_path)}:gate", "--json")
    assert added.json["op"]["recipe"] == "shaped"
    assert "In the way" not in added.err


@pytest.mark.parametrize("has_python", [True, False])
def test_without_torch_a_function_has_no_kernels_and_a_skeleton_is_to_be_asked_for(
    project, run, tmp_path, monkeypatch, has_python
):
    """The command would end well otherwise, and stamp what its user has not meant."""
    if has_python:
        python = tmp_path / "bin" / "python"
        python.parent.mkdir()
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        python.chmod(0o755)
        monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
        cure = f"{python} has no torch, which traces functions; get it with: {python} -m pip install --group dev."
    else:
        monkeypatch.delenv("VIRTUAL_ENV", raising=False)
        monkeypatch.setattr("kernelgen.toolchain.python.find_spec", lambda name: None)
        monkeypatch.setattr("kernelgen.toolchain.python._environments", lambda root: [])
        cure = "No Python with torch was found for"
    before = recorded(project)
    refused = run("add-op", "gate", "--from", f"{functions(tmp_path)}:gate")
    assert refused.code == 1
    assert cure in refused.err
    assert "Or have a skeleton, by --recipe blank." in refused.err
    assert recorded(project) == before
    assert run("add-op", "gate", "--recipe", "blank", "--from", f"{functions(tmp_path)}:gate").code == 0


@pytest.mark.parametrize("shapes", ["x, up: M N -> N", "x, up: M N -> M N, M", "x, up: M N -> M N int64"])
def test_wrong_shapes_are_refused_before_anything_is_traced(project, run, tmp_path, monkeypatch, shapes):
    monkeypatch.setattr("kernelgen.lab.new_op.kernels.trace", lambda *_: pytest.fail("it was traced"))
    refused = run("add-op", "gate", "--from", f"{functions(tmp_path)}:gate", "--shapes", shapes)
    assert refused.code == 2
    assert "returns" in refused.err


def test_shapes_are_held_against_the_function(project, run, tmp_path):
    spec = f"{functions(tmp_path)}:products"
    blank = ("--recipe", "blank", "--from", spec)
    refused = run("add-op", "products", *blank, "--shapes", "x: N -> N")
    assert refused.code == 2
    assert "products does not take x of shape (33,)" in refused.err
    refused = run("add-op", "products", *blank, "--shapes", "x: B M N -> B M N")
    assert refused.code == 2
    assert "--shapes says that out is B M N" in refused.err
    added = run("add-op", "products", *blank, "--shapes", "x: B M N -> B M M", "--backward", "own")
    assert added.code == 0, added.err
    assert "Tensor grad_x" in (project / OPS / "products" / "__init__.py").read_text()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--shapes", "x: N -> N"), "--shapes and --backward go with --schema or --from."),
        (("--recipe", "shaped"), "The recipe shaped is for ops whose shapes are known"),
        (("--schema", "(Tensor x) -> Tensor", "--shapes", "x: N -> M"), "M is not known"),
        (
            ("--schema", "(Tensor(a!) x) -> ()", "--backward", "own"),
            "mine writes to its arguments, so it has no gradient",
        ),
    ],
)
def test_shapes_that_cannot_be_are_refused(project, run, options, sentence):
    refused = run("add-op", "mine", *options)
    assert refused.code == 2
    assert sentence in refused.err


def test_a_recipe_of_functions_needs_one(project, run):
    refused = run("add-op", "gate", "--recipe", "pointwise")
    assert refused.code == 2
    assert "`kernelgen add-op gate --from FILE.py:FUNCTION`" in refused.err


@pytest.mark.parametrize("text", ["[", "[1]", '{"elementwise": 3}', '{"elementwise": {"cpu": {}}}'])
def test_a_record_of_proofs_that_is_damaged_proves_nothing(project, run, text):
    (project / "build").mkdir()
    (project / "build" / "proven.json").write_text(text)
    assert run("list", "--json").json["ops"][0]["proven"] == {}
