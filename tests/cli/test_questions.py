"""`add-op` and `new` without a name ask at a terminal, and nowhere else."""

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from kernelgen.cli import questions

DOWN, ENTER, CLEAR = "\x1b[B", "\r", "\x15"


@pytest.fixture
def at_terminal(monkeypatch):
    """Types these keys at a terminal."""
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        monkeypatch.setattr(questions, "is_terminal", lambda: True)
        yield keys.send_text


def test_a_terminal_is_asked_for_what_the_op_is_made_from(stamp, run, at_terminal):
    project = stamp()
    shapes = "x: ... D; weight: D -> ... D"
    answers = ["scaled" + ENTER, DOWN + ENTER, CLEAR + "(Tensor x, Tensor weight) -> Tensor" + ENTER]
    at_terminal("".join([*answers, shapes + ENTER, DOWN + ENTER, "y"]))
    added = run("add-op", "--project", project)
    assert added.code == 0, added.err
    assert "create  src/my_kernels/ops/scaled/kernel.cu" in added.out
    text = (project / "src/my_kernels/ops/scaled/__init__.py").read_text()
    assert '"scaled_backward": "(Tensor grad_out, Tensor x, Tensor weight, ' in text
    assert "Shapes" not in text


def test_nothing_is_written_without_a_yes(stamp, run, at_terminal):
    project = stamp()
    at_terminal("copied" + ENTER + DOWN + DOWN + ENTER + ENTER + "n")
    assert run("add-op", "--project", project).code == 0
    assert not (project / "src/my_kernels/ops/copied").exists()


def test_a_project_s_folder_is_asked_for(run, tmp_path, at_terminal, monkeypatch):
    monkeypatch.chdir(tmp_path)
    at_terminal(CLEAR + "asked" + ENTER)
    made = run("new", "--defaults")
    assert made.code == 0, made.err
    assert (tmp_path / "asked/pyproject.toml").is_file()


@pytest.mark.parametrize(("verb", "missing"), [("add-op", "NAME"), ("new", "DIR")])
def test_without_a_terminal_the_name_is_required(run, verb, missing):
    refused = run(verb)
    assert refused.code == 2
    assert f"the following arguments are required: {missing}." in refused.err
