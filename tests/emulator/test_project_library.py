"""How a project's library for an emulated GPU is built: what Ninja prints, and how a build is interrupted."""

import fcntl
import stat

import pytest

from kernelgen.emulator import project_library
from kernelgen.emulator.compiler import EmulatorError
from kernelgen.emulator.lock import locked

# Stands for Ninja: it says that it compiles, and ends in good order when it is told to.
NINJA = """#!/bin/sh
trap 'echo removed > cleaned; exit 1' TERM
echo '[1/2] compiling'
while :; do sleep 0.02; done
"""


def test_an_interrupted_build_ends_ninja_before_it_lets_go_of_the_lock(tmp_path, monkeypatch):
    script = tmp_path / "ninja"
    script.write_text(NINJA)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def interrupted(line, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(project_library, "print", interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt), locked(tmp_path / "lock") as lock:
        project_library._run_ninja([str(script)], tmp_path, lock, quiet=True)
    assert (tmp_path / "cleaned").read_text() == "removed\n"
    with (tmp_path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_build_shows_what_was_compiled_and_no_more(tmp_path, capfd):
    with locked(tmp_path / "lock") as lock:
        for text in ("[1/1] nvcc kernel.cu", "ninja: no work to do."):
            project_library._run_ninja(["echo", text], tmp_path, lock, quiet=False)
        with pytest.raises(EmulatorError, match="messages are above"):
            project_library._run_ninja(["false"], tmp_path, lock, quiet=False)
    assert capfd.readouterr().out == "[1/1] nvcc kernel.cu\n"
