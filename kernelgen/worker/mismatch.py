"""What is wrong with an op, as an exception that the checks raise."""

from dataclasses import dataclass

from kernelgen.errors import LabError


@dataclass(frozen=True)
class Fault:
    """The check that failed, such as `output 0`, and a sentence."""

    check: str
    text: str


class MismatchError(Exception):
    """A result differs from the reference's, or a call did more than compute it; carries the fault."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(text)
        self.fault = Fault(check, text)


class NotWrittenError(LabError):
    """The op or its reference says that it is not written yet."""


class OpOutOfMemoryError(Exception):
    """The op's process says that it ran out of memory."""


class TooLargeError(Exception):
    """A case takes more memory than this machine has."""
