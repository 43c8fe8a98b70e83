"""A step of a verdict: its outcome, and the facts that it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PASSED, FAILED, OPEN = "passed", "failed", "open"


@dataclass
class Step:
    """A step's outcome, in a sentence, and its facts for --json. It is open where nothing was shown either way."""

    name: str
    outcome: str
    text: str
    seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        known = {"name": self.name, "outcome": self.outcome, "text": self.text, "seconds": round(self.seconds, 1)}
        return {**known, **self.facts}
