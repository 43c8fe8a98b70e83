"""The share of this machine's ceilings that an op reaches, as a step of a verdict."""

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.lab import bench
from kernelgen.lab.pair import PairedResult
from kernelgen.lab.paired_measurement import PairedMeasurement
from kernelgen.lab.step import FAILED, OPEN, PASSED, Step
from kernelgen.protocol import OP


def of_bench(run: bench.BenchRun) -> Step:
    """It refutes only results that are wrong."""
    faults = [fault for case in run.results["cases"] for fault in case["faults"]]
    faults += [f"{case['case']}: {case['reason']}" for case in run.results["failures"]]
    return _step([_figures(case) for case in run.results["cases"]], faults, run.results["notes"])


def of_measurement(measurement: PairedMeasurement) -> Step:
    """That of the version after, while it was compared."""
    rates = measurement.ceilings
    faults = [text for result in measurement.measured if (text := _beyond(result, rates))]
    return _step([_figures_of(result, rates) for result in measurement.measured], faults, [])


def _step(figures: list[dict[str, Any]], faults: list[str], notes: list[str]) -> Step:
    facts = {"cases": figures}
    if faults:
        return Step("share", FAILED, "; ".join(dict.fromkeys(faults)), facts=facts)
    if not figures:
        return Step("share", OPEN, "; ".join(notes) or "no case was measured", facts=facts)
    shares = [case["share"] for case in figures if case["share"]]
    if not shares:
        return Step("share", PASSED, f"{_cases(figures)} measured; lab.py counts no bytes", facts=facts)
    text = f"{min(shares):.0%} to {max(shares):.0%} of what a copy or a matrix product does here"
    return Step("share", PASSED, f"{text}, {_cases(shares)}", facts=facts)


def _cases(measured: Sequence[object]) -> str:
    return f"{len(measured)} case{'s' * (len(measured) != 1)}"


def _figures(case: Mapping[str, Any]) -> dict[str, Any]:
    op = case["functions"][OP]
    share = max((op.get(name) or 0 for name in ("copy_fraction", "matrix_fraction")), default=0)
    return {"case": case["case"], "dtype": case["dtype"], "seconds": op["median"], "share": share or None}


def _figures_of(result: PairedResult, rates: Mapping[str, Any]) -> dict[str, Any]:
    fractions = bench.fractions(result.after, result.bytes, result.flops, result.dtype, rates)
    share = max((fraction for fraction in fractions.values() if fraction), default=None)
    return {"case": result.case, "dtype": result.dtype, "seconds": [result.after], "share": share}


def _beyond(result: PairedResult, rates: Mapping[str, Any]) -> str | None:
    """A sentence if it was faster than this machine is."""
    fractions = bench.fractions(result.after, result.bytes, result.flops, result.dtype, rates)
    method = {end["method"] for end in result.about.values()}.pop()
    return bench.beyond_ceilings(
        {"median": [result.after], **fractions}, {"method": method, "bytes": result.bytes}, rates
    )
