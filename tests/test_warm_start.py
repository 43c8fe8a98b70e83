"""A process that is forked from a warm one is what a process that starts as always would be."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.lab.steady import STEADY
from kernelgen.tune.request import TuningRequest
from tests import warm_start

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")

# The second starts processes like the first in its turn.
LEAF = "# from kernelgen.worker.op_host import main\n"
HOST = "# from kernelgen.worker.protocol import main\n"
FACTS = """
import json, os, sys
was_there = "torch" in sys.modules
import torch
facts = {"argv": sys.argv, "path": sys.path, "folder": os.getcwd(), "environment": dict(os.environ), "main": __name__}
facts |= {"parent": os.getppid(), "session": os.getsid(0) == os.getpid(), "modules": "kernelgen" in sys.modules}
facts |= {"threads": torch.get_num_threads(), "input": sys.stdin.read(), "fds": sorted(map(int, os.listdir("/dev/fd")))}
print(json.dumps([was_there, facts]))
print("an error", file=sys.stderr)
"""


def start(code: str, *arguments: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_what_a_process_sees_is_the_same(tmp_path):
    environment = {**os.environ, "PYTHONPATH": "/some/path", "OMP_NUM_THREADS": "1", "OF_ITS_OWN": "ü"}
    kept, other = os.pipe()
    options = {"cwd": tmp_path, "env": environment, "input": "text", "start_new_session": True, "pass_fds": [kept]}
    try:
        warm = start(LEAF + FACTS, "a", "b", **options)
        with warm_start.cold():
            cold = start(LEAF + FACTS, "a", "b", **options)
    finally:
        os.close(kept)
        os.close(other)
    (forked, facts), (imported, expected) = json.loads(warm.stdout), json.loads(cold.stdout)
    assert (forked, imported) == (True, False)
    for seen in (facts, expected):
        assert kept in seen["fds"]
        assert other not in seen.pop("fds")
        seen["environment"].pop("LC_CTYPE", None)  # Python sets it at its start where there is no locale.
    assert facts == expected
    assert facts["parent"] == os.getpid()
    assert warm.stderr == cold.stderr == "an error\n"


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler])
def test_a_process_ignores_what_the_process_that_starts_it_ignores(handler):
    """And nothing that was ignored when the warm process began."""
    before = [(number, signal.signal(number, handler)) for number in (signal.SIGINT, signal.SIGHUP)]
    code = "import signal; print(*map(signal.getsignal, (signal.SIGINT, signal.SIGHUP)))"
    try:
        warm = start(LEAF + code)
        with warm_start.cold():
            cold = start(LEAF + code)
    finally:
        for number, other in before:
            signal.signal(number, other)
    assert ("default_int_handler" in warm.stdout) == (handler is signal.default_int_handler)
    assert warm.stdout == cold.stdout


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="pytest runs without workers")
def test_a_worker_of_pytest_is_a_fork_and_starts_others_from_the_warm_process_that_came_with_it():
    assert warm_start.__name__ == "warm_start"
    code = "import os, sys; print(os.getppid(), 'torch' in sys.modules, sys.argv)"
    assert start(LEAF + code).stdout == f"{os.getpid()} True ['-c']\n"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('a sentence')", 1),
        ("raise ValueError('a bug')", 1),
        ("import os; os._exit(86)", 86),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
    ],
)
def test_it_ends_the_same(end, code):
    warm = start(LEAF + end)
    with warm_start.cold():
        cold = start(LEAF + end)
    assert warm.returncode == cold.returncode == code
    last = [result.stderr.splitlines()[-1:] for result in (warm, cold)]
    assert last[0] == last[1]


def test_a_process_starts_others_whose_parent_it_is_and_that_end_with_its_group():
    code = f"""{HOST}
