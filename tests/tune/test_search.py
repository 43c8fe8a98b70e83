"""The search, with compilers and a GPU that are fake and only take time."""

import itertools
import time
from pathlib import Path
from types import SimpleNamespace

from kernelgen.tune import search
from kernelgen.tune.candidates import Candidate
from kernelgen.tune.search import Search
from kernelgen.tune.slot import MEASURED, TrialBudget, TrialResult
from kernelgen.tune.space import Space
from kernelgen.tune.study import Study

SPACE = Space({"a": tuple(range(40)), "b": tuple(range(40))})


class _Compiler:
    default = Candidate(Path("default"), [], 0.0)

    def __init__(self, jobs: int, at_once: int) -> None:
        self.jobs, self.at_once = jobs, at_once
        self.numbers, self.most_at_once = itertools.count(), 0
        self.running: set[int] = set()

    def compile(self, values):
        number = next(self.numbers)
        self.running.add(number)
        self.most_at_once = max(self.most_at_once, len(self.running))
        time.sleep(0.02)
        self.running.discard(number)
        return Candidate(Path(str(values["a"])) / "library", [], 0.02)

    def close(self) -> None:
        pass


class _Slot:
    def __init__(self, seconds: float) -> None:
        self.seconds, self.measured = seconds, 0

    def start(self, default: Candidate) -> None:
        pass

    def measure(self, candidate, *_) -> TrialResult:
        time.sleep(self.seconds)
        self.measured += 1
        ratio = 1 + int(candidate.library.parent.name) / 100
        return TrialResult(MEASURED, ratio, {"case": ratio}, seconds=self.seconds)

    def close(self) -> None:
        pass


def _study(folder: Path, total: int) -> Study:
    about = {"op": "op", "device": "none"}
    return Study(str(folder / "trials.log"), about, SPACE, range(SPACE.size), 20, total, 0)


def test_when_the_time_is_up_trials_in_flight_are_recorded_and_the_best_is_known(tmp_path, monkeypatch):
    study = _study(tmp_path, SPACE.size)
    compiler, slot = _Compiler(jobs=6, at_once=3), _Slot(0.01)
    # The clock jumps past the limit after five trials, however fast the machine is.
    monkeypatch.setattr(search, "time", SimpleNamespace(perf_counter=lambda: 0.0 if slot.measured < 5 else 61.0))
    trial_search = Search(study, compiler, [slot], [], budget=TrialBudget(), minutes=1)
    assert trial_search.run() == "the time is up"
    trials = study.finished()
    assert 5 <= len(trials) == trial_search.stats.here < SPACE.size
    assert trial_search.stats.best == min(trial["ratio"] for trial in trials)
    assert compiler.most_at_once <= 3  # Each has two of the six compilers.


def test_where_measuring_takes_longest_few_candidates_are_compiled_ahead(tmp_path):
    """The sampler learns nothing from trials in flight."""
    slot, ahead = _Slot(0.05), []

    class Compiler(_Compiler):
        def compile(self, values):
            ahead.append(len(ahead) - slot.measured)
            return super().compile(values)

    Search(_study(tmp_path, 40), Compiler(jobs=8, at_once=8), [slot], [], budget=TrialBudget()).run()
    assert max(ahead[20:]) <= 3
