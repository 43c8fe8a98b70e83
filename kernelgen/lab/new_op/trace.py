"""Has a function traced."""

from typing import Any

from kernelgen.errors import KernelgenError, LabError
from kernelgen.lab.new_op.function_worker import FunctionWorker


class NotTracedError(KernelgenError):
    """The message is a sentence without its end: what was in the way."""


def trace(
    worker: FunctionWorker,
    recipes: list[str],
    calls: list[dict[str, Any]] | None = None,
    said: dict[str, str] | None = None,
) -> dict[str, Any]:
    """What a function computes, for scaffold/formula/.

    Args:
        calls: shapes of its arguments, their `dtypes`, and shapes of `results` that the kernels have to take; without
            any, those that the function takes decide.
        said: dtypes of arguments that are of integers or truth values, by name.

    Raises:
        NotTracedError: it does not decompose, or nothing can be traced there.
    """
    try:
        answer = worker.ask("trace", recipes=recipes, calls=calls, said=said)
    except LabError as error:
        raise NotTracedError(str(error).rstrip(".")) from error
    if reason := answer.get("refused"):
        raise NotTracedError(reason)
    return answer
