"""One tuning from its request to its result: search each shape class, confirm the best, write what passes."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kernelgen import __version__
from kernelgen.errors import LabError
from kernelgen.lab import pair
from kernelgen.tune import record, search, tuned_file
from kernelgen.tune.candidates import CandidateCompiler
from kernelgen.tune.confirm import Confirmation, Confirmer
from kernelgen.tune.device_limits import device_limits
from kernelgen.tune.devices import measuring_slots
from kernelgen.tune.errors import CompileError, TuningError
from kernelgen.tune.journal import is_begun, only_tuning, storage_of
from kernelgen.tune.request import Reporter, TuningRequest
from kernelgen.tune.search import Search
from kernelgen.tune.space import key
from kernelgen.tune.study import Study
from kernelgen.tune.task import ShapeClass, Task


@dataclass
class TuningResult:
    """The result of a tuning.

    Attributes:
        record: as `record.py` describes it.
        written: the tuned file, if something was written.
        left_to_others: whether another worker confirms the best.
    """

    record: dict[str, Any]
    written: Path | None = None
    left_to_others: bool = False


def tune(request: TuningRequest, task: Task, reporter: Reporter) -> TuningResult:
    """Search, confirm, write.

    Raises:
        LabError: nothing can be measured here.
        TuningError: nothing can be compiled here, the storage cannot be used, or the op is being tuned already.
    """
    if task.device == "cuda" and not task.gpus:
        raise LabError(
            f"{request.op} cannot be tuned for CUDA: torch sees no GPU here. Tune it for the CPU with --device cpu, or "
            "look at its space with --dry-run --chip 9.0."
        )
    folder = compiler_for(request, task).folder
    with only_tuning(request, folder):
        storage = storage_of(request, folder)
        result = TuningResult(record.new(request, task))
        for shape_class in task.to_search():
            _tune_shape_class(request, task, shape_class, storage, result, reporter)
        record.save(folder / "record.json", result.record)
    return result


def what_is_kept(request: TuningRequest, task: Task) -> str:
    """How to go on with a tuning of this process that was interrupted; empty if it had not begun."""
    if request.storage:
        return "the trials that were done are in the storage; the same command goes on with them"
    is_kept = is_begun(compiler_for(request, task).folder)
    return "the trials that were done are kept; go on with --resume" if is_kept else ""


def compiler_for(request: TuningRequest, task: Task, shapes: str | None = None) -> CandidateCompiler:
    names = list(task.space.tunables)
    return CandidateCompiler(
        request.root, request.python, request.op, task.device, names, shapes, request.chip, request.jobs
    )


def _tune_shape_class(
    request: TuningRequest, task: Task, shape_class: ShapeClass, storage: str, result: TuningResult, reporter: Reporter
) -> None:
    shapes, cases = shape_class.shapes, shape_class.cases
    # A search closes its compiler and its slots, so each shape class has its own.
    compiler = compiler_for(request, task, shapes)
    with measuring_slots(request, task, cases) as slots:  # Their workers start while the default is compiled.
        reporter.stage("compiling the default", None)
        compiler.prepare()
        sources = compiler.sources_version
        study = _join_study(request, task, shape_class, storage, sources)
        reporter.stage("starting", None)
        run = Search(
            study,
            compiler,
            slots,
            cases,
            budget=request.budget,
            limits=device_limits(task.chip),
            minutes=request.minutes and request.minutes / len(task.to_search()),
            show=lambda stats: reporter.stats(shapes or "", stats),
        )
        ended = run.run()
    result.record["environment"] = slots[0].environment
    part = record.of_search(shapes, ended, run.stats, study.importance())
    result.record["searches"].append(part)
    _wait_for_others(study, reporter)
    part["trials"] = study.finished()
    if not study.claim():
        result.left_to_others = True
        return
    compiler.reopen()  # Another worker may have compiled what is confirmed here.
    part["confirmed"] = []
    for confirmation in _confirm(request, task, compiler, part["trials"], cases, reporter, study.heartbeat):
        part["confirmed"].append(confirmation.as_dict())
        if confirmation.passed:
            if compiler.sources_version != sources:
                raise TuningError(
                    f"The sources of {request.op} changed meanwhile, so nothing was written; tune them anew."
                )
            result.written = _write(request, task, shapes, confirmation)
            break
    study.confirmed()


def _join_study(request: TuningRequest, task: Task, shape_class: ShapeClass, storage: str, sources: str) -> Study:
    about = {
        "op": f"{request.package}.{request.op}",
        "device": task.device,
        "machine": task.chip,
        "shapes": shape_class.shapes,
        "sources": sources,
        "cases": shape_class.cases,
        "backward": request.backward,
    }
    total = request.seeds + request.trials
    return Study(storage, about, task.space, shape_class.kept, request.seeds, total, request.seed)


def _wait_for_others(study: Study, reporter: Reporter) -> None:
    """Until no other worker has a trial in flight, since the best may be among those."""
    while study.others_in_flight():
        reporter.stage("waiting for other workers", None)
        time.sleep(1)
        study.heartbeat()


def _confirm(
    request: TuningRequest,
    task: Task,
    compiler: CandidateCompiler,
    trials: Sequence[Mapping[str, Any]],
    cases: list[list[str]],
    reporter: Reporter,
    heartbeat: Callable[[], None],
) -> Iterator[Confirmation]:
    """Hold the best few that look faster than the default against it, one after another."""

    def show(text: str, share: float) -> None:
        heartbeat()
        reporter.stage(f"confirming: {text}", share)

    blocks, limit_s = request.blocks or pair.BLOCKS[task.device], 2 * request.limit_s
    to_worker, thresholds = request.to_worker(task.device), request.thresholds
    confirmer = Confirmer(
        request.python, request.root, to_worker, compiler.default, cases, thresholds, blocks, limit_s, show
    )
    prefix = f"{compiler.shapes}: " if compiler.shapes else ""
    faster = [trial for trial in search.ranked(trials) if trial["ratio"] < 1]
    promising = [trial for trial in faster if any(map(thresholds.hoped, trial["ratios"].values()))]
    if faster and not promising:
        enough = f"{100 * thresholds.faster:g}%"
        reporter.note(f"{prefix}nothing looked nearly {enough} faster in any case, so there is nothing to confirm")
    for trial in promising[: request.best]:
        values = trial["values"]
        reporter.note(f"{prefix}{key(values)} took {trial['ratio']:.3f} of the default's time; confirming it")
        try:
            yield confirmer.confirm(values, compiler.compile(values))
        except CompileError as error:  # It was compiled by another worker, and does not compile here.
            yield Confirmation(values, problem=str(error))


def _write(request: TuningRequest, task: Task, shapes: str | None, passed: Confirmation) -> Path:
    """Write what passed to the op's tuned file, with its evidence."""
    changes = {}
    for verdict in passed.comparison.verdicts:
        ends = [100 * (ratio - 1) for ratio in verdict.difference.ratio.as_list()]
        changes[verdict.case] = "{:+.1f}% ({:+.1f} to {:+.1f})".format(*ends)
    measured = {
        "on": passed.comparison.machine,
        "at": datetime.now(timezone.utc).date().isoformat(),
        "with": f"kernelgen {__version__}, torch {task.torch}",
        "time against the default's": changes,
    }
    path = request.root / "src" / request.package / "ops" / request.op / tuned_file.NAME
    tuned_file.write(path, task.chip, shapes, passed.values, measured, backward=request.backward, apart=task.apart)
    return path
