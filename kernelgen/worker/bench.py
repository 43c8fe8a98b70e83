"""Measures ops beside their peers, in rounds: a round takes a sample of the op and of every peer, in random order.

The rounds come in blocks. Each block has inputs at new addresses, each sample new values; and in each block the results
of one or more of the op's samples are checked, which chance picks after they were taken (judge/case.py). This process
imports nothing of the project: the op runs in another, and so do the peers. lab/bench.py makes figures of the samples.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kernelgen.errors import LabError
from kernelgen.protocol import OP
from kernelgen.worker import ceilings, machine_state, protocol
from kernelgen.worker.environment import describe
from kernelgen.worker.judge import trusted
from kernelgen.worker.judge.case import JudgedCase
from kernelgen.worker.judge.comparison import Findings
from kernelgen.worker.judge.errors import CallError
from kernelgen.worker.judge.judge import Judge, difference_of_states, trusted_root
from kernelgen.worker.judge.op_process import become_judge
from kernelgen.worker.op import Op, Sizes, dtype_name

BLOCKS = 10
# Samples of special values among those of a case, which are compared and not timed.
SPECIAL = 3
# More rounds are taken in place of those in which the GPU was throttled, up to this share of those asked for.
MAKE_UP = 0.5

Tick = Callable[[], None]


def work(request: dict[str, Any], emit: protocol.Emit) -> None:
    """Measures request["ops"].

    Args:
        request: `package`, `project`, `ops`, `seed`, `samples`; and optionally `trusted`, `device`, `dtype`, `cases`,
            `peers`, `backward`, `tf32` and `interpreted`.
        emit: gets "environment" first, and "ceilings" before an op of dtypes that were not measured yet; for each case
            "start", "progress" and then "case" (see `measure`) or "failed" (op, case, dtype, reason); for each op
            "skipped" (op, message) if it cannot be measured, and "close" (op).
    """
    become_judge()
    set_tf32(bool(request.get("tf32")))
    machine = _Machine(request, emit)
    ops: dict[str, Op] = {}
    for name in request["ops"]:  # All before the first runs, which could edit the lab.py of another.
        if not emit.is_closed(name):
            try:
                ops[name] = trusted.load(trusted_root(request), request["package"], name)
            except LabError as error:
                emit("skipped", op=name, message=str(error))
                emit("close", op=name)
    for name, op in ops.items():
        try:
            judge = Judge(request, op)
            try:
                machine.tell(judge.device, chosen_dtypes(op, judge.device, request.get("dtype")))
                _measure_op(judge, request, emit)
            finally:
                judge.close()
        except LabError as error:
            emit("skipped", op=name, message=str(error))
        emit("close", op=name)


class _Machine:
    """Sends what the machine is, once, and its ceilings for each dtype."""

    def __init__(self, request: dict[str, Any], emit: protocol.Emit) -> None:
        self._request, self._emit = request, emit
        self._rates: dict[str, Any] = {}

    def tell(self, device: str, dtypes: Sequence[torch.dtype]) -> None:
        if not self._rates:
            names = ("seed", "samples", "tf32", "backward", "cases", "dtype", "peers")
            flags = {name: self._request.get(name) for name in names}
            self._emit("environment", **describe(device, Path(self._request["project"]), flags))
        known = self._rates.get("matrix_flops_per_s", {})
        if new := [dtype for dtype in dtypes if dtype_name(dtype) not in known]:
            rates = ceilings.measure(device, tuple(new))
            self._rates = {**rates, **self._rates, "matrix_flops_per_s": {**known, **rates["matrix_flops_per_s"]}}
            self._emit("ceilings", **self._rates)


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


def chosen_peers(op: Op, names: list[str] | None) -> list[str]:
    """The names of these peers, or of all.

    Raises:
        LabError: there is no such peer.
    """
    if unknown := [name for name in names or [] if name not in op.peers]:
        have = ", ".join(map(repr, op.peers)) or "none"
        raise LabError(f"{op.name} has no peer {unknown[0]!r}; it has {have}.")
    return list(op.peers) if names is None else names


def check_gradient(op: Op, backward: bool) -> None:
    """Raises LabError if a gradient is to be timed that the op does not have."""
    if backward and not op.gradient:
        raise LabError(f"{op.name} has no gradient to measure.")


def _measure_op(judge: Judge, request: dict[str, Any], emit: protocol.Emit) -> None:
    op, device, backward = judge.op, judge.device, bool(request.get("backward"))
    check_gradient(op, backward)
    peers, cases = chosen_peers(op, request.get("peers")), chosen_cases(op, device, request.get("cases"))
    for case, sizes in cases.items():
        for dtype in chosen_dtypes(op, device, request.get("dtype")):
            if not emit.start(op.name, f"{case} · {dtype_name(dtype)}"):
                continue

            def tick(op: str = op.name) -> None:
                emit("progress", op=op)

            try:
                timed = judge.case(sizes, dtype, backward=backward)
                left_out = add_peers(timed, judge, peers, tick)
                facts = {"op": op.name, "case": case, "sizes": sizes, "dtype": dtype_name(dtype), "backward": backward}
                measured = measure(timed, judge, request["samples"], request["seed"], tick)
                emit("case", **facts, **measured, left_out=left_out)
            except LabError:
                raise
            except Exception as error:
                if protocol.is_fatal(error):
                    protocol.leave(error)
                reason = str(error) if isinstance(error, CallError) else protocol.in_a_line(error)
                emit("failed", op=op.name, case=case, dtype=dtype_name(dtype), reason=reason)


def add_peers(timed: JudgedCase, judge: Judge, peers: Sequence[str], tick: Tick = lambda: None) -> dict[str, str]:
    """Warms the op and its peers up, and plans the samples.

    Returns the peers that are left out, with the reason: they cannot run, their results are wrong by far, or they
    change the process for whoever runs after them.
    """
    left_out, fastest = {}, timed.warm_up(OP)
    tick()
    for name in peers:
        process = judge.peers()
        before = process.ask("state")
        if name == peers[0]:
            timed.join(process)
        timed.functions[name] = process
        try:
            seconds = timed.warm_up(name)
            problem = timed.check(coarsely=True).fault or difference_of_states(before, process.ask("state"))
        except CallError as error:
            problem = str(error)
        if problem:
            del timed.functions[name]
            left_out[name] = problem
            process.ask("restore", state=before)
        else:
            fastest = min(fastest, seconds)
        tick()
    timed.plan(fastest)
    return left_out


def measure(timed: JudgedCase, judge: Judge, samples: int, seed: int, tick: Tick = lambda: None) -> dict[str, Any]:
    """All samples of one case, as JSON.

    `seconds` holds the samples of each function by round, `throttled` whether the GPU was throttled in a round,
    `bytes` and `flops` the least to move and to compute, `state` the machine's, `watched` how many samples were
    checked, and `faults`, `remarks` and `doubts` what the checks said (`comparison.CheckResult`).
    """
    rounds = _Rounds(timed, judge, seed)
    rounds.run(samples, tick)
    moved, flops = cost(timed.op, timed.sizes, timed.dtype, timed.backward)
    return {
        "method": timed.method,
        "calls_a_sample": timed.calls_a_sample,
        "seed": seed,
        "seconds": rounds.seconds,
        "throttled": rounds.throttled,
        "bytes": moved,
        "flops": flops,
        "state": rounds.watch.summary(),
        "watched": rounds.checked,
        **asdict(rounds.findings),
    }


class _Rounds:
    """Takes the samples of one case."""

    def __init__(self, timed: JudgedCase, judge: Judge, seed: int) -> None:
        self.timed, self._judge = timed, judge
        self.watch = machine_state.watch(timed.device, [process.pid for process in judge.processes])
        self.seconds: dict[str, list[float]] = {name: [] for name in timed.functions}
        self.throttled: list[bool] = []
        self.checked, self.findings = 0, Findings()
        self._random, self._chance = random.Random(seed), random.SystemRandom()
        self._special: set[int] = set()

    def run(self, samples: int, tick: Tick) -> None:
        size = -(-samples // BLOCKS)
        self._special = {*self._chance.sample(range(samples), min(SPECIAL, samples))}
        most = samples + int(MAKE_UP * samples)
        while self.throttled.count(False) < samples and len(self.throttled) < most:
            missing = samples - self.throttled.count(False)
            self._block(min(size, missing, most - len(self.throttled)))
            tick()
        self._judge.check_afterwards(self.timed, self.findings)

    def _block(self, rounds: int) -> None:
        """Each sample of the op is checked by the same chance, whatever was checked before: an op notices a check, and
        one that knew of no other to come could stop working."""
        self.timed.fresh()
        names, before = list(self.seconds), self.checked
        for left in reversed(range(rounds)):
            throttled = self.watch.read()
            for name in self._random.sample(names, len(names)):
                self.seconds[name].append(self.timed.sample(name))
                if name == OP and not self.findings.faults and self._is_due(rounds, left, self.checked > before):
                    self._check()
            if len(self.throttled) in self._special and not self.findings.faults:
                self.findings.add(self.timed.check_special_values(OP))
            self.throttled.append(self.watch.read() or throttled)

    def _is_due(self, rounds: int, left: int, is_checked: bool) -> bool:
        """Whether to check the sample that was just taken: by chance, and in a block without a check the last."""
        return self._chance.random() < 1 / rounds or not (left or is_checked)

    def _check(self) -> None:
        """Checks the sample that was just taken."""
        self.checked += 1
        self.findings.add(self.timed.check())


def cost(op: Op, sizes: Sizes, dtype: torch.dtype, backward: bool) -> tuple[int | None, int | None]:
    """The fewest bytes to move, and the operations; None where the lab.py does not say."""
    moved, flops = (op.backward_bytes_moved, op.backward_flops) if backward else (op.bytes_moved, op.flops)
    return moved and moved(dtype, **sizes), flops and flops(**sizes)
