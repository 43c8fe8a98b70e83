"""Holds what a function returned when it was called against what its signature says."""

from kernelgen.errors import UsageError


class ReturnedError(UsageError):
    """A function returned another number of tensors than its signature says."""


def check_count(function: str, said: int, returned: int) -> None:
    """Raises ReturnedError where the numbers of tensors that a function says and has `returned` differ."""
    if said != returned:
        annotation = "Tensor" if returned == 1 else f"tuple[{', '.join(['Tensor'] * returned)}]"
        raise ReturnedError(
            f"{function} returned {_tensors(returned)}, its signature says {said}; annotate it by `-> {annotation}`."
        )


def _tensors(count: int) -> str:
    return "1 tensor" if count == 1 else f"{count} tensors"
