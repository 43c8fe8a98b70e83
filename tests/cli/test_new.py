"""`kernelgen new`."""

import io
import os
import pty
import signal
import subprocess
import sys
import termios

import pytest

from kernelgen.scaffold.render import parse_yaml
from tests.conftest import ROOT, tree

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def answers(folder) -> dict:
    return parse_yaml((folder / ".copier-answers.yml").read_bytes())


def test_new_makes_a_project_and_prints_what_to_type_next(checkout, run, tmp_path):
    result = run("new", tmp_path / "fast-ops", "--defaults", "--data", "recipes=elementwise")
    assert result.code == 0
    assert "git init" in result.out
    assert "pip install" in result.out
    assert str(tmp_path / "fast-ops") in result.out
    recorded = answers(tmp_path / "fast-ops")
    assert (recorded["project_name"], recorded["package_name"]) == ("fast-ops", "fast_ops")
    assert recorded["author"] == "Ada Lovelace"
    assert recorded["ops"] == [{"name": "elementwise", "recipe": "elementwise"}]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_to_type_next_can_be_typed(checkout, run, tmp_path):
    result = run("new", tmp_path / "it's mine", "--defaults", "--data", "recipes=")
    assert f"cd '{tmp_path}/it'\"'\"'s mine'" in result.out


def test_an_empty_folder_is_used_and_a_full_one_is_not(checkout, run, tmp_path):
    (tmp_path / "empty").mkdir()
    assert run("new", tmp_path / "empty", "--defaults", "--data", "recipes=").code == 0
    before = tree(tmp_path)
    for full in (tmp_path / "empty", tmp_path / "empty/setup.py"):
        refused = run("new", full, "--defaults")
        assert refused.code == 3
        assert "not an empty folder" in refused.err
    assert tree(tmp_path) == before


def test_a_dry_run_writes_nothing(checkout, run, tmp_path):
    result = run("new", tmp_path / "x", "--defaults", "--data", "recipes=elementwise", "--dry-run")
    assert "+++ b/setup.py" in result.out
    result = run("new", tmp_path / "x", "--defaults", "--data", "recipes=elementwise", "--dry-run", "--json")
    assert result.json["applied"] is False
    assert "setup.py" in result.json["create"]
    assert "+++ b/setup.py" in result.json["diff"]
    assert list(tmp_path.iterdir()) == []


def test_json_is_one_object(checkout, run, tmp_path):
    result = run("new", tmp_path / "x", "--defaults", "--data", "recipes=elementwise", "--json").json
    assert result["applied"] is True
    assert sorted(result["create"]) == sorted(tree(tmp_path / "x"))


def test_data_on_the_command_line_wins_over_the_file(checkout, run, tmp_path):
    file = tmp_path / "a.yml"
    file.write_text("license: MIT\ndescription: from the file\nrecipes: [elementwise]\n")
    result = run("new", tmp_path / "x", "--defaults", "--data-file", file, "--data", "description=a=b: c")
    assert result.code == 0, result.err
    recorded = answers(tmp_path / "x")
    assert (recorded["license"], recorded["description"]) == ("MIT", "a=b: c")


@pytest.mark.parametrize(
    ("name", "project_name", "package_name"),
    (
        ("my kernels!", "my-kernels", "my_kernels"),
        ("torch", "torch", "torch_kernels"),
        ("2fast", "fast", "fast"),
        ("a--b", "a--b", "a_b"),
        ("λ", "my-kernels", "my_kernels"),
        ("{{ 7 * 7 }}", "my-kernels", "my_kernels"),
        ("Dots.And_More", "Dots.And_More", "dots_and_more"),
    ),
)
def test_every_folder_name_has_default_names(checkout, run, tmp_path, name, project_name, package_name):
    result = run("new", tmp_path / name, "--defaults", "--data", "recipes=")
    assert result.code == 0, result.err
    recorded = answers(tmp_path / name)
    assert (recorded["project_name"], recorded["package_name"]) == (project_name, package_name)


