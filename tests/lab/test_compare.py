"""Comparing files, and two revisions side by side. Workers are real; the ops are Python, so nothing is compiled."""

import json
import math
import os
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from kernelgen.errors import KernelgenError, LabError
from kernelgen.lab import compare, comparison_text, pair, results, statistics, trust
from kernelgen.lab.worker_process import LostError, WorkerProcess
from kernelgen.toolchain import revision
from kernelgen.worker.judge import comparison as judging
from tests.conftest import commit_all, git
from tests.worker.bench_ops import interpreted_project

ENVIRONMENT = {"gpu": None, "cpu": "A CPU", "cores": 2, "torch": "2.11", "flags": {}}


@pytest.fixture(autouse=True)
def _fewer_resamples(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)


def samples(level: float, seed: int = 0) -> list[float]:
    return list(np.random.default_rng(seed).normal(level, level * 0.005, 100))


def case(name: str, level: float, peer: float = 1.0, **facts) -> dict:
    functions = {"op": samples(level), "torch": samples(peer, seed=1)}
    described = {key: {"seconds": times, "median": [float(np.median(times))]} for key, times in functions.items()}
    named = {"op": "rms", "case": name, "dtype": "float32", "backward": False, "faults": [], "peers": {"torch": []}}
    return {**named, "functions": described, **facts}


def file(path: Path, *cases: dict, **environment) -> Path:
    results.write({**results.new({**ENVIRONMENT, **environment}), "cases": list(cases)}, path)
    return path


@pytest.fixture
def before(tmp_path) -> Path:
    return file(tmp_path / "A.json", case("small", 0.01), case("large", 0.1))


@pytest.mark.parametrize(
    "small, large, code",
    [(0.01, 0.1, 2), (0.0101, 0.1, 2), (0.0105, 0.1, 1), (0.008, 0.1, 0), (0.008, 0.105, 1), (0.0095, 0.1, 2)],
)
def test_exit_codes(run, tmp_path, before, small, large, code):
    after = file(tmp_path / "B.json", case("small", small), case("large", large))
    assert run("compare", before, after).code == code


def test_json_and_markdown(run, tmp_path, before):
    after = file(tmp_path / "B.json", case("small", 0.008), case("large", 0.105))
    comparison = run("compare", before, after, "--json").json
    assert [verdict["verdict"] for verdict in comparison["cases"]] == ["improvement", "regression"]
    assert comparison["exit_code"] == 1
    assert comparison["cases"][1]["ratio"][0] == pytest.approx(1.05, abs=0.01)
    assert comparison["thresholds"] == {"slower": 0.03, "faster": 0.1, "delta": 0.3, "p": 0.05}
    text = run("compare", before, after, "--markdown").out
    assert "1 regression, 1 improvement" in text
    assert text.count("\n| rms · ") == 2
    assert run("compare", before, after).out.count("float32") == 2


def test_thresholds_and_cases(run, tmp_path, before):
    after = file(tmp_path / "B.json", case("small", 0.0105), case("large", 0.1))
    assert run("compare", before, after, "--slower", 10).code == 2
    assert run("compare", before, after, "--cases", "large").code == 2
    assert run("compare", before, after, "--cases", "small").code == 1


def test_a_peer_that_moved_as_well_blames_the_machine(run, tmp_path, before):
    after = file(tmp_path / "B.json", case("small", 0.0105, peer=1.05), case("large", 0.1))
    outcome = run("compare", before, after)
    assert outcome.code == 2
    assert "so the machine changed" in outcome.out


def test_wrong_results_are_no_improvement(run, tmp_path, before):
    after = file(tmp_path / "B.json", case("small", 0.001, faults=["it cheats"]))
    outcome = run("compare", before, after)
    assert outcome.code == 1
    assert "wrong result" in outcome.out
    assert "only in" in outcome.out


def test_what_was_not_checked_is_no_improvement(run, tmp_path, before):
    after = file(tmp_path / "B.json", case("small", 0.001, doubts=["not compared"]), case("large", 0.1))
    outcome = run("compare", before, after)
    assert outcome.code == 2
    assert "an improvement is not believed" in outcome.out
    for measured in ([replace(paired(0.85), doubts=["not compared"])], [paired(0.85)]):
        repeated = [replace(paired(0.85, seed=1), doubts=["not compared"])]
        comparison = compare.revisions("a", "b", "here", measured, compare.Thresholds(), repeated)
        assert comparison.exit_code == 2
        assert comparison.verdicts[0].notes.count("not compared") == 1