import os, subprocess, sys
inner = "{LEAF.strip()}\\nimport os, sys; print('torch' in sys.modules, os.getppid(), flush=True); sys.stdin.read()"
process = subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(process.stdout.readline().split() == ["True", str(os.getpid())], flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "True\n"
        os.killpg(process.pid, signal.SIGKILL)
        # The pipes close only when nobody holds them: not the warm process of the killed one either.
        assert process.communicate() == ("", "")
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONHASHSEED", "TORCH_LOGS"])
def test_variables_that_are_read_at_the_start_are(name):
    value = {"LD_PRELOAD": "libm.so.6", "PYTHONHASHSEED": "7"}.get(name, "")
    result = start(f"{LEAF}import sys; print('torch' in sys.modules)", env={**os.environ, name: value})
    assert result.stdout == "False\n", result.stderr


def test_memory_that_malloc_gives_is_perturbed_where_that_is_asked_for():
    code = f"{LEAF}import ctypes; libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p\n"
    code += "print(ctypes.string_at(libc.malloc(5000), 4000) == b'\\xfe' * 4000)"
    environment = {**os.environ, "MALLOC_PERTURB_": "1"}
    assert start(code, env=environment).stdout == "True\n"
    assert start(code).stdout == "False\n"


@pytest.mark.parametrize("arguments", [["setup.py"], ["-m", "build_tools"], ["-m", "pytest", "-p", "facts"]])
def test_a_project_s_programs_see_the_same(tmp_path, arguments):
    show = "import os, sys; print('torch' in sys.modules, sys.argv, __name__, sys.path[:2], os.getcwd())\n"
    (tmp_path / "build_tools").mkdir()
    (tmp_path / "build_tools" / "__main__.py").write_text(show)
    (tmp_path / "setup.py").write_text(show)
    (tmp_path / "facts.py").write_text(f"{show}raise SystemExit(5)\n")

    def printed() -> tuple[bool, str, int]:
        command = [sys.executable, *arguments, "-v"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        was_there, _, rest = result.stdout.partition(" ")
        return was_there == "True", rest, result.returncode

    forked, *facts = printed()
    with warm_start.cold():
        imported, *expected = printed()
    assert (forked, imported) == (True, False)
    assert facts == expected
    assert str(tmp_path) in facts[0]


@pytest.mark.parametrize("code", ["import torch", "import sys, torch", "import sys; from demo_kernels import f"])
def test_a_program_that_imports_torch_or_a_project_is_forked(code):
    program = f"import sys\nprint('torch' in sys.modules); sys.exit()\n{code}"
    assert start(program).stdout == "True\n"


def test_other_commands_start_as_always():
    code = "import sys; print('torch' in sys.modules)"
    assert start(code).stdout == "False\n"


def forked_with(variables: dict[str, str], code: str) -> str:
    return start(f"{LEAF}import sys; print('torch' in sys.modules); {code}", env={**os.environ, **variables}).stdout


def test_what_is_timed_and_what_is_tuned_is_forked():
    request = TuningRequest(Path(), "demo_kernels", "elementwise", Path())
    sklearn = {"KMP_DUPLICATE_LIB_OK": "True", "KMP_INIT_AT_FORK": "FALSE"}
    for variables in (STEADY | {"OMP_WAIT_POLICY": "passive"}, request.to_worker()["environment"], sklearn):
        assert forked_with(variables, "") == "True\n", variables


def test_torch_reads_how_much_it_says_again():
    code = "import ctypes; print(ctypes.c_int.in_dll(ctypes.CDLL('libc10.so'), 'FLAGS_caffe2_log_level').value)"
    assert forked_with({"TORCH_CPP_LOG_LEVEL": "ERROR"}, code) == "True\n2\n"
    assert forked_with({}, code) == "True\n1\n"


def test_frames_are_those_of_the_same_modules_and_lines(tmp_path):
    (tmp_path / "a_module.py").write_text("import inspect\n\nframe = inspect.currentframe()\n")
    code = f"""{LEAF}
import inspect, a_module
exec(compile("other = inspect.currentframe()", "/of/no/module.py", "exec"), vars(a_module))
for frame in (a_module.frame, a_module.other, inspect.currentframe()):
    print(inspect.getmodule(frame), inspect.getframeinfo(frame))
"""
    options = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": ""}}
    warm = start(code, **options)
    with warm_start.cold():
        cold = start(code, **options)
    assert "<module 'a_module' from" in warm.stdout
    assert warm.stdout == cold.stdout, warm.stderr + cold.stderr


def test_a_verb_starts_workers_with_other_variables_of_malloc(tmp_path):
    (tmp_path / "kernelgen").mkdir()
    (tmp_path / "kernelgen" / "__init__.py").touch()
    (tmp_path / "kernelgen" / "__main__.py").write_text(
        f"import os, subprocess, sys\ncode = {LEAF!r} + \"import sys; print('torch' in sys.modules)\"\n"
        "for variables in ({}, {'MALLOC_TOP_PAD_': '67108864'}):\n"
        "    subprocess.run([sys.executable, '-c', code], env={**os.environ, **variables}, check=True)\n"
    )
    command = [sys.executable, "-m", "kernelgen", "tune"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.stdout == "True\nTrue\n", result.stderr
