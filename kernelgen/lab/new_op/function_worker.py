"""A process in the project's Python, where torch is, that holds the function of a new op."""

from pathlib import Path
from types import TracebackType
from typing import Any

from kernelgen.errors import LabError
from kernelgen.lab.worker_process import LostError, WorkerProcess
from kernelgen.toolchain.python import find_python

# Importing torch from a cold disk takes most of it.
LIMIT_S = 120.0


class FunctionWorker:
    """Takes the orders of kernelgen/worker/new_op.py. The process starts with the first order, and again with the one
    after an order at which it was lost.

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

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """The answer to an order.

        Raises:
            LabError: there is none.
            KernelgenError: no Python with torch was found.
        """
        self._process = self._process or self._start()
        try:
            return self._process.ask(do, **arguments)
        except LostError:
            self._end()
            raise

    def _start(self) -> WorkerProcess:
        python = find_python(self._root)
        try:
            return WorkerProcess("the worker that holds the function", python, self._root, self._request, LIMIT_S)
        except OSError as error:
            raise LabError(f"{python} does not start ({error})") from error

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.close()
            self._process = None