def test_what_is_wrong_when_it_is_measured_again_is_wrong():
    repeated = [replace(paired(0.85, seed=1), faults=["it cheats"])]
    comparison = compare.revisions("a", "b", "here", [paired(0.85)], compare.Thresholds(), repeated)
    assert comparison.verdicts[0].verdict == compare.WRONG


def test_wrong_results_before_are_no_regression(run, tmp_path):
    before = file(tmp_path / "A.json", case("small", 0.001, faults=["it cheats"]))
    outcome = run("compare", before, file(tmp_path / "B.json", case("small", 0.01)), "--json")
    assert outcome.code == 1
    assert [verdict["verdict"] for verdict in outcome.json["cases"]] == ["wrong result"]
    assert outcome.json["cases"][0]["notes"] == [f"{before}: it cheats"]


def noisy(ratio: float, spread: float, blocks: int = 40) -> pair.PairedResult:
    ratios = list(np.random.default_rng(0).normal(ratio, spread, blocks))
    return pair.PairedResult("rms", "small", "float32", ratios=ratios, before=1.0, after=ratio)


@pytest.mark.parametrize(
    "ratio, spread, blocks, verdict",
    [
        *((1.0, 0.01, 40, "no difference"), (0.95, 0.01, 40, "no difference"), (1.0, 0.2, 40, "inconclusive")),
        *((1.02, 0.08, 40, "inconclusive"), (1.04, 0.2, 40, "inconclusive"), (1.0, 0.001, 5, "inconclusive")),
    ],
)
def test_no_difference_is_said_only_where_a_regression_is_ruled_out(ratio, spread, blocks, verdict):
    comparison = compare.revisions("a", "b", "here", [noisy(ratio, spread, blocks)], compare.Thresholds())
    assert (comparison.verdicts[0].verdict, comparison.exit_code) == (verdict, 2)
    assert any("more blocks would decide" in note for note in comparison.verdicts[0].notes) == (
        verdict != "no difference"
    )
    assert verdict in comparison_text.markdown(comparison)
    assert verdict in json.dumps(comparison.as_dict())


@pytest.mark.parametrize("ratio, spread", [(1.0, 0.1), (1.01, 0.08), (1.05, 0.12)])
def test_as_many_more_blocks_as_it_says_decide(ratio, spread):
    thresholds = compare.Thresholds()

    def difference(blocks: int) -> statistics.Difference:
        quantiles = [NormalDist().inv_cdf((i + 0.5) / blocks) for i in range(blocks)]
        return statistics.paired_difference([ratio * math.exp(spread * quantile) for quantile in quantiles])

    first = difference(40)
    assert thresholds.verdict(first, first.p) == "inconclusive"
    more = thresholds.more_to_decide(first)
    after = difference(40 + round(1.3 * more))  # "About": a bootstrap's interval is off by some percent.
    assert thresholds.verdict(after, after.p) == ("regression" if ratio > 1.03 else "no difference")


def test_a_ratio_at_the_threshold_asks_for_no_million_of_blocks(run):
    assert compare.Thresholds().more_to_decide(statistics.paired_difference([1.0299, 1.04, 1.01] * 13)) is None


def test_what_cannot_be_compared_is_said_in_a_sentence(run, tmp_path, before):
    other = file(tmp_path / "B.json", case("small", 0.01), cpu="Another CPU")
    stranger = file(tmp_path / "C.json", case("strange", 0.01))
    newer = tmp_path / "D.json"
    newer.write_text(json.dumps({"kind": results.KIND, "version": 99}))
    for arguments, sentence in (
        ((before, other), "times of different machines say nothing"),
        ((before, stranger), "no case in common"),
        ((before, newer), "version 99"),
        ((before, tmp_path / "none.json"), "cannot be read"),
        ((before, before, "--cases", "huge"), "There is no case 'huge'"),
        ((before,), "give two files"),
        ((before, before, "--json", "--markdown"), "choose one"),
    ):
        outcome = run("compare", *arguments)
        assert outcome.code == 3
        assert sentence in outcome.err + outcome.out
        assert (outcome.err + outcome.out).count("\n") == 1


# ---- Two live workers -----------------------------------------------------------------------------------------

SCHEDULE = pair.Schedule(blocks=12, rounds=2, samples=1, seed=1)


REQUEST = {"work": "compare", "package": "pkg", "op": "tested", "seed": 1, "device": "cpu", "interpreted": True}


def started(name: str, project: Path, **request) -> WorkerProcess:
    return WorkerProcess(name, Path(sys.executable), project, {**REQUEST, **request}, limit_s=60)


