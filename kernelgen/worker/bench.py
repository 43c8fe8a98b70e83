"""Measures ops beside their peers, in rounds: each takes a sample of every one of them, in random order.

The rounds come in blocks. Before each block the inputs are drawn anew, at new addresses, so that neither values nor a
lucky place in memory last for the whole run; and once in each, at a round that chance picks, a sample is watched
(`integrity.py`). The same seed draws the same inputs in the same order.
"""

import contextlib
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from kernelgen.errors import LabError
from kernelgen.lab import statistics
from kernelgen.lab.results import OP
from kernelgen.worker import ceilings, integrity, machine_state, protocol
from kernelgen.worker.environment import describe
from kernelgen.worker.op import Op, chosen_device, dtype_name, load, require_kernel
from kernelgen.worker.timed_case import Function, Subject

BLOCKS = 10
SAMPLES = 100
# Rounds that were set aside are made up for, up to this share of those asked for.
MAKE_UP = 0.5

Tick = Callable[[], None]


def work(request: dict[str, Any], emit: protocol.Emit) -> None:
    """Measures request["ops"].

    Args:
        request: `package`, `project`, `ops`, `seed`, `samples`; and where given `device`, `dtype`, `cases`, `peers`,
            `backward` and `tf32`.
        emit: gets "environment" and "ceilings" first; "start" and then "case" for each case, with "progress" between;
            "note" (op, text) for a peer that is left out; "skipped" (op, message); "close" (op).
    """
    device = chosen_device(request)
    set_tf32(bool(request.get("tf32")))
    flags = {name: request.get(name) for name in ("seed", "samples", "tf32", "backward", "cases", "dtype", "peers")}
    emit("environment", **describe(device, Path(request["project"]), flags))
    todo = [name for name in request["ops"] if not emit.is_closed(name)]
    dtypes: set[torch.dtype] = set()
    for name in todo:
        with contextlib.suppress(LabError):
            dtypes.update(chosen_dtypes(load(request["package"], name), device, request.get("dtype")))
    top = ceilings.measure(device, tuple(sorted(dtypes, key=str))) if dtypes else {}
    emit("ceilings", **top)
    for name in todo:
        try:
            op = load(request["package"], name)
            require_kernel(request["package"], name, device)
            _measure_op(op, device, request, top, emit)
        except LabError as error:
            emit("skipped", op=name, message=str(error))
        emit("close", op=name)


def set_tf32(allowed: bool) -> None:
    """For matrix products and convolutions: with it, float32 is not float32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def chosen_dtypes(op: Op, device: str, name: str | None) -> tuple[torch.dtype, ...]:
    """The dtypes to measure: the one of that name, or those that the op's lab.py has for it.

    Raises:
        LabError: the op does not take it.
    """
    if name is None:
        return op.bench_dtypes
    named = op.dtypes_on(device)
    if name not in named:
        raise LabError(f"{op.name} does not take {name} on {device}; it takes {', '.join(named)}.")
    return (named[name],)


def chosen_cases(op: Op, device: str, names: list[str] | None) -> dict[str, dict[str, int]]:
    """The cases of these names, or all for this device.

    Raises:
        LabError: there is no such case, or none at all.
    """
    table = op.cases if torch.device(device).type == "cuda" else op.cpu_cases
    if not table:
        raise LabError(f"{op.name}/lab.py has no CASES to measure.")
    if unknown := [name for name in names or [] if name not in table]:
        raise LabError(f"{op.name} has no case {unknown[0]!r} on {device}; it has {', '.join(map(repr, table))}.")
    return {name: table[name] for name in names or table}


def chosen_peers(op: Op, names: list[str] | None) -> dict[str, Function]:
    """The peers of these names, or all.

    Raises:
        LabError: there is no such peer.
    """
    if unknown := [name for name in names or [] if name not in op.peers]:
        have = ", ".join(map(repr, op.peers)) or "none"
        raise LabError(f"{op.name} has no peer {unknown[0]!r}; it has {have}.")
    return dict(op.peers) if names is None else {name: op.peers[name] for name in names}


def check_gradient(op: Op, backward: bool) -> None:
    """Raises LabError if a gradient is to be timed that the op does not have."""
    if backward and not op.gradient:
        raise LabError(f"{op.name} has no gradient to measure.")


def _measure_op(op: Op, device: str, request: dict[str, Any], top: dict[str, Any], emit: protocol.Emit) -> None:
    backward = bool(request.get("backward"))
    check_gradient(op, backward)
    peers, cases = chosen_peers(op, request.get("peers")), chosen_cases(op, device, request.get("cases"))
    for case, sizes in cases.items():
        for dtype in chosen_dtypes(op, device, request.get("dtype")):
            if not emit.start(op.name, f"{case} · {dtype_name(dtype)}"):
                continue

            def tick(op: str = op.name) -> None:
                emit("progress", op=op)

            try:
                subject = Subject(op, sizes, dtype, device, {}, backward=backward, seed=request["seed"])
                left_out = _enlist(subject, {OP: op.function, **peers}, tick)
                facts = {"op": op.name, "case": case, "sizes": sizes, "dtype": dtype_name(dtype), "backward": backward}
                emit("case", **facts, **measure(subject, request["samples"], top, tick), left_out=left_out)
            except LabError:
                raise
            except Exception as error:
                if protocol.is_fatal(error):
                    protocol.leave(error)
                emit("failed", op=op.name, case=case, dtype=dtype_name(dtype), reason=protocol.in_a_line(error))


def _enlist(subject: Subject, functions: Mapping[str, Function], tick: Tick) -> dict[str, str]:
    """Warms each function up and plans the samples; returns the peers that cannot run, with the reason."""
    left_out, fastest = {}, float("inf")
    for name, function in functions.items():
        subject.functions[name] = function
        try:
            fastest = min(fastest, subject.warm_up(name))
        except Exception as error:
            if name == OP or protocol.is_fatal(error):
                raise
            del subject.functions[name]
            left_out[name] = protocol.in_a_line(error)
        tick()
    subject.plan(fastest)
    return left_out


def measure(subject: Subject, samples: int, top: dict[str, Any], tick: Tick = lambda: None) -> dict[str, Any]:
    """All that is said of one case, as JSON: each function's seconds, what they mean, and what is wrong with them."""
    rounds = _Rounds(subject)
    rounds.run(samples, tick)
    kept = [i for i, throttled in enumerate(rounds.throttled) if not throttled]
    all_throttled = len(kept) < 2
    indices = list(range(len(rounds.throttled))) if all_throttled else kept
    seconds = {name: [times[i] for i in indices] for name, times in rounds.seconds.items()}
    aside = len(rounds.throttled) - len(indices)
    summary = rounds.watch.summary()
    warnings = machine_state.warnings(summary, statistics.spread(seconds[OP]), aside, 0 if all_throttled else len(kept))
    return {
        "method": subject.method,
        "calls_a_sample": subject.calls_a_sample,
        "seed": subject.seed,
        "functions": {name: _describe(subject, times, top) for name, times in seconds.items()},
        "peers": {name: _against_peer(seconds[OP], seconds[name]) for name in seconds if name != OP},
        "set_aside": aside,
        "state": summary,
        "warnings": [*warnings, *dict.fromkeys(rounds.remarks)],
        "watched": rounds.watched,
        "faults": rounds.faults,
    }


