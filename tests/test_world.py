"""The tests pass wherever they are started."""

import os
import signal
import subprocess
import sys

from tests.conftest import ROOT


def test_ctrl_c_interrupts_the_tests_and_what_they_start():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    code = "import signal; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ctrl_c_does_so_where_it_was_ignored_at_the_start(tmp_path):
    """As in the background of a script, under nohup and in many CI runners: children inherit that."""
    test = "tests/test_world.py::test_ctrl_c_interrupts_the_tests_and_what_they_start"
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", test]
    # In a folder of its own: where it chose it, pytest would first delete those of earlier runs, for minutes.
    command.append(f"--basetemp={tmp_path / 'inner'}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