def live(before: Path, after: Path) -> pair.Pair:
    return pair.Pair(started("old", before), started("new", after))


def measured(running: pair.Pair) -> pair.PairedResult:
    try:
        cases = running.both("list")[0]["cases"]
        assert cases[0] == ["small", "float32"]
        return pair.measure(running, pair.PairedResult("tested", "small", "float32"), SCHEDULE)
    finally:
        running.close()


def test_two_revisions_take_turns_and_a_large_slowdown_is_found(tmp_path):
    slow = "[x * 2 for _ in range(30)]"
    old, new = interpreted_project(tmp_path / "old"), interpreted_project(tmp_path / "new", slow)
    result = measured(live(old, new))
    assert len(result.ratios) == 12
    assert result.faults == []
    assert set(result.about) == {"old", "new"}
    comparison = compare.revisions("old", "new", "here", [result], compare.Thresholds())
    assert comparison.exit_code == 1
    assert "regression" in comparison_text.markdown(comparison)
    json.dumps(comparison.as_dict())


def test_a_cheat_in_one_revision_is_a_wrong_result(tmp_path):
    cheat = "return globals().setdefault('kept', {}).setdefault(x.data_ptr(), x * 2 + 1)"
    old, new = interpreted_project(tmp_path / "old"), interpreted_project(tmp_path / "new", cheat)
    result = measured(live(old, new))
    assert result.faults
    assert all(fault.startswith("new: ") for fault in result.faults)
    assert compare.revisions("old", "new", "here", [result], compare.Thresholds()).exit_code == 1


def test_results_that_could_not_be_compared_in_full_are_said(tmp_path):
    roots = [interpreted_project(tmp_path / name) for name in ("old", "new")]
    for root in roots:
        with (root / "src/pkg/ops/tested/lab.py").open("a") as file:
            file.write(
                "\n\ndef REFERENCE(x):\n    if x.dtype == torch.float64:\n        raise torch.OutOfMemoryError\n"
            )
            file.write("    return x * 2 + 1\n")
    result = measured(live(*roots))
    assert (result.faults, result.remarks) == ([], [judging.COARSELY])
    comparison = compare.revisions("old", "new", "here", [result], compare.Thresholds())
    assert judging.COARSELY in comparison.as_dict()["cases"][0]["notes"]
    assert f"- tested · small · float32: {judging.COARSELY}" in comparison_text.markdown(comparison)


def test_a_crash_is_said_in_a_sentence(tmp_path):
    worker = started("new", interpreted_project(tmp_path, "os.abort()"))
    worker.ask("list")
    with pytest.raises(LostError, match="new crashed with SIGABRT"):
        worker.ask("open", case="small", dtype="float32")
    worker.close()


def test_a_hang_ends_at_the_limit(tmp_path):
    worker = started("new", interpreted_project(tmp_path, "import time; time.sleep(1000)"))
    worker.ask("list")
    worker.allow(1)
    with pytest.raises(LostError, match="new hung: it said nothing for 1 s"):
        worker.ask("open", case="small", dtype="float32")
    assert worker._process.poll() is not None
    worker.close()


def test_an_unknown_case_is_said_by_the_worker(tmp_path):
    worker = started("new", interpreted_project(tmp_path), cases=["huge"])
    with pytest.raises(LabError, match="has no case 'huge' on cpu"):
        worker.ask("list")
    worker.close()


class FakeWorker:
    """A worker that takes so many seconds a sample, on a GPU that is throttled in the rounds that are said."""

    def __init__(self, name: str, seconds: float, throttled: Callable[[int], bool]) -> None:
        self.name, self.seconds, self.throttled, self.round = name, seconds, throttled, -1

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        if do == "sample":
            self.round += 1
            slower = 2 if self.throttled(self.round) else 1
            return {"seconds": [slower * self.seconds] * arguments["count"], "throttled": slower > 1}
        return {
            "fastest": self.seconds,
            "one_thread": False,
            "graphs": False,
            "faults": [],
            "remarks": [],
            "doubts": [],
        }

    def order(self, do: str, **arguments: Any) -> None:
        self._answer = self.ask(do, **arguments)

    def answer(self) -> dict[str, Any]:
        return self._answer


def of_a_gpu_that_is_throttled(when: Callable[[int], bool]) -> pair.PairedResult:
    both = pair.Pair(FakeWorker("old", 1.0, when), FakeWorker("new", 0.9, when))
    return pair.measure(both, pair.PairedResult("tested", "small", "float32"), replace(SCHEDULE, checks=0))


