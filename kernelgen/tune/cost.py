"""What a search would take, for a dry run."""

import time
from contextlib import closing
from typing import Any

from kernelgen.tune.candidates import CandidateCompiler
from kernelgen.tune.request import Reporter, TuningRequest
from kernelgen.tune.slot import MeasuringSlot
from kernelgen.tune.task import Task
from kernelgen.tune.tuning import compiler_for


def estimate_cost(request: TuningRequest, task: Task, reporter: Reporter) -> dict[str, Any]:
    """The seconds of one compilation and of one measurement, both measured here, and the minutes of all trials.

    Raises:
        TuningError: the op cannot be built here.
    """
    shape_classes = task.to_search()
    compiler = compiler_for(request, task, shape_classes[0].shapes)
    reporter.stage("compiling the default", None)
    default = compiler.prepare()
    point = next(values for n, values in enumerate(task.space.points()) if n == shape_classes[0].kept[0])
    start = time.perf_counter()
    compiling_s = compiler.compile(point).seconds or default.seconds or time.perf_counter() - start
    measuring_s = None
    if task.device == "cpu" or task.gpus:
        reporter.stage("measuring the default beside itself", None)
        measuring_s = _measure_default(request, task, compiler)
    trials = sum(min(request.seeds + request.trials, len(shape_class.kept)) for shape_class in shape_classes)
    longest_s = max(trials * compiling_s / compiler.jobs, trials * (measuring_s or 0) / max(1, len(task.gpus)))
    return {
        "trials": trials,
        "jobs": compiler.jobs,
        "compiling_s": compiling_s,
        "measuring_s": measuring_s,
        "minutes": min(longest_s / 60, request.minutes or longest_s),
    }


def _measure_default(request: TuningRequest, task: Task, compiler: CandidateCompiler) -> float:
    """The seconds that measuring a candidate takes in one shape class, on average."""
    shape_classes = task.to_search()
    cases = [case for shape_class in shape_classes for case in shape_class.cases]
    with closing(MeasuringSlot(request.python, request.root, request.to_worker(task.device), request.limit_s)) as slot:
        slot.begin(cases, request.budget.proofs)  # Without a warm-up the first measurement takes much longer.
        slot.start(compiler.default)
        result = slot.measure(compiler.default, request.budget, cases, {}, request.seed)
    return result.seconds / len(shape_classes)
