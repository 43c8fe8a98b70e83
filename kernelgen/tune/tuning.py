"""One tuning from beginning to end: the space, the search, the confirmation, what is written and what is recorded."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kernelgen import __version__
from kernelgen.errors import KernelgenError, LabError
from kernelgen.lab import pair
from kernelgen.lab.compare import Thresholds
from kernelgen.tune import KIND, VERSION, candidates, search, tuned_file
from kernelgen.tune.candidates import Compiler
from kernelgen.tune.confirm import Confirmation, Gate
from kernelgen.tune.device_limits import device_limits
from kernelgen.tune.lane import START_LIMIT_S, Effort, Lane
from kernelgen.tune.search import Search, Stats
from kernelgen.tune.space import Space, key
from kernelgen.tune.study import Study


@dataclass(frozen=True)
class Plan:
    """What was asked for. `storage` is None for the project's own journal, `blocks` for as many as `kernelgen compare`
    takes on the device; the rest is as the options say."""

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
    thresholds: Thresholds = field(default_factory=lambda: Thresholds(faster=0.03))
    effort: Effort = field(default_factory=Effort)

    def request(self) -> dict[str, Any]:
        """What every process of the lab is told."""
        names = ("package", "op", "device", "dtype", "cases", "backward", "tf32", "seed")
        # PyTorch warns of a kernel that takes another's place, which is what is done here all the time.
        environment = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
        return {**{name: getattr(self, name) for name in names}, "environment": environment}


@dataclass
class Views:
    """Where to show what: a stage with its share, the search's figures, and lines that stay."""

    stage: Callable[[str, float | None], None] = lambda text, share: None
    stats: Callable[[str, Stats], None] = lambda shapes, stats: None
    note: Callable[[str], None] = lambda line: None


@dataclass(frozen=True)
class Class:
    """What is tuned by itself: a class of shapes, or all of them (None).

    Attributes:
        cases: the cases and dtypes to measure.
        kept: numbers of the points that the gates let pass; `rejected`: by gate, how many, and some of them.
    """

    shapes: str | None
    cases: list[list[str]]
    kept: list[int]
    rejected: dict[str, Any]


@dataclass(frozen=True)
class Terrain:
    """An op's space on one chip, as its lab.py and the gates have it.

    Attributes:
        chip: the key of tuned.json: a compute capability, or the CPU's name.
        gpus: the numbers of the GPUs to measure on, those that are like the first.
        classes: each class of shapes, or the one that is for all.
        apart: the tunables of the other direction, where forward and backward are tuned apart.
    """

    device: str
    chip: str
    gpus: list[int]
    space: Space
    classes: list[Class]
    apart: list[str]
    torch: str

    def left(self) -> list[Class]:
        """Those in which the gates leave something to search."""
        return [one for one in self.classes if one.kept]

    def as_dict(self) -> dict[str, Any]:
        facts = {"device": self.device, "chip": self.chip, "tunables": self.space.tunables, "points": self.space.size}
        return facts | {"classes": [{**asdict(one), "kept": len(one.kept)} for one in self.classes]}


def survey(plan: Plan) -> Terrain:
    """The space, and what the gates leave of it.

    Raises:
        LabError: the op has no tunables for the device, or lab.py has something else than it should.
        KernelgenError: the gates leave nothing.
    """
    request = {**plan.request(), "work": "tune"}
    with closing(pair.Side(plan.op, plan.python, plan.root, request, START_LIMIT_S)) as side:
        gpu = {"capability": plan.chip, "alike": []}
        if plan.device != "cpu" and plan.chip is None:
            gpu = side.ask("gpu")
        device = plan.device or ("cuda" if gpu["capability"] else "cpu")
        found = side.ask("describe", device=device, capability=gpu["capability"] if device == "cuda" else None)
    tunables = {name: tuple(values) for name, values in found["tunables"].items()}
    chip = (gpu["capability"] or "no GPU") if device == "cuda" else found["cpu"]
    classes = [Class(**one) for one in found["classes"]]
    terrain = Terrain(device, chip, gpu["alike"], Space(tunables), classes, found["apart"], found["torch"])
    if not any(one.kept for one in classes):
        said = "; ".join(
            f"{gate}: {it['count']}, such as {it['examples'][0]['text']}" for gate, it in classes[0].rejected.items()
        )
        raise KernelgenError(f"The gates leave none of the {terrain.space.size} points of {plan.op} ({said}).")
    return terrain


