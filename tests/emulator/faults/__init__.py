"""The corpus of planted faults: kernels with one fault each, such as people write, which the emulated GPU must catch.

    python -m tests.emulator.faults --table    # The table of docs/emulated-gpu.md.
    python -m tests.emulator.faults --run      # Plants every fault and says what the emulator made of it.

A fault is data: a source, the text that is replaced in it, the fault's kind, and what the report must say. The sources
are those of styles/ (table in styles.py) and of the recipes (table in recipes.py).
"""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

# A race is named whichever thread came first. A read that comes before the first write has a name of its own.
_RACE = "a race on|uninitialised memory"


class Kind(Enum):
    """A kind of fault, in the words of the page's table, and what a report of it must match: a regular expression.

    Where there is none, the fault only makes results wrong, and the comparison with the reference catches it.
    """

    BLOCK_BARRIER = "barrier of a block missing or misplaced", _RACE
    WARP_BARRIER = "barrier of a warp missing", _RACE
    WIDE_BARRIER = "barrier of a cluster or of the grid missing, or of too small a scope", _RACE
    NAMED_BARRIER = "named barrier with a wrong number or count", f"{_RACE}|deadlock|barrier"
    FENCE = "fence before or after a flag or ticket missing", "a race on"
    PLAIN_UPDATE = "plain update in place of an atomic one", _RACE
    PLAIN_FLAG = "flag read without volatile or atomics", "a race on"
    TWO_WRITERS = "several threads write different values to one place", "a race on"
    TENSOR_END = "access beyond the end of a tensor", "out of bounds"
    SHARED_END = "access beyond the end of shared memory", "out of bounds|no address in shared memory"
    INDEX = "wrong stride, index or operand", None
    UNINITIALISED = "value used that nobody wrote", _RACE
    ALIGNMENT = "misaligned vector or copy", "not aligned|multiple of"
    DIVERGENCE = "barrier that not all threads of the block or warp reach", "diverge|deadlock"
    DEADLOCK = "deadlock", "deadlock|spin|does not end"
    MBARRIER = "mbarrier with a wrong count, parity or number of bytes", f"{_RACE}|deadlock|mbarrier"
    STAGE = "stage of a pipeline reused too early", f"{_RACE}|mbarrier"
    ASYNC_WAIT = "wait for cp.async, bulk copies or wgmma missing", f"{_RACE}|without having waited|under way|mbarrier"
    PROXY_FENCE = "fence.proxy.async missing", "a missing fence.proxy.async"
    INIT_FENCE = "fence after mbarrier.init missing", "initialised without a fence"
    SHARED_LIMIT = "more shared memory than the launch may have", "cannot be launched|shared memory"
    LAUNCH = "launch of too many or too few threads or blocks", "bound to|cannot be launched|cudaError"
    MASK = "wrong mask or lane in a warp's operation", "mask|diverge|lane"
    TAIL = "tail of a row, tile or grid left out", None
    ENDED_BLOCK = "shared memory of a block that has ended", "ended|ending|ends"

    def __init__(self, title: str, report: str | None) -> None:
        self.title, self.report = title, report


@dataclass(frozen=True)
class Fault:
    """The first occurrence of `old` in `file` becomes `new`.

    `subject` is a style, or a check of recipes.py. `report` replaces what the kind demands of the report; `named` of
    False says that a wrong result is enough.
    """

    name: str
    subject: str
    file: str
    kind: Kind
    old: str
    new: str = ""
    report: str | None = None
    named: bool = True

    @property
    def wanted(self) -> str | None:
        """What the report must match; None where a wrong result is enough."""
        return (self.report or self.kind.report) if self.named else None

    def planted(self, text: str) -> str:
        before, old, after = text.partition(self.old)
        assert old, f"{self.name}: {self.file} no longer holds {self.old!r}"
        assert old != self.new, f"{self.name}: it replaces {old!r} by itself"
        assert not _in_comment(before), f"{self.name}: the first {old!r} of {self.file} is in a comment; name another"
        # The rest of a comment would be code.
        if _in_comment(before + old) and not after.startswith("\n"):
            assert _in_comment(before + self.new), f"{self.name}: {old!r} ends in a comment; so must {self.new!r}"
        return before + self.new + after

    def apply(self, folder: Path) -> None:
        path = folder / self.file
        path.write_text(self.planted(path.read_text()))


def _in_comment(text: str) -> bool:
    """Whether what follows the text would be in a comment. Kernels have none but those of a line."""
    return "//" in text.rpartition("\n")[2]