def test_rounds_of_a_throttled_gpu_are_set_aside():
    result = of_a_gpu_that_is_throttled(lambda round: round % 4 == 0)
    assert (result.before, result.after, result.set_aside) == (1.0, 0.9, 6)
    assert result.ratios == pytest.approx([0.9] * 12)
    assert result.remarks == []


def test_where_a_gpu_is_throttled_most_of_the_time_all_rounds_count():
    """A power limit that a kernel always meets is no reason to say nothing: both sides meet it in turns."""
    for when in (lambda round: True, lambda round: round != 3):
        result = of_a_gpu_that_is_throttled(when)
        assert (result.before, result.after, result.set_aside) == (2.0, 1.8, 0)
        assert result.ratios == pytest.approx([0.9] * 12)
        assert result.remarks == [pair.THROTTLED]


@pytest.mark.parametrize(
    ("slower_by", "noise", "blocks"),
    [(0.0, 0.002, 12), (0.05, 0.002, 12), (-0.2, 0.002, 12), (0.025, 0.002, 40), (0.0, 0.05, 40)],
)
def test_a_case_ends_once_its_interval_lies_on_one_side_of_what_matters(slower_by, noise, blocks):
    chance = random.Random(0)

    class Noisy(FakeWorker):
        def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
            answer = super().ask(do, **arguments)
            answer["seconds"] = [self.seconds * chance.gauss(1, noise)] * arguments.get("count", 1)
            return answer

    both = pair.Pair(
        *(Noisy(name, seconds, lambda round: False) for name, seconds in (("old", 1), ("new", 1 + slower_by)))
    )
    schedule = pair.Schedule(blocks=40, rounds=1, samples=1)
    result = pair.measure(both, pair.PairedResult("a", "b", "c"), schedule, is_decided=compare.Thresholds().is_decided)
    assert result.blocks == len(result.ratios) == blocks


def test_some_block_is_checked_among_those_that_are_measured_in_any_case():
    for seed in range(50):
        checked = pair.Schedule(blocks=40).checked(random.Random(seed))
        assert len(checked) == pair.CHECKS
        assert min(checked) < pair.LEAST
        assert max(checked) < 40
    assert pair.Schedule(blocks=3).checked(random.Random(0)) == {0, 1, 2}


def paired(ratio: float, seed: int = 0) -> pair.PairedResult:
    ratios = list(np.random.default_rng(seed).normal(ratio, 0.005, 40))
    return pair.PairedResult("rms", "small", "float32", ratios=ratios, before=1.0, after=ratio)


@pytest.mark.parametrize(
    "first, second, code",
    [
        *((1.05, 1.05, 1), (1.05, 1.0, 2), (1.05, 0.95, 2), (0.85, 0.85, 0), (0.85, 1.0, 2)),
        # Shown, and slower by less than 3%: a regression if the others cannot rule out 3%, and find it slower, too.
        *((1.02, 1.05, 1), (1.05, 1.02, 1), (1.02, 1.02, 2), (1.05, 1.01, 2), (1.0, 1.05, 2)),
    ],
)
def test_other_processes_have_a_say_in_the_verdict(first, second, code):
    thresholds, result, again = compare.Thresholds(), paired(first), paired(second, seed=1)
    alone = compare.revisions("a", "b", "here", [result], thresholds)
    assert compare.doubtful(alone) == ([] if first == 1.0 else [alone.verdicts[0].case])
    comparison = compare.revisions("a", "b", "here", [result], thresholds, [again])
    assert comparison.exit_code == code
    notes = " ".join(comparison.verdicts[0].notes)
    assert ("not confirmed" in notes) == (code == 2 and alone.exit_code != 2)
    assert ("confirmed by other processes" in notes) == (code != 2)


@pytest.mark.parametrize("blocks, turns", [(100, 4), (10, 4), (40, 1)])
def test_pairs_of_workers_share_the_blocks(blocks, turns):
    plans = [pair.Schedule(blocks, seed=seed).share(turn, turns) for seed in (0, 1) for turn in range(turns)]
    assert [sum(plan.blocks for plan in plans[:turns]), sum(plan.blocks for plan in plans[turns:])] == [blocks, blocks]
    assert max(plan.blocks for plan in plans) - min(plan.blocks for plan in plans) <= 1
    assert len({plan.seed for plan in plans}) == len(plans)  # Nobody draws another's inputs.
    assert pair.CHECKS <= sum(plan.checks for plan in plans[:turns]) < pair.CHECKS + turns


