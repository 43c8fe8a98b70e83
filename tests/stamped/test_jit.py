"""`demo_kernels.jit`: an edit takes effect in the same process, and nothing is compiled twice."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import python, quickly, stamp

OP = Path("src/demo_kernels/ops/elementwise")

START = """
import pathlib, torch, demo_kernels
from demo_kernels import jit
x = torch.ones(3)
op = pathlib.Path(jit.OPS, "elementwise")
def edit(file, old, new):
    text = (op / file).read_text()
    assert old in text
    (op / file).write_text(text.replace(old, new))
def plus_one():
    edit("cpu.cpp", "Accumulate(c[i])", "Accumulate(c[i]) + 1")
def undo():
    edit("cpu.cpp", "Accumulate(c[i]) + 1", "Accumulate(c[i])")
def show():
    print(demo_kernels.elementwise(x, x, x)[0].item())
"""


@pytest.fixture(scope="module")
def stamped(tmp_path_factory) -> Path:
    return stamp(tmp_path_factory.mktemp("jit") / "demo", ops=[{"name": "elementwise", "recipe": "elementwise"}])


@pytest.fixture
def session(stamped, copy_of, tmp_path):
    """Runs code after START in the Python of a project; returns what it printed and how often it compiled."""
    project = copy_of(stamped)

    def call(code: str) -> tuple[list[str], int]:
        result = python(project, START + code, USE_CUDA="0", XDG_CACHE_HOME=str(tmp_path / "cache"), **quickly())
        assert result.returncode == 0, result.stderr
        return result.stdout.splitlines(), result.stderr.count("jit: compiling elementwise")

    return call


def test_an_edit_runs_in_the_same_process(session):
    printed, compiled = session("jit.load('elementwise'); show(); plus_one(); jit.load('elementwise'); show()")
    assert printed == ["2.0", "3.0"]
    assert compiled == 2


def test_what_was_compiled_before_comes_from_the_cache(session):
    sequence = "jit.load('elementwise'); show(); plus_one(); jit.load('elementwise'); show(); undo()"
    assert session(sequence) == (["2.0", "3.0"], 2)
    # In another process nothing is compiled; nor the second time there, when each library is open already.
    assert session(f"{sequence}\n{sequence}") == (["2.0", "3.0", "2.0", "3.0"], 0)


def test_a_changed_header_is_compiled_again(session):
    code = "jit.load('elementwise'); edit('arguments.h', '#pragma once', '#pragma once  //'); jit.load('elementwise')"
    assert session(code)[1] == 2


def test_changed_flags_compile_again(session):
    code = "import os; jit.load('elementwise'); os.environ['CXXFLAGS'] = '-DX'; jit.load('elementwise')"
    assert session(code)[1] == 2


def test_gradients_and_compiled_graphs_use_the_new_library(session):
    code = """
jit.load("elementwise")
graph = torch.compile(lambda y: demo_kernels.elementwise(y, y, y), backend="aot_eager", fullgraph=True)
print(graph(x)[0].item())
plus_one()
f = jit.load("elementwise")
print(graph(x)[0].item())
y = x.clone().requires_grad_()
f(y, x, x).sum().backward()
print(y.grad[0].item())
"""
    assert session(code)[0] == ["2.0", "3.0", "1.0"]


def test_sources_may_lie_elsewhere_in_the_project(session):
    code = """
import shutil
shutil.copytree(op, jit.ROOT / "trial" / "elementwise")
op = jit.ROOT / "trial" / "elementwise"
(op / "__init__.py").unlink()
plus_one()
jit.load(jit.ROOT / "trial" / "elementwise")
show()
jit.load("elementwise")
show()
"""
    assert session(code)[0] == ["3.0", "2.0"]


def test_an_edit_that_does_not_compile_leaves_the_op_as_it_was(session):
    code = """
jit.load("elementwise")
edit("cpu.cpp", "Accumulate(c[i])", "Accumulate(c[i]")
try:
    jit.load("elementwise")
except RuntimeError as error:
    print(str(error).splitlines()[0], "error:" in str(error))
show()
"""
    assert session(code)[0] == ["elementwise does not compile: True", "2.0"]


def test_a_name_that_is_no_op_is_refused(session):
    code = """
for name in ("elementwize", "/"):
    try:
        jit.load(name)
    except RuntimeError as error:
        print(error)
"""
    first, second = session(code)[0]
    assert first.startswith("'elementwize' is no op of demo_kernels")
    assert second.startswith("'/' is no op of demo_kernels")


def test_an_installed_package_has_no_sources(stamped, tmp_path):
    """A wheel holds an op's Python files alone."""
    shutil.copytree(stamped / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.cpp", "*.cu*", "*.h"))
    refused = python(tmp_path, "from demo_kernels import jit; jit.load('elementwise')")
    assert "jit compiles in a source checkout" in refused.stderr.splitlines()[-1]


def test_a_refusal_of_the_build_does_not_end_the_process(session):
    code = """
import os
os.environ["CXX"] = "no-such-compiler"
try:
    jit.load("elementwise")
except RuntimeError as error:
    print(error)
"""
    assert "the C++ compiler 'no-such-compiler' was not found" in session(code)[0][0]


def test_a_killed_process_leaves_no_lock(session, tmp_path):
    session("jit.load('elementwise')")
    (lock,) = (tmp_path / "cache").rglob("*.lock")
    hold = (
        "import fcntl, sys, time; fcntl.flock(f := open(sys.argv[1]), fcntl.LOCK_EX); print(flush=True); time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", hold, lock], stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        holder.kill()
    assert session("jit.load('elementwise'); show()") == (["2.0"], 0)
