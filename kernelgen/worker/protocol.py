"""The worker's side of kernelgen/protocol.py: reads the request, has it worked on, takes orders and sends events."""

import gc
import importlib
import importlib.util
import json
import os
import select
import shutil
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable
from contextlib import suppress
from types import ModuleType
from typing import IO, Any

from kernelgen.errors import KernelgenError, LabError
from kernelgen.process_tree import descendants, signal_all
from kernelgen.protocol import JUDGES, SCRATCH

# The exit code of a worker that cannot go on, such as one whose CUDA context is dead.
BROKEN = 86


class Emit:
    """`emit(event, **facts)` sends an event to the host."""

    def __init__(self, out: IO[str], request: dict[str, Any]) -> None:
        self._out = out
        self._finished = {tuple(pair) for pair in request.get("finished", [])}
        self._closed = set(request.get("closed", []))

    def __call__(self, event: str, **facts: Any) -> None:
        self._out.write(json.dumps({"event": event, **facts}) + "\n")
        self._out.flush()

    def is_closed(self, op: str) -> bool:
        """Whether an earlier worker was through with an op, or lost too many of its cases."""
        return op in self._closed

    def start(self, op: str, case: str, **facts: Any) -> bool:
        """Says that a case starts: a crash or a hang from here on is put down to it.

        Returns False if an earlier worker was through with the case, which is to be left out then.
        """
        if self.is_closed(op) or (op, case) in self._finished:
            return False
        self("start", op=op, case=case, **facts)
        return True


def is_fatal(error: BaseException) -> bool:
    """Whether this process can compute nothing more after an exception, as after a CUDA error of a kernel."""
    if "out of memory" in str(error):
        return False
    return "CUDA error" in str(error) or type(error).__name__ == "AcceleratorError"


def in_a_line(error: BaseException) -> str:
    """An exception's type and the first line of its message."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def leave(error: BaseException) -> None:
    """Ends this process as a crash would; the host starts another for the remaining cases."""
    print(str(error).partition("\n")[0], file=sys.stderr, flush=True)
    os._exit(BROKEN)


def main() -> None:
    orders, out = _take_pipes()
    threading.Thread(target=_end_with_the_host, args=(out.fileno(),), daemon=True).start()
    # A host that listens no more, because the other worker was refused, leaves nothing to do or to say.
    with suppress(BrokenPipeError):
        if request := orders.readline():
            _work(json.loads(request), orders, out)
    # Straight out: a library that crashes while it is unloaded would spoil a finished run.
    sys.stderr.flush()
    os._exit(0)


def _end_with_the_host(pipe: int) -> None:
    """Waits until nobody reads from the pipe, as where the host was killed; then ends this process with all that it
    started, and its group if it leads one. A call that never returns would keep a core busy until somebody looks."""
    watch = select.poll()
    watch.register(pipe, 0)  # Which tells of errors alone.
    watch.poll()
    shutil.rmtree(os.environ.get(SCRATCH, ""), ignore_errors=True)
    signal_all(signal.SIGKILL, lambda: descendants(os.getpid()))
    leads = os.getpgid(0) == os.getpid()  # Not under a profiler, which ends by itself.
    os.kill(0 if leads else os.getpid(), signal.SIGKILL)


def _work(request: dict[str, Any], orders: IO[str], out: IO[str]) -> None:
    if request["work"] not in JUDGES:
        sys.path.insert(0, "src")
    emit = Emit(out, request)
    # Issued once by the thread that computes gradients; PyTorch makes the context by itself.
    warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA context")
    try:
        _require("torch")
        name = request["work"]
        target = _import(name if "." in name else f"kernelgen.worker.{name}").work(request, emit)
        if target is None:
            emit("done")
        else:
            _take_orders(target, orders, emit)
            getattr(target, "close", lambda: None)()
    except BrokenPipeError:
        raise
    except KernelgenError as error:
        emit("error", message=str(error), exit_code=error.exit_code)
    except ModuleNotFoundError as error:
        emit("error", message=_missing(error.name or "?"), exit_code=LabError.exit_code)
    except Exception as error:
        traceback.print_exc()
        message = f"The lab itself failed: {type(error).__name__}: {error}"
        emit("error", message=message, exit_code=LabError.exit_code)


def _take_pipes() -> tuple[IO[str], IO[str]]:
    """The pipes from and to the host, moved aside: below Python, since C++ and child processes use 0 and 1 as well."""
    orders, out = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return orders, out


def _take_orders(target: Any, orders: Iterable[str], emit: Emit) -> None:
    """Calls a method of the target for each order, until there are no more."""
    for line in orders:
        order = json.loads(line)
        try:
            answer = getattr(target, order.pop("do"))(**order)
        except LabError as error:
            emit("refused", message=str(error))
        except Exception as error:
            if is_fatal(error):
                leave(error)
            emit("refused", message=in_a_line(error))
        else:
            emit("answer", **answer)


def _import(name: str) -> ModuleType:
    """Imports a module, and torch with it. Hardly any of that is garbage, and looking for it takes 0.15 s of 2.3 s."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def _require(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise LabError(_missing(module))


def _missing(module: str) -> str:
    package = {"pynvml": "nvidia-ml-py"}.get(module, module).partition(".")[0]
    return f"The lab needs {package} in {sys.executable}; install it with: {sys.executable} -m pip install {package}"