class _Rounds:
    """Takes the samples of one case."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.watch = (
            machine_state.GpuWatch() if torch.device(subject.device).type == "cuda" else machine_state.CpuWatch()
        )
        self.seconds: dict[str, list[float]] = {name: [] for name in subject.functions}
        self.throttled: list[bool] = []
        self.watched, self.faults, self.remarks = 0, [], []
        self._random = random.Random(subject.seed)

    def run(self, samples: int, tick: Tick) -> None:
        size = -(-samples // BLOCKS)
        most = samples + int(MAKE_UP * samples)
        while self.throttled.count(False) < samples and len(self.throttled) < most:
            missing = samples - self.throttled.count(False)
            self._block(min(size, missing, most - len(self.throttled)))
            tick()
        if not self.faults and (fault := integrity.afterwards(self.subject, OP)):
            self.faults.append(fault)

    def _block(self, rounds: int) -> None:
        self.subject.fresh()
        names, watched = list(self.seconds), self._random.randrange(rounds)
        for i in range(rounds):
            if i == watched and not self.faults:
                self.watched += 1
                found = integrity.watched(self.subject, OP)
                self.faults += [found.fault] if found.fault else []
                self.remarks += [found.remark] if found.remark else []
            throttled = self.watch.read()
            for name in self._random.sample(names, len(names)):
                self.seconds[name].append(self.subject.sample(name))
            self.throttled.append(self.watch.read() or throttled)


def _describe(subject: Subject, seconds: list[float], top: dict[str, Any]) -> dict[str, Any]:
    found = {f"p{percent}": statistics.percentile(seconds, percent) for percent in (50, 95, 99)}
    middle = statistics.median(seconds, seed=subject.seed)
    facts = {"seconds": seconds, "median": middle.as_list(), **found, "cv": statistics.spread(seconds)}
    moved, flops = cost(subject)
    if moved is not None:
        facts["bytes_per_s"] = moved / middle.value
        facts["copy_fraction"] = facts["bytes_per_s"] / top["copy_bytes_per_s"] if top else None
    if flops is not None:
        facts["flops_per_s"] = flops / middle.value
        rate = top.get("matrix_flops_per_s", {}).get(dtype_name(subject.dtype))
        facts["matrix_fraction"] = facts["flops_per_s"] / rate if rate else None
    return facts


def cost(subject: Subject) -> tuple[int | None, int | None]:
    """The fewest bytes to move, and the operations; None where the lab.py does not say."""
    op = subject.op
    moved, flops = (op.backward_bytes_moved, op.backward_flops) if subject.backward else (op.bytes_moved, op.flops)
    return moved and moved(subject.dtype, **subject.sizes), flops and flops(**subject.sizes)


def _against_peer(op: list[float], peer: list[float]) -> list[float]:
    """How many times as fast as the peer the op is, with the 95% interval, round by round."""
    return statistics.median([theirs / ours for ours, theirs in zip(op, peer, strict=True)]).as_list()
