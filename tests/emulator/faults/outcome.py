"""What comes of running a kernel on the emulated GPU."""

from collections.abc import Callable
from dataclasses import dataclass

from kernelgen.emulator.library import EmulatorError


@dataclass(frozen=True)
class Outcome:
    """The emulator's report, or how results differ from those expected; "" if they are right."""

    report: str = ""
    difference: str = ""

    def __bool__(self) -> bool:
        return bool(self.report or self.difference)

    def __str__(self) -> str:
        return self.report or self.difference or "right"


def outcome_of(check: Callable[[], None]) -> Outcome:
    """What comes of a check that calls kernels and asserts that their results are right."""
    try:
        check()
    except EmulatorError as error:
        return Outcome(report=str(error))
    except AssertionError as error:
        return Outcome(difference=str(error) or "wrong")
    return Outcome()