# ---- A dry run ------------------------------------------------------------------------------------------------


def cost(plan: Plan, terrain: Terrain, views: Views) -> dict[str, Any]:
    """What a search would take: one compilation and one measurement, in seconds, and all of them, in minutes."""
    left = terrain.left()
    first = left[0]
    compiler = _compiler(plan, terrain, first.shapes)
    views.stage("compiling the default", None)
    default = compiler.prepare()
    values = next(values for n, values in enumerate(terrain.space.points()) if n == first.kept[0])
    start = time.perf_counter()
    compiling = compiler.compile(values).seconds or default.seconds or time.perf_counter() - start
    measuring = None
    if terrain.device == "cpu" or terrain.gpus:
        views.stage("measuring the default beside itself", None)
        lane = Lane(plan.python, plan.root, {**plan.request(), "device": terrain.device}, plan.limit_s)
        with closing(lane):
            cases = [case for one in left for case in one.cases]
            lane.begin(cases, plan.effort.proofs)  # A first measurement takes much longer than those after it.
            lane.start(default)
            measuring = lane.measure(default, plan.effort, cases, {}, plan.seed).seconds / len(left)
    trials = sum(min(plan.seeds + plan.trials, len(one.kept)) for one in left)
    longest = max(trials * compiling / compiler.jobs, trials * (measuring or 0) / max(1, len(terrain.gpus)))
    return {
        "trials": trials,
        "jobs": compiler.jobs,
        "compiling_s": compiling,
        "measuring_s": measuring,
        "minutes": min(longest / 60, plan.minutes or longest),
    }


# ---- A tuning -------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What came of it: the record is JSON; `written` is the tuned file, if there is one."""

    record: dict[str, Any]
    written: Path | None = None
    left: str = ""


