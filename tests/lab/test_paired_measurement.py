"""How pairs of workers share the cases, what is measured again, and what ends a measurement. No worker is started."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from kernelgen.errors import LabError
from kernelgen.lab import comparison_text, pair
from kernelgen.lab.compare import Thresholds
from kernelgen.lab.pair import Pair, PairedResult
from kernelgen.lab.paired_measurement import PairedMeasurement
from kernelgen.lab.worker_process import LostError

MACHINE = {"device": "cpu", "cpu": "A CPU", "cores": 2}


class FakeWorker:
    """Lists cases, and does whatever else it is ordered to."""

    def __init__(self, cases: list[str], device: str, name: str = "new") -> None:
        self.name = name
        environment = {**MACHINE, "device": device}
        self.listed = {"environment": environment, "cases": [[case, "float32"] for case in cases]}

    def order(self, do: str, **arguments: Any) -> None:
        assert do == "list"

    def answer(self) -> dict[str, Any]:
        return self.listed

    def allow(self, limit_s: float) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def measurement(monkeypatch):
    """A measurement of these ratios, by case: of its first measurement, and of its second."""

    def make(ratios: dict[str, list[float]], device: str = "cuda", start: Callable | None = None, **options):
        order: list[str] = []
        schedules: list[pair.Schedule] = []
        seeds: list[int] = []

        def started(op: str, seed: int) -> Pair:
            seeds.append(seed)
            return Pair(FakeWorker([*ratios], device, "old"), FakeWorker([*ratios], device))

        def measure(workers, part, schedule, tick, is_decided):
            repeated = schedule.seed >= pair.pairs_for(measured.schedule.blocks, device)
            if isinstance(level := ratios[part.case][repeated], Exception):
                raise level
            order.append(part.case)
            schedules.append(schedule)
            chance = random.Random(schedule.seed)
            part.ratios = [level * chance.uniform(0.995, 1.005) for _ in range(schedule.blocks)]
            return part

        monkeypatch.setattr(pair, "measure", measure)
        thresholds = Thresholds(faster=0.03)
        measured = PairedMeasurement(["op"], start or started, "old", "new", thresholds, **options)
        measured.seeds, measured.order, measured.schedules = seeds, order, schedules
        return measured

    return make


def test_what_was_measured_is_kept_if_later_workers_do_not_start(measurement):
    starts = iter([True, False, True, True])

    def start(op: str, seed: int) -> Pair:
        if not next(starts):
            raise LabError("no worker came")
        return Pair(FakeWorker(["small"], "cpu"), FakeWorker(["small"], "cpu"))

    measured = measurement({"small": [1.0]}, "cpu", start)
    comparison = measured.compare()
    assert len(measured.measured[0].ratios) == 75
    assert comparison.notes == ["no worker came"]


def test_a_lost_case_costs_itself_alone(measurement):
    """It is wrong where the new version was lost; where the old one was, nothing is known."""
    measured = measurement({"a": [LostError("old", "hung")], "b": [LostError("new", "crashed")], "c": [1.0]})
    comparison = measured.compare()
    verdicts = {verdict.case: verdict.verdict for verdict in comparison.verdicts}
    assert verdicts == {
        "op · a · float32": "inconclusive",
        "op · b · float32": "wrong result",
        "op · c · float32": "no difference",
    }
    assert comparison.exit_code == 1
    assert comparison.as_dict()["cases"][-1]["notes"] == ["new crashed."]
    assert len(comparison_text.rows(comparison)) == 3
    with pytest.raises(LostError, match="new crashed"):
        measurement({"a": [1.0], "b": [LostError("new", "crashed")]}, tolerant=False).compare()


def test_where_nothing_was_measured_the_reasons_are_said(measurement):
    def start(op: str, seed: int) -> Pair:
        raise LabError("op has no case 'huge'.")

    with pytest.raises(LabError, match="op has no case 'huge'"):
        measurement({}, start=start).compare()


@pytest.mark.parametrize(
    ("device", "blocks", "shares"), [("cuda", 40, [40]), ("cpu", 100, [25, 25, 25, 25]), ("cpu", 29, [14, 15])]
)
def test_several_pairs_of_workers_share_the_blocks(measurement, device, blocks, shares):
    measured = measurement({"a": [1.0]}, device, blocks=blocks)
    measured.compare()
    assert [schedule.blocks for schedule in measured.schedules] == shares
    assert len(measured.measured[0].ratios) == blocks
    assert len(set(measured.seeds)) == len(shares)
    assert len({schedule.seed for schedule in measured.schedules}) == len(shares)


def test_a_doubtful_case_is_measured_again_by_new_processes(measurement):
    measured = measurement({"a": [1.0], "b": [0.9, 0.9], "c": [1.05, 1.0]})
    comparison = measured.compare()
    assert measured.order == ["a", "b", "c", "b", "c"]
    assert [verdict.verdict for verdict in comparison.verdicts] == ["no difference", "improvement", "inconclusive"]
    assert [result.key for result in measured.repeated] == ["op · b · float32", "op · c · float32"]
    assert len(set(measured.seeds)) == 2


def test_only_some_cases_are_measured(measurement):
    measured = measurement({"a": [1.0], "b": [1.0]}, cases=["op · b · float32"])
    measured.compare()
    assert measured.order == ["b"]


def test_after_a_slower_case_it_measures_no_further(measurement):
    measured = measurement({"a": [0.9], "b": [1.04, 1.04], "c": [0.9]}, stops_early=True)
    comparison = measured.compare()
    assert measured.order == ["a", "b", "b"]
    assert comparison.notes == ["that is enough: 1 of 3 cases were not measured"]
    assert [verdict.verdict for verdict in comparison.verdicts] == ["improvement", "regression"]


def test_a_case_that_only_looked_slower_stops_nothing(measurement):
    measured = measurement({"a": [1.04, 1.0], "b": [1.0], "c": [0.9, 0.9]}, stops_early=True)
    comparison = measured.compare()
    assert measured.order == ["a", "a", "b", "c", "c"]
    assert comparison.notes == []
    assert [verdict.verdict for verdict in comparison.verdicts] == ["inconclusive", "no difference", "improvement"]


def test_a_wrong_result_stops_it(measurement, monkeypatch):
    measured = measurement({"a": [1.0, 1.0], "b": [1.0]}, stops_early=True)
    right = pair.measure

    def wrong(workers, part: PairedResult, schedule, tick, is_decided):
        part.faults.append("new: it is wrong")
        return right(workers, part, schedule, tick, is_decided)

    monkeypatch.setattr(pair, "measure", wrong)
    assert measured.compare().exit_code == 1
    assert set(measured.order) == {"a"}
