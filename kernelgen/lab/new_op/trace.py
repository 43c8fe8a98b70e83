"""Has a function traced in the project's Python, where torch is."""

from pathlib import Path
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.lab.worker_process import WorkerProcess

# Importing torch from a cold disk takes most of it.
LIMIT_S = 120.0


class NotTracedError(KernelgenError):
    """The message is a sentence without its end: what was in the way."""


def trace(
    python: Path,
    project: Path,
    source: str,
    function: str,
    arguments: list[dict[str, Any]],
    recipes: list[str],
    calls: list[dict[str, Any]] | None = None,
    said: dict[str, str] | None = None,
) -> dict[str, Any]:
    """What `function` of a file with the text `source` computes, for scaffold/formula/.

    Args:
        calls: shapes of `arguments`, their `dtypes`, and shapes of `results` that the kernels have to take; without
            any, those that the function takes decide.
        said: dtypes of arguments that are of integers or truth values, by name.

    Raises:
        NotTracedError: it does not decompose, or nothing can be traced there.
    """
    request = {
        "work": "trace",
        "source": source,
        "function": function,
        "arguments": arguments,
        "recipes": recipes,
        "calls": calls,
        "said": said,
        "environment": {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
    }
    try:
        worker = WorkerProcess("the tracing worker", python, project, request, LIMIT_S)
    except OSError as error:
        raise NotTracedError(f"{python} does not start ({error})") from error
    try:
        event = worker.receive()
    except KernelgenError as error:
        raise NotTracedError(str(error).rstrip(".")) from error
    finally:
        worker.kill()
        worker.close()
    if event["event"] == "trace":
        return event
    if event["event"] == "refused":
        raise NotTracedError(event["reason"])
    raise NotTracedError(event["message"].rstrip("."))
