"""What `kernelgen tune` was asked for, and where a tuning reports how far it is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgen.lab.compare import Thresholds
from kernelgen.lab.steady import steady_variables
from kernelgen.tune.search import SearchStats
from kernelgen.tune.slot import TrialBudget


@dataclass(frozen=True)
class TuningRequest:
    """One tuning as the options have it.

    Attributes:
        chip: the compute capability of a GPU that is not here, for a dry run; None: the devices that are here.
        limit_s: a worker that does not answer for so long counts as hung.
        storage: where workers share their trials; None: the project's own journal.
        best: how many candidates to try to confirm at most.
        blocks: units of evidence of each case; None: as many as `kernelgen compare` takes on the device.
        rule: the checkout that lab.py and the reference are taken from; None: the project.
    """

    root: Path
    package: str
    op: str
    python: Path
    device: str | None = None
    chip: str | None = None
    dtype: str | None = None
    cases: list[str] | None = None
    backward: bool = False
    tf32: bool = False
    seed: int = 0
    seeds: int = 20
    trials: int = 100
    minutes: float | None = None
    jobs: int | None = None
    gpus: int | None = None
    limit_s: float = 60.0
    storage: str | None = None
    resume: bool = False
    best: int = 3
    blocks: int | None = None
    rule: Path | None = None
    thresholds: Thresholds = field(default_factory=lambda: Thresholds(faster=0.03))
    budget: TrialBudget = field(default_factory=TrialBudget)

    def to_worker(self, device: str | None = None) -> dict[str, Any]:
        """What a worker process is told to work on; on another device than was asked for, if one is given."""
        names = ("package", "op", "device", "dtype", "cases", "backward", "tf32", "seed")
        # PyTorch warns when a kernel takes another's place, which every candidate does.
        environment = {**steady_variables(), "TORCH_CPP_LOG_LEVEL": "ERROR"}
        facts = {name: getattr(self, name) for name in names} | {"environment": environment}
        facts |= {"trusted": str(self.rule)} if self.rule else {}
        return facts | ({"device": device} if device else {})


@dataclass
class Reporter:
    """Where a tuning reports how far it is.

    Attributes:
        stage: takes what is being done, and the share of it that is done if that is known.
        stats: takes the shape class being searched and the search's figures.
        note: takes a line that stays.
    """

    stage: Callable[[str, float | None], None] = lambda text, share: None
    stats: Callable[[str, SearchStats], None] = lambda shapes, stats: None
    note: Callable[[str], None] = lambda line: None
