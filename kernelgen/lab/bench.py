"""Collects the results of `kernelgen bench`: makes figures, intervals and warnings of the samples that a worker sends.

worker/bench.py takes the samples; results.py describes the file that is kept of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgen.lab import results, statistics, worker_process
from kernelgen.lab.evidence import set_variables
from kernelgen.lab.results import Results
from kernelgen.lab.selection import Selection
from kernelgen.lab.steady import steady_variables
from kernelgen.lab.trust import changes_of_rule, trusted
from kernelgen.protocol import OP

# From here on a GPU's temperature (°C), the samples' coefficient of variation and the share of the CPU that other
# processes take call for a warning.
HOT_C, UNSTEADY, BUSY = 80, 0.12, 0.10
# An op that is so many times as fast as this machine's ceilings did not do its work.
BEYOND = 2.0

Event = dict[str, Any]


@dataclass
class BenchRun:
    """What was measured: `results` as a file holds them, and the `samples` of cases that `summarise` has yet to add."""

    results: Results = field(default_factory=lambda: {**results.new({}), "notes": []})
    samples: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = True

    @property
    def exit_code(self) -> int:
        """0 measured, 1 something failed or is wrong, 2 nothing was measured, 130 interrupted."""
        cases = self.results["cases"]
        if not self.finished:
            return 130
        if self.results["failures"] or any(case["faults"] for case in cases):
            return 1
        return 0 if cases else 2

    def add(self, event: Event) -> None:
        """Sorts an event of the worker into the results."""
        facts = dict(event)
        kind = facts.pop("event")
        if kind in ("environment", "ceilings"):
            self.results[kind] = facts
            notes = self.results["notes"]
            notes += [note for note in set_variables(facts) if kind == "environment" and note not in notes]
        elif kind == "case":
            self.samples.append(facts)
        elif kind in ("failed", "lost"):
            self.results["failures"].append(facts)
        elif kind == "skipped":
            self.results["notes"].append(facts["message"])
        elif kind == "given up":
            self.results["notes"].append(f"{facts['op']}: {facts['reason']}")

    def summarise(self) -> None:
        """Makes figures of the samples, once all are taken: a bootstrap would slow down what is being measured."""
        self.results["cases"] += [described(case, self.results["ceilings"]) for case in self.samples]
        self.samples.clear()

    def save(self, out: Path | None, baselines_of: Path | None) -> list[Path]:
        """Writes the results to `out`, and those of each op to its baseline in a project; returns the paths."""
        if not self.results["cases"]:
            return []
        files = {out: self.results} if out else {}
        if baselines_of:
            for op in dict.fromkeys(case["op"] for case in self.results["cases"]):
                path = results.baseline(baselines_of, self.results["environment"], op)
                files[path] = results.of_op(self.results, op)
        for path, part in files.items():
            results.write(part, path)
        return list(files)


def measure(
    selection: Selection,
    limit_s: float,
    show: Callable[[str, int], None] = lambda text, cases: None,
    trust: str | None = None,
    **options: Any,
) -> BenchRun:
    """Measures ops; Ctrl-C ends it early, and what was measured is kept.

    Args:
        limit_s: how long a case may say nothing before it counts as hung.
        show: is told what is measured, and how many cases are done.
        trust: the revision that lab.py, the reference and the peers are taken from; None: as they are now.
        options: the optional part of the request, as worker/bench.py has it.
    """
    run = BenchRun()

    def on_event(event: Event) -> None:
        run.add(event)
        show(f"measuring {event.get('op', 'the machine')}", len(run.samples))

    with trusted(selection.root, trust) as rule:
        if trust:
            run.results["notes"] += changes_of_rule(rule, selection.root, selection.package, selection.ops, trust)
        request = selection.request("bench", environment=steady_variables(), trusted=str(rule), **options)
        run.finished = worker_process.run(selection.python, request, on_event, limit_s)
    run.summarise()
    return run


# ---- Figures of one case ------------------------------------------------------------------------------------------


def described(measured: dict[str, Any], ceilings: dict[str, Any]) -> dict[str, Any]:
    """A case of the results, from the worker's event.

    Samples that were taken while the GPU was throttled are set aside, unless nearly all were.
    """
    throttled = measured["throttled"]
    steady = [i for i, slowed in enumerate(throttled) if not slowed]
    kept = steady if len(steady) >= 2 else list(range(len(throttled)))
    seconds = {name: [samples[i] for i in kept] for name, samples in measured["seconds"].items()}
    aside = len(throttled) - len(kept)
    spread = statistics.spread(seconds[OP])
    functions = {name: _figures(measured, samples, ceilings) for name, samples in seconds.items()}
    beyond = beyond_ceilings(functions[OP], measured, ceilings)
    cautions = warnings(measured["state"], spread, aside, kept=len(kept) if kept is steady else 0)
    named = ("op", "case", "sizes", "dtype", "backward", "method", "calls_a_sample", "seed")
    return {
        **{name: measured[name] for name in named if name in measured},
        "functions": functions,
        "peers": {name: _times_as_fast(seconds[OP], samples) for name, samples in seconds.items() if name != OP},
        "set_aside": aside,
        "state": measured["state"],
        "warnings": [*cautions, *measured["remarks"], *measured["doubts"]],
        "doubts": measured["doubts"],
        "watched": measured["watched"],
        "faults": [*measured["faults"], *([beyond] if beyond else [])],
        "left_out": measured.get("left_out", {}),
    }


def beyond_ceilings(op: dict[str, Any], measured: dict[str, Any], ceilings: dict[str, Any]) -> str | None:
    """A sentence if an op on a GPU is faster than the GPU: its events cannot be true, or it does not do its work.

    What fits the caches may be written, and read again, without the memory: it counts for nothing here.
    """
    if measured["method"] == "cpu clock" or not ceilings:
        return None
    median = op["median"][0]
    through_memory = max(0, (measured["bytes"] or 0) - ceilings.get("cache_bytes", 0))
    if through_memory / median > BEYOND * ceilings["copy_bytes_per_s"]:
        share = through_memory / median / ceilings["copy_bytes_per_s"]
        return f"it moves {share:.0%} of what a copy does: it skips work, or bytes_moved of its lab.py counts too much"
    if (op.get("matrix_fraction") or 0) > BEYOND:
        share = op["matrix_fraction"]
        return (
            f"it computes {share:.0%} of what a matrix product does: it skips work, or flops of its lab.py is too much"
        )
    return None


def warnings(state: dict[str, Any], spread: float, set_aside: int, kept: int) -> list[str]:
    """Sentences for what makes a case's figures doubtful.

    Args:
        state: the machine's, as worker/machine_state.py sums it up; `spread`: the samples' coefficient of variation.
        set_aside, kept: samples that were taken while the GPU was throttled, and not.
    """
    sentences = []
    if spread > UNSTEADY:
        sentences.append(
            f"the samples vary by {spread:.0%} (more than {UNSTEADY:.0%}): measure again on a quieter machine"
        )
    if set_aside:
        sentences.append(f"{set_aside} samples were taken while the GPU was throttled, and set aside")
    if not kept:
        sentences.append("every sample was taken while the GPU was throttled, so none was set aside")
    if state.get("celsius", {}).get("max", 0) >= HOT_C:
        sentences.append(f"the GPU reached {state['celsius']['max']} °C")
    if state.get("other_processes"):
        sentences.append(f"{state['other_processes']} other processes were on the GPU")
    if (state.get("others_share") or 0) > BUSY:
        sentences.append(f"other processes took {state['others_share']:.0%} of the CPU")
    if state.get("problem"):
        sentences.append(state["problem"])
    return sentences


def _figures(measured: dict[str, Any], seconds: Sequence[float], ceilings: dict[str, Any]) -> dict[str, Any]:
    percentiles = {f"p{percent}": statistics.percentile(seconds, percent) for percent in (50, 95, 99)}
    median = statistics.median(seconds, seed=measured["seed"])
    figures = {"seconds": seconds, "median": median.as_list(), **percentiles, "cv": statistics.spread(seconds)}
    rates = {"bytes_per_s": measured["bytes"], "flops_per_s": measured["flops"]}
    figures |= {name: count / median.value for name, count in rates.items() if count is not None}
    return figures | fractions(median.value, measured["bytes"], measured["flops"], measured["dtype"], ceilings)


def fractions(
    seconds: float, moved: int | None, flops: int | None, dtype: str, ceilings: Mapping[str, Any]
) -> dict[str, float | None]:
    """The shares of this machine's ceilings that a call reaches, of those that lab.py counts something for."""
    rates = {
        "copy_fraction": (moved, ceilings.get("copy_bytes_per_s")),
        "matrix_fraction": (flops, ceilings.get("matrix_flops_per_s", {}).get(dtype)),
    }
    counted = {name: pair for name, pair in rates.items() if pair[0] is not None}
    return {name: count / seconds / rate if rate else None for name, (count, rate) in counted.items()}


def _times_as_fast(op: Sequence[float], peer: Sequence[float]) -> list[float]:
    """How many times as fast as the peer the op is, with the 95% interval, round by round."""
    return statistics.median([theirs / ours for ours, theirs in zip(op, peer, strict=True)]).as_list()