def tune(plan: Plan, terrain: Terrain, views: Views) -> Result:
    """Search, confirm, write.

    Raises:
        KernelgenError: nothing can be compiled or measured here, or the storage will not do.
    """
    if terrain.device == "cuda" and not terrain.gpus:
        raise LabError(
            f"{plan.op} cannot be tuned for CUDA: torch sees no GPU here. Tune it for the CPU with --device cpu, or "
            "look at its space with --dry-run --chip 9.0."
        )
    folder = _compiler(plan, terrain).folder
    with _alone(plan, folder):
        journal = _journal(plan, folder)
        result = Result(_record(plan, terrain))
        for one in terrain.left():
            _tune_class(plan, terrain, one, journal, result, views)
        result.record["created"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
        _save(folder / "record.json", result.record)
    return result


def _tune_class(plan: Plan, terrain: Terrain, one: Class, journal: str, result: Result, views: Views) -> None:
    shapes, cases = one.shapes, one.cases
    # A search closes its compiler and its lanes, so each has its own.
    compiler = _compiler(plan, terrain, shapes)
    with _lanes(plan, terrain, cases) as lanes:  # Their processes start while the default is compiled.
        views.stage("compiling the default", None)
        compiler.prepare()
        sources = compiler.sources_version
        about = {"op": f"{plan.package}.{plan.op}", "device": terrain.device, "machine": terrain.chip, "shapes": shapes}
        about |= {"sources": sources, "cases": cases, "backward": plan.backward}
        total = plan.seeds + plan.trials
        study = Study(journal, about, terrain.space, one.kept, plan.seeds, total, plan.seed)
        views.stage("starting", None)
        hunt = Search(
            study,
            compiler,
            lanes,
            cases,
            effort=plan.effort,
            limits=device_limits(terrain.chip),
            minutes=plan.minutes and plan.minutes / len(terrain.left()),
            show=lambda stats: views.stats(shapes or "", stats),
        )
        why = hunt.run()
    result.record["environment"] = lanes[0].environment
    compiler.reopen()  # Another worker may have compiled what is confirmed here.
    part = {"shapes": shapes, "ended": why, "stats": _figures(hunt.stats), "importance": study.importance()}
    result.record["searches"].append(part)
    _wait_for_others(study, views)
    part["trials"] = study.finished()
    if not study.claim():
        result.left = "Another worker confirms the best."
        return
    part["confirmed"] = []
    passed = None
    for confirmation in _confirm(plan, terrain, compiler, part["trials"], cases, views, study.beat):
        part["confirmed"].append(confirmation.as_dict())
        if confirmation.passed:
            passed = confirmation
            break
    if passed:
        if _fresh(compiler) != sources:
            raise KernelgenError(f"The sources of {plan.op} changed meanwhile, so nothing was written; tune them anew.")
        result.written = _write(plan, terrain, shapes, passed)
    study.confirmed()


def _confirm(
    plan: Plan,
    terrain: Terrain,
    compiler: Compiler,
    trials: Sequence[Mapping[str, Any]],
    cases: list[list[str]],
    views: Views,
    beat: Callable[[], None],
) -> Iterator[Confirmation]:
    """The best few that look faster than the default, one after another."""
    request = {**plan.request(), "device": terrain.device}

    def show(text: str, share: float) -> None:
        beat()
        views.stage(f"confirming: {text}", share)

    blocks, limit_s = plan.blocks or pair.BLOCKS[terrain.device], 2 * plan.limit_s
    gate = Gate(plan.python, plan.root, request, compiler.default, cases, plan.thresholds, blocks, limit_s, show)
    of = f"{compiler.shapes}: " if compiler.shapes else ""
    faster = [trial for trial in search.ranked(trials) if trial["ratio"] < 1]
    hoped = [trial for trial in faster if any(map(plan.thresholds.hoped, trial["ratios"].values()))]
    if faster and not hoped:
        enough = f"{100 * plan.thresholds.faster:g}%"
        views.note(f"{of}nothing looked nearly {enough} faster in any case, so there is nothing to confirm")
    for trial in hoped[: plan.best]:
        views.note(f"{of}{key(trial['values'])} took {trial['ratio']:.3f} of the default's time; confirming it")
        try:
            yield gate.confirm(trial["values"], compiler.compile(trial["values"]))
        except candidates.CompileError as error:  # Another worker's compiler took it.
            yield Confirmation(trial["values"], problem=str(error))


def _write(plan: Plan, terrain: Terrain, shapes: str | None, passed: Confirmation) -> Path:
    path = plan.root / "src" / plan.package / "ops" / plan.op / tuned_file.NAME
    found = {
        one.case: [100 * (end - 1) for end in one.difference.ratio.as_list()] for one in passed.comparison.verdicts
    }
    changes = {case: "{:+.1f}% ({:+.1f} to {:+.1f})".format(*ends) for case, ends in found.items()}
    measured = {
        "on": passed.comparison.machine,
        "at": datetime.now(timezone.utc).date().isoformat(),
        "with": f"kernelgen {__version__}, torch {terrain.torch}",
        "time against the default's": changes,
    }
    tuned_file.write(path, terrain.chip, shapes, passed.values, measured, backward=plan.backward, apart=terrain.apart)
    return path


# ---- Its parts ------------------------------------------------------------------------------------------------


def _compiler(plan: Plan, terrain: Terrain, shapes: str | None = None) -> Compiler:
    names = list(terrain.space.tunables)
    return Compiler(plan.root, plan.python, plan.op, terrain.device, names, shapes, plan.chip, plan.jobs)


@contextmanager
def _lanes(plan: Plan, terrain: Terrain, cases: list[list[str]]) -> Iterator[list[Lane]]:
    """One for each place to measure at, begun.

    Raises:
        LabError: there is no GPU, or there are fewer than were asked for.
    """
    request, lanes = {**plan.request(), "device": terrain.device}, []
    for number, variables in _places(plan, terrain):
        its_request = {**request, "environment": request["environment"] | variables}
        lanes.append(Lane(plan.python, plan.root, its_request, plan.limit_s, plan.seed + number))
    rehearsed = cases if terrain.device == "cuda" else []  # On the CPU that takes cores from the compilers.
    with ExitStack() as stack:
        for lane in lanes:
            stack.callback(lane.kill)
            lane.begin(rehearsed, plan.effort.proofs)
        yield lanes


def _places(plan: Plan, terrain: Terrain) -> list[tuple[int, dict[str, str]]]:
    """The CPU, or GPUs: the number that torch gives each of those that this process may see, and the variables with
    which a process sees that one alone."""
    if terrain.device == "cpu":
        return [(0, {})]
    count = plan.gpus or len(terrain.gpus)
    if count > len(terrain.gpus):
        raise LabError(f"{plan.op} cannot be tuned on {count} GPUs: torch sees {len(terrain.gpus)} of one kind here.")
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    names = {number: visible[number] if visible else str(number) for number in terrain.gpus[:count]}
    return [(number, {"CUDA_VISIBLE_DEVICES": name}) for number, name in names.items()]


def _journal(plan: Plan, folder: Path) -> str:
    """The storage: the one that was named, or the project's own journal, begun anew unless it is to be resumed."""
    if plan.storage:
        return plan.storage
    path = folder / "trials.log"
    if plan.resume and not path.is_file():
        raise KernelgenError(f"There is no tuning of {plan.op} to resume in {path.parent}; leave out --resume.")
    if not plan.resume and path.is_file():
        path.replace(path.with_suffix(".old.log"))
    return str(path)


@contextmanager
def _alone(plan: Plan, folder: Path) -> Iterator[None]:
    """One tuning of an op at a time, unless they work together on a storage."""
    path = folder / "tuning"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if plan.storage else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise KernelgenError(
                f"{plan.op} is being tuned already (pid {file.read().strip() or '?'}); wait for it, or have both work "
                "together: give each the same --storage."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _wait_for_others(study: Study, views: Views) -> None:
    """Until no other worker has a trial in flight: the best may be among those."""
    while study.others():
        views.stage("waiting for other workers", None)
        time.sleep(1)
        study.beat()


def _fresh(compiler: Compiler) -> str:
    del compiler.sources_version
    return compiler.sources_version


def _figures(stats: Stats) -> dict[str, Any]:
    facts = {name: getattr(stats, name) for name in ("done", "here", "failed", "cached", "jobs", "lanes", "seconds")}
    facts |= {"compiling_s": stats.compiling_s, "measuring_s": stats.measuring_s, "verdicts_s": stats.verdicts_s}
    return facts | {"compilers_used": stats.compilers_used, "lanes_used": stats.lanes_used}


def _record(plan: Plan, terrain: Terrain) -> dict[str, Any]:
    facts = {"kind": KIND, "version": VERSION, "kernelgen": __version__, "op": plan.op, **terrain.as_dict()}
    asked = {
        "backward": plan.backward,
        "seed": plan.seed,
        "seeds": plan.seeds,
        "trials": plan.trials,
        "minutes": plan.minutes,
    }
    return facts | {"asked": asked, "torch": terrain.torch, "searches": []}


def _save(path: Path, record: Mapping[str, Any]) -> None:
    try:
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        unfinished.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise candidates.full(path.parent) if candidates.is_full(error) else error from error
