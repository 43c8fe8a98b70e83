"""A process in the project's Python, where torch is, that holds the function of a new op."""

import shlex
from pathlib import Path
from types import TracebackType
from typing import Any

from kernelgen.errors import KernelgenError, LabError
from kernelgen.lab.worker_process import LostError, WorkerProcess
from kernelgen.toolchain.python import find_python, has_torch

# Importing torch from a cold disk takes most of it.
LIMIT_S = 120.0


class FunctionWorker:
    """Takes the orders of kernelgen/worker/new_op.py. The process starts with the first order if `start` did not, and
    again with the one after an order at which it was lost.

    Args:
        root: the project, where the process runs.
        source: the text of the function's file.
        arguments: those of its schema's entry.
    """

    def __init__(self, root: Path, source: str, function: str, arguments: list[dict[str, Any]]) -> None:
        self._root = root
        environment = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        request = {"work": "new_op", "source": source, "function": function, "arguments": arguments}
        self._request = request | {"environment": environment}
        self._process: WorkerProcess | None = None

    def __enter__(self) -> "FunctionWorker":
        return self

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def start(self) -> None:
        """Starts the process.

        Raises:
            KernelgenError: the project has no Python with torch; the message holds what gets it one.
        """
        if not has_torch(python := find_python(self._root)):
            pip = f"{shlex.quote(str(python))} -m pip install --group dev"
            raise KernelgenError(f"{python} has no torch, which traces functions; get it with: {pip}")
        self._process = self._started()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """The answer to an order.

        Raises:
            LabError: there is none, also for want of a Python with torch.
        """
        self._process = self._process or self._started()
        try:
            return self._process.ask(do, **arguments)
        except LostError:
            self._end()
            raise

    def _started(self) -> WorkerProcess:
        try:
            python = find_python(self._root)
        except KernelgenError as error:
            raise LabError(str(error)) from error
        try:
            return WorkerProcess("the worker that holds the function", python, self._root, self._request, LIMIT_S)
        except OSError as error:
            raise LabError(f"{python} does not start ({error})") from error

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.close()
            self._process = None