@pytest.mark.parametrize(
    ("data", "message"),
    (
        ("project_name=-x", "project_name: A project name starts with a letter"),
        ("project_name=../x", "project_name: A project name starts with a letter"),
        ("package_name=My", "package_name: A package name starts with a lower-case"),
        ("package_name=a/../../b", "package_name: A package name starts with a lower-case"),
        ("package_name=torch", "'torch' is a keyword or would shadow"),
        ("package_name=class", "'class' is a keyword or would shadow"),
        ("description=a\nb", "description: A description is one line"),
        ("author=a\x1bb", "author: An author is one line"),
        ("license=GPL", "'GPL' is not in"),
        ("cuda_architectures=sm_90", "cuda_architectures: CUDA architectures are"),
        ("cuda_architectures=9.0,8.0", "cuda_architectures: CUDA architectures are"),
        ("minimum_python=2.7", "minimum_python: The oldest Python is 3.10"),
        ("recipes=elementwize", "Did you mean elementwise?"),
        ("recipes=[elementwise, nope]", "There is no recipe 'nope'"),
        ("licence=MIT", "Did you mean license?"),
        ("reserved_names=[]", "There is no question 'reserved_names'"),
        ("license", "--data takes name=value"),
        ("author=\udcff", r"--data takes text in UTF-8, not b'author=\xff'"),
        ("ops=[{name: ../x, recipe: elementwise}]", "Each of `ops` needs"),
        ("ops=[{name: a, recipe: nope}]", "There is no recipe 'nope'"),
        ("ops=[{name: class, recipe: elementwise}]", "is reserved in"),
        ("ops={", "expected"),
        ("ops=5", "Each of `ops` needs"),
        ("ops=text", "Each of `ops` needs"),
        ("ops=[1]", "Each of `ops` needs"),
        ("ops=[{name: a}]", "Each of `ops` needs"),
        ("ops=[{name: a, recipe: blank}, {name: a, recipe: elementwise}]", "a name of its own"),
        ("recipes=7", "There is no recipe '7'"),
    ),
)
def test_an_answer_that_is_not_allowed_is_refused_in_a_sentence(checkout, run, tmp_path, data, message):
    refused = run("new", tmp_path / "x", "--defaults", "--data", data)
    assert refused.code == 2
    assert message in refused.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    (
        ("a: [", "not valid YAML"),
        ("just text", "holds no answers"),
        ("\x00", "not valid YAML"),
        (None, "No such file"),
    ),
)
def test_a_file_that_holds_no_answers_is_refused(checkout, run, tmp_path, text, message):
    if text is not None:
        (tmp_path / "a.yml").write_text(text)
    refused = run("new", tmp_path / "x", "--defaults", "--data-file", tmp_path / "a.yml")
    assert refused.code in (1, 2)
    assert message in refused.err


@pytest.mark.parametrize(
    "text",
    (
        "{{ 1234 * 5678 }}{% if %}",
        "it's \"so\" 'quoted'",
        '"""\' + __import__("os") + \'',
        'back\\slash \\n \\"',
        "*/ int x; /*",
        "$(touch pwned) `id`; rm -rf x",
        "# {# not a comment #}",
        "]\n"[:1] + "}{",
        "λ 🎉 end",
    ),
)
def test_hostile_answers_are_inert(checkout, run, tmp_path, text):
    result = run(
        "new",
        tmp_path / "x",
        "--defaults",
        "--data",
        f"description={text}",
        "--data",
        f"author={text}",
        "--data",
        "recipes=elementwise",
    )
    assert result.code == 0, result.err
    assert answers(tmp_path / "x")["description"] == text
    assert tomllib.loads((tmp_path / "x/pyproject.toml").read_text())["project"]["description"] == text
    for path, (content, _) in tree(tmp_path / "x").items():
        assert b"7006652" not in content, path
        if path.endswith(".py"):
            compile(content, path, "exec")


def test_without_a_terminal_new_names_the_option_for_answers(checkout, run, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    refused = run("new", tmp_path / "x")
    assert refused.code == 2
    assert "--defaults" in refused.err


def test_without_a_source_new_prints_what_updating_needs(own_checkout, run, tmp_path):
    (own_checkout / ".git").rename(own_checkout / "git")
    result = run("new", tmp_path / "x", "--defaults", "--data", "recipes=elementwise")
    assert result.code == 0
    assert "_src_path: git+https://" in result.err
    assert "_src_path" not in answers(tmp_path / "x")


def test_ctrl_c_at_a_prompt_leaves_nothing(checkout, tmp_path):
    main, terminal = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
    command = [sys.executable, "-m", "kernelgen", "new", "x"]
    child = subprocess.Popen(command, cwd=tmp_path, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    output = b""
    while b"Project name" not in output:
        output += os.read(main, 4096)
    # The prompt was drawn after the terminal was told to hand over each key, Ctrl-C among them.
    assert not termios.tcgetattr(main)[3] & termios.ISIG
    os.write(main, b"\x03")
    try:
        while chunk := os.read(main, 4096):
            output += chunk
    except OSError:
        pass  # On Linux a terminal that no process holds open reads as EIO.
    assert child.wait() == 130
    assert b"Interrupted" in output
    assert b"Traceback" not in output
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_rendering_leaves_nothing(checkout, run, tmp_path, monkeypatch):
    from kernelgen.scaffold import journal

    monkeypatch.setattr(journal, "_replace", lambda *_: signal.raise_signal(signal.SIGINT))
    assert run("new", tmp_path / "x", "--defaults", "--data", "recipes=elementwise").code == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "pinned", "said"),
    [
        ("NVIDIA H100 80GB HBM3, 9.0\nNVIDIA H100 80GB HBM3, 9.0\n", "9.0a", "for the NVIDIA H100 80GB HBM3 here"),
        ("NVIDIA L4, 8.9\nTesla T4, 7.5\n", "8.9;7.5", "for the NVIDIA L4 and Tesla T4 here"),
        ("No devices were found\n", "native", None),
    ],
)
def test_the_gpus_here_are_recorded(run, tmp_path, monkeypatch, rows, pinned, said):
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nprintf '{rows}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    result = run("new", tmp_path / "demo", "--defaults")
    assert f'CUDA_ARCHITECTURES = "{pinned}"' in (tmp_path / "demo" / "setup.py").read_text()
    assert (f"setup.py pins {pinned}, {said}" in result.err) if said else "pins" not in result.err
    run("new", tmp_path / "other", "--defaults", "--data", "cuda_architectures=8.0")
    assert 'CUDA_ARCHITECTURES = "8.0"' in (tmp_path / "other" / "setup.py").read_text()
