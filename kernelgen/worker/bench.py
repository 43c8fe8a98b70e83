"""Measures ops beside their peers, in rounds: a round takes a sample of the op and of every peer, in random order.

The rounds come in blocks. Before each block the inputs are drawn anew, at new addresses, so that neither their values
nor a lucky place in memory last for the whole run; and in each block, at a round that chance picks, a sample's results
are checked (integrity.py). The same seed draws the same inputs in the same order. lab/bench.py makes figures of the
samples.
"""

import contextlib
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from kernelgen.errors import LabError
from kernelgen.protocol import OP
from kernelgen.worker import ceilings, integrity, machine_state, protocol
from kernelgen.worker.environment import describe
from kernelgen.worker.op import Op, chosen_device, dtype_name, load, require_kernel
from kernelgen.worker.timed_case import TimedCase

BLOCKS = 10
# More rounds are taken in place of those in which the GPU was throttled, up to this share of those asked for.
MAKE_UP = 0.5

Tick = Callable[[], None]


def work(request: dict[str, Any], emit: protocol.Emit) -> None:
    """Measures request["ops"].

    Args:
        request: `package`, `project`, `ops`, `seed`, `samples`; and optionally `device`, `dtype`, `cases`, `peers`,
            `backward` and `tf32`.
        emit: gets "environment" and "ceilings" first; for each case "start", "progress" and then "case" (see `measure`)
            or "failed" (op, case, dtype, reason); for each op "skipped" (op, message) if it cannot be measured, and
            "close" (op).
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
    emit("ceilings", **(ceilings.measure(device, tuple(sorted(dtypes, key=str))) if dtypes else {}))
    for name in todo:
        try:
            op = load(request["package"], name)
            require_kernel(request["package"], name, device)
            _measure_op(op, device, request, emit)
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


def chosen_peers(op: Op, names: list[str] | None) -> dict[str, Callable[..., Any]]:
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


def _measure_op(op: Op, device: str, request: dict[str, Any], emit: protocol.Emit) -> None:
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
                timed = TimedCase(op, sizes, dtype, device, {}, backward=backward, seed=request["seed"])
                left_out = add_functions(timed, {OP: op.function, **peers}, tick)
                facts = {"op": op.name, "case": case, "sizes": sizes, "dtype": dtype_name(dtype), "backward": backward}
                emit("case", **facts, **measure(timed, request["samples"], tick), left_out=left_out)
            except LabError:
                raise
            except Exception as error:
                if protocol.is_fatal(error):
                    protocol.leave(error)
                emit("failed", op=op.name, case=case, dtype=dtype_name(dtype), reason=protocol.in_a_line(error))


def add_functions(
    timed: TimedCase, functions: Mapping[str, Callable[..., Any]], tick: Tick = lambda: None
) -> dict[str, str]:
    """Warms each function up and plans the samples; returns the peers that cannot run, with the reason."""
    left_out, fastest = {}, float("inf")
    for name, function in functions.items():
        timed.functions[name] = function
        try:
            fastest = min(fastest, timed.warm_up(name))
        except Exception as error:
            if name == OP or protocol.is_fatal(error):
                raise
            del timed.functions[name]
            left_out[name] = protocol.in_a_line(error)
        tick()
    timed.plan(fastest)
    return left_out


def measure(timed: TimedCase, samples: int, tick: Tick = lambda: None) -> dict[str, Any]:
    """All samples of one case, as JSON.

    `seconds` holds the samples of each function by round, `throttled` whether the GPU was throttled in a round,
    `bytes` and `flops` the least to move and to compute, `state` the machine's, `watched` how many samples were
    checked, and `faults` and `remarks` what the checks said.
    """
    rounds = _Rounds(timed)
    rounds.run(samples, tick)
    moved, flops = cost(timed)
    return {
        "method": timed.method,
        "calls_a_sample": timed.calls_a_sample,
        "seed": timed.seed,
        "seconds": rounds.seconds,
        "throttled": rounds.throttled,
        "bytes": moved,
        "flops": flops,
        "state": rounds.watch.summary(),
        "watched": rounds.checked,
        "faults": rounds.faults,
        "remarks": list(dict.fromkeys(rounds.remarks)),
    }


class _Rounds:
    """Takes the samples of one case."""

    def __init__(self, timed: TimedCase) -> None:
        self.timed = timed
        self.watch = machine_state.watch(timed.device)
        self.seconds: dict[str, list[float]] = {name: [] for name in timed.functions}
        self.throttled: list[bool] = []
        self.checked, self.faults, self.remarks = 0, [], []
        self._random = random.Random(timed.seed)

    def run(self, samples: int, tick: Tick) -> None:
        size = -(-samples // BLOCKS)
        most = samples + int(MAKE_UP * samples)
        while self.throttled.count(False) < samples and len(self.throttled) < most:
            missing = samples - self.throttled.count(False)
            self._block(min(size, missing, most - len(self.throttled)))
            tick()
        if not self.faults and (fault := integrity.check_afterwards(self.timed, OP)):
            self.faults.append(fault)

    def _block(self, rounds: int) -> None:
        self.timed.fresh()
        names, checked = list(self.seconds), self._random.randrange(rounds)
        for i in range(rounds):
            if i == checked and not self.faults:
                self.checked += 1
                result = integrity.check_sample(self.timed, OP)
                self.faults += [result.fault] if result.fault else []
                self.remarks += [result.remark] if result.remark else []
            throttled = self.watch.read()
            for name in self._random.sample(names, len(names)):
                self.seconds[name].append(self.timed.sample(name))
            self.throttled.append(self.watch.read() or throttled)


def cost(timed: TimedCase) -> tuple[int | None, int | None]:
    """The fewest bytes to move, and the operations; None where the lab.py does not say."""
    op = timed.op
    moved, flops = (op.backward_bytes_moved, op.backward_flops) if timed.backward else (op.bytes_moved, op.flops)
    return moved and moved(timed.dtype, **timed.sizes), flops and flops(**timed.sizes)
