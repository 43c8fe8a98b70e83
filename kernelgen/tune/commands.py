"""Runs compilers and linkers as processes that can be ended all at once."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kernelgen.tune.errors import CompileError, DiskFullError


class Commands:
    """Runs commands in a folder, from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: set[subprocess.Popen] = set()
        self._closed = threading.Event()

    def run(
        self, command: list[str], limit_s: float, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, and wait for its end.

        Raises:
            CompileError: it took longer than `limit_s` seconds, or `close` was called; it was ended with all processes
                that it had started.
            DiskFullError: it failed for that.
        """
        if self._closed.is_set():
            raise CompileError("the tuning ended")
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._running.add(process)
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            raise CompileError(f"the compiler took longer than {limit_s:g} s") from None
        finally:
            self._running.discard(process)
        if process.returncode and "No space left on device" in out + err:
            raise DiskFullError(self._folder)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def close(self) -> None:
        """End the commands that run, and let no other begin."""
        self._closed.set()
        for process in list(self._running):
            _kill(process)

    def reopen(self) -> None:
        """Let commands begin again."""
        self._closed.clear()


def _kill(process: subprocess.Popen) -> None:
    """End a process with its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
