"""How much of a function was called and traced. A search for what it computes ends by this count and not by the clock,
so that it finds the same on every machine, however busy."""

from dataclasses import dataclass

# What a call costs, its trace beside, and each operator in a trace: 0.26, 1.1 and 2.3 ms of processor time, by a
# regression over the functions that tests/worker/ traces (Intel Xeon, correlation 0.98).
CALL, TRACE, TRACED_OPERATOR = 1, 4, 9


class Effort:
    """What was spent, in calls: `CALL` and the others above."""

    def __init__(self) -> None:
        self.spent = 0


@dataclass(frozen=True)
class Limit:
    """An effort that may be spent up to so many calls."""

    effort: Effort
    most: int

    @property
    def is_reached(self) -> bool:
        return self.effort.spent > self.most

    def with_more(self, calls: int) -> "Limit":
        return Limit(self.effort, self.most + calls)