def test_what_pairs_of_workers_found_is_put_together():
    parts = [paired(1.0, seed=seed) for seed in range(3)]
    for part, before, fault in zip(parts, (3.0, 1.0, 2.0), ("it is wrong", "it is wrong", "it is late"), strict=True):
        part.before, part.set_aside, part.faults = before, 1, [fault]
    whole = pair.merged(parts)
    assert whole.ratios == [ratio for part in parts for ratio in part.ratios]
    assert (whole.before, whole.set_aside) == (2.0, 3)
    assert whole.faults == ["it is wrong", "it is late"]
    assert len(parts[0].ratios) == 40


# ---- Revisions ------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path) -> Path:
    """A project in a folder of its repository, whose op was added in the second commit."""
    root = tmp_path / "repository" / "project"
    root.mkdir(parents=True)
    (root / "setup.py").write_text("# one\n")
    commit_all(root.parent)
    interpreted_project(root)
    (root / "src/pkg/ops/tested/lab.py").write_text("# old\n")
    commit_all(root.parent)
    (root / "src/pkg/ops/tested/lab.py").write_text("# new\n")
    return root


def test_another_revision_is_checked_out_aside_and_leaves_nothing_behind(repository):
    def repository_files() -> set[Path]:
        return set((repository.parent / ".git").rglob("*"))

    before = repository_files()
    with revision.checked_out(repository, "HEAD") as (then, commit):
        # A list of work trees would be read half-written by the threads of a verdict, and by the user's git.
        assert repository_files() == before
        assert commit == git(repository, "rev-parse", "HEAD")
        lab = then / "src/pkg/ops/tested/lab.py"
        assert lab.read_text() == "# old\n"
        revision.copy_cases(repository, then, "pkg", "tested", "HEAD")
        assert lab.read_text() == "# new\n"
    assert not then.exists()
    assert (repository / "src/pkg/ops/tested/lab.py").read_text() == "# new\n"


def test_settings_of_the_repository_change_nothing_of_another_revision(repository):
    """Filters would write other files, and a replaced commit have another tree, or another parent."""
    commit, lab = git(repository, "rev-parse", "HEAD"), "src/pkg/ops/tested/lab.py"
    (repository / "tool.sh").write_text("echo $Id$\n")
    (repository / "tool.sh").chmod(0o755)
    (repository / "link").symlink_to("tool.sh")
    commit_all(repository.parent)
    git(repository, "replace", "HEAD", commit)
    git(repository, "config", "filter.slow.smudge", "sed s/new/slow/")
    (repository.parent / ".git" / "info").mkdir(exist_ok=True)
    (repository.parent / ".git" / "info" / "attributes").write_text("* filter=slow ident export-ignore\n")
    with revision.checked_out(repository, "HEAD") as (then, _), revision.checked_out(repository, "HEAD~1") as (old, _):
        assert ((then / lab).read_text(), (old / lab).read_text()) == ("# new\n", "# old\n")
        assert ((then / "link").read_text(), os.access(then / "tool.sh", os.X_OK)) == ("echo $Id$\n", True)


def test_a_rule_that_changed_is_said(repository):
    with trust.trusted(repository, "HEAD") as rule:
        assert rule != repository
        (sentence,) = trust.changes_of_rule(rule, repository, "pkg", ["tested"], "HEAD")
        assert sentence.startswith("tested: lab.py changed since HEAD")
        (repository / "src/pkg/ops/tested/lab.py").write_text("# old\n")
        assert trust.changes_of_rule(rule, repository, "pkg", ["tested"], "HEAD") == []
        (rule / "src/pkg/ops/tested/lab.py").unlink()
        with pytest.raises(
            LabError, match=r"tested had no lab\.py at HEAD; judge it by the one it has now, with --trust \."
        ):
            trust.changes_of_rule(rule, repository, "pkg", ["tested"], "HEAD")
    assert not rule.exists()
    with trust.trusted(repository, trust.WORKING_TREE) as rule:
        assert rule == repository


def test_revisions_that_will_not_do(repository, tmp_path):
    with pytest.raises(KernelgenError, match="no revision 'nowhere'"), revision.checked_out(repository, "nowhere"):
        pass
    with revision.checked_out(repository, "HEAD~1") as (then, _), pytest.raises(KernelgenError, match="no op 'tested'"):
        revision.copy_cases(repository, then, "pkg", "tested", "HEAD~1")
    (tmp_path / "plain").mkdir()
    with (
        pytest.raises(KernelgenError, match="read from git; `git init` and commit first"),
        revision.checked_out(tmp_path / "plain", "HEAD"),
    ):
        pass
