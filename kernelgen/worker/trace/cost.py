"""What calls and traces of a function cost. A search for what it computes ends by this count and not by the clock,
so that it finds the same on every machine, however busy."""

from dataclasses import dataclass

# What a call costs, its trace beside, and each operator in a trace: 0.26, 1.1 and 2.3 ms of processor time, by a
# regression over the functions that tests/worker/ traces (Intel Xeon, correlation 0.98).
CALL, TRACE, TRACED_OPERATOR = 1, 4, 9


class Cost:
    """What was spent, in units of a call."""

    def __init__(self) -> None:
        self.spent = 0


@dataclass(frozen=True)
class Budget:
    """How much may be spent, in units of a call."""

    cost: Cost
    most: int

    @property
    def is_spent(self) -> bool:
        return self.cost.spent > self.most

    def with_more(self, units: int) -> "Budget":
        return Budget(self.cost, self.most + units)
