"""The child's side of `process.py`: reads one request, does what it asks in the project's Python, answers in lines.

The request is a JSON object on standard input: `work` names a module (of kernelgen.worker, if it has no dot) whose
`work(request, emit)` is called. Each answer is one JSON object on a line of standard output, with its kind under
`event`. Whatever else the op, its libraries or a compiler print goes to standard error.
"""

import importlib
import importlib.util
import json
import os
import sys
import traceback
import warnings
from typing import IO, Any

from kernelgen.errors import KernelgenError, LabError

# The exit code of a worker that cannot go on, such as one whose CUDA context is dead.
BROKEN = 86


class Emit:
    """`emit(event, **facts)` sends an answer."""

    def __init__(self, out: IO[str], request: dict[str, Any]) -> None:
        self._out = out
        self._finished = {tuple(pair) for pair in request.get("finished", [])}
        self._closed = set(request.get("closed", []))

    def __call__(self, event: str, **facts: Any) -> None:
        self._out.write(json.dumps({"event": event, **facts}) + "\n")
        self._out.flush()

    def is_closed(self, op: str) -> bool:
        """Whether an earlier worker was through with an op, or crashed in it too often."""
        return op in self._closed

    def start(self, op: str, case: str, **facts: Any) -> bool:
        """Says that a case starts, so that a crash or a hang from here on is put down to it.

        Returns False, and the case is to be left out, if a worker before this one was through with it.
        """
        if self.is_closed(op) or (op, case) in self._finished:
            return False
        self("start", op=op, case=case, **facts)
        return True


def is_fatal(error: BaseException) -> bool:
    """Whether an exception means that this process can compute nothing more: CUDA errors of kernels stay."""
    if "out of memory" in str(error):
        return False
    return "CUDA error" in str(error) or type(error).__name__ == "AcceleratorError"


def in_a_line(error: BaseException) -> str:
    """An exception's type and the first line of its message."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def leave(error: BaseException) -> None:
    """Ends this process as a crash would; the parent starts another for the cases that are left."""
    print(str(error).partition("\n")[0], file=sys.stderr, flush=True)
    os._exit(BROKEN)


def main() -> int:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Below Python: what C++ prints would end up among the answers too.
    request = json.load(sys.stdin)
    emit = Emit(out, request)
    # Of the thread that computes gradients, once; PyTorch makes the context by itself.
    warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA context")
    try:
        _require("torch")
        name = request["work"]
        importlib.import_module(name if "." in name else f"kernelgen.worker.{name}").work(request, emit)
    except KernelgenError as error:
        emit("error", message=str(error), exit_code=error.exit_code)
    except ModuleNotFoundError as error:
        emit("error", message=_missing(error.name or "?"), exit_code=2)
    except Exception as error:
        traceback.print_exc()
        emit("error", message=f"The lab itself failed: {type(error).__name__}: {error}", exit_code=2)
    else:
        emit("done")
    out.flush()
    # Straight out: libraries that crash while they are unloaded would spoil a finished run.
    sys.stderr.flush()
    os._exit(0)


def _require(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise LabError(_missing(module))


def _missing(module: str) -> str:
    package = {"pynvml": "nvidia-ml-py"}.get(module, module).partition(".")[0]
    return f"The lab needs {package} in {sys.executable}; install it with: {sys.executable} -m pip install {package}"
