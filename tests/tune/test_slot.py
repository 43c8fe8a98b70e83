"""Measuring a candidate: when it is given up, where its results are checked, and how the workers start."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernelgen.lab.worker_process import LostError
from kernelgen.tune import slot as slot_module
from kernelgen.tune.candidates import Candidate
from kernelgen.tune.request import TuningRequest
from kernelgen.tune.slot import MEASURED, WRONG, MeasuringSlot, TrialBudget, lower_end
from kernelgen.worker.judge.judge import trusted_root


@pytest.mark.parametrize("count", [5, 8, 12, 40])
def test_the_lower_end_is_above_the_median_in_less_than_1_of_20(count):
    random = np.random.default_rng(count)
    above = [lower_end(list(random.normal(0, 1, count))) > 0 for _ in range(4000)]
    assert sum(above) / len(above) < 0.06
    exact = sum(math.comb(count, k) for k in range(count + 1) if _rank(count) > k) / 2**count
    assert exact < 0.05


def _rank(count: int) -> int:
    """Which of so many ordered values the lower end is, counted from 1."""
    return int(lower_end([float(i) for i in range(1, count + 1)]))


def test_the_lower_end_moves_up_with_more_values():
    assert [_rank(count) for count in (5, 8, 12, 40)] == [1, 2, 3, 15]
    assert lower_end([3.0, 1.0, 2.0]) == 1.0


class _FakeWorker:
    """A worker whose calls take the seconds given for each case, and whose results are wrong in the cases `wrong`."""

    def __init__(self, seconds: dict[str, float], wrong: tuple[str, ...] = ()) -> None:
        self.seconds, self.wrong, self.checked = seconds, wrong, []

    def order(self, do: str, **arguments) -> None:
        self.last_answer = self.ask(do, **arguments)

    def answer(self) -> dict:
        return self.last_answer

    def ask(self, do: str, **arguments) -> dict:
        if do == "open":
            self.case = arguments["case"]
        if is_checked := arguments.get("is_checked", False):
            self.checked.append(self.case)
        fault = "off by 1" if is_checked and self.case in self.wrong else None
        seconds = [self.seconds[self.case]] if do == "time" else []
        return {"fastest": 1e-3, "graphs": False, "seconds": seconds, "fault": fault, "remark": None}


def test_workers_take_the_rule_from_the_revision_to_trust():
    """Where none is named they take it from the project."""
    request = TuningRequest(Path("project"), "pkg", "op", Path("python"))
    assert "trusted" not in request.to_worker()
    assert trusted_root(replace(request, rule=Path("rule")).to_worker()) == Path("rule")


def test_of_many_cases_each_is_measured_less():
    assert [TrialBudget().rounds_of(cases) for cases in (1, 5, 6, 10, 20)] == [12, 12, 10, 6, 6]


def test_results_are_checked_in_the_cases_where_a_candidate_is_as_fast_as_the_best(monkeypatch):
    default = Candidate(Path("default.so"), [], 0.0)
    cases = [("small", "float32"), ("large", "float32")]

    def measured(best: dict[str, float], wrong: tuple[str, ...] = ()):
        seconds = {"small": 0.9, "large": 0.8}
        workers = {
            "the default": _FakeWorker(dict.fromkeys(seconds, 1.0)),
            "the candidate": _FakeWorker(seconds, wrong),
        }
        slot = MeasuringSlot(Path(), Path(), {}, 1.0)
        monkeypatch.setattr(slot, "_worker", workers.__getitem__)
        result = slot.measure(default, TrialBudget(), cases, best, 0)
        return result.state, [*dict.fromkeys(workers["the candidate"].checked)]  # By chance several times.

    best = {"small · float32": 0.88, "large · float32": 0.8}
    assert measured({}) == (MEASURED, ["small", "large"])
    assert measured(best) == (MEASURED, ["large"])
    assert measured(best, wrong=("small",)) == (MEASURED, ["large"])  # The confirmation will see that.
    assert measured(best, wrong=("large",)) == (WRONG, ["large"])


@pytest.mark.parametrize("lost", ["", "the default", "the candidate"])
def test_the_workers_warm_up_before_there_is_a_default_to_run(lost, monkeypatch):
    """A worker that is lost then costs nothing: a new one takes its place, and the other worker goes on."""
    started = []

    class Worker(_FakeWorker):
        def __init__(self, name: str, *_) -> None:
            super().__init__({"small": 1.0})
            self.name, self.orders, self.closed = name, [], False
            started.append(self)

        def ask(self, do: str, **arguments) -> dict:
            self.orders.append(do)
            if self.name == lost and do == "open":
                raise LostError(lost, "crashed")
            return {**super().ask(do, **arguments), "environment": {}}

        def allow(self, seconds: float) -> None:
            pass

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(slot_module, "WorkerProcess", Worker)
    slot = MeasuringSlot(Path(), Path(), {}, 1.0)
    slot.begin([("small", "float32")], 8)
    slot.start(Candidate(Path("default.so"), [], 0.0))
    first, second, *later = started
    assert [first.closed, second.closed] == [lost == "the default", lost == "the candidate"]
    warm_up = ["list", "open", "plan", "fresh", "time"]
    if lost == "the default":
        assert [worker.orders for worker in later] == [["list", "load"]]
    else:
        assert first.orders == [*warm_up, "list", "load"]
        assert not later
    if lost != "the candidate":
        assert second.orders == ["list", "prove", *warm_up[1:], "time"]
