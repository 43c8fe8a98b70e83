"""One case of an op, timed by the judge.

Before each sample the judge gives every call of it inputs that nobody has seen. The op's process then runs for as long
as the clock does, and is stopped before its results are read: from its memory, at the addresses that it gave when the
clock stopped. Which samples are checked is decided by chance after they were timed.
"""

import functools
import gc
import itertools
import os
import random
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelgen.cores import CORES
from kernelgen.protocol import OP
from kernelgen.worker import clock, contract
from kernelgen.worker.evaluation import copies, same_bits, tensors
from kernelgen.worker.inputs import VALUES
from kernelgen.worker.judge.arena import CpuArena, CudaArena, TensorPlace, aligned
from kernelgen.worker.judge.bystanders import Bystanders
from kernelgen.worker.judge.caller import Region
from kernelgen.worker.judge.comparison import (
    NOT_COMPARED,
    CheckResult,
    compare_special_values,
    compare_with_reference,
)
from kernelgen.worker.judge.drawing import Drawing, JudgedInputs, distinct
from kernelgen.worker.judge.errors import CallError, RaisedError
from kernelgen.worker.judge.op_process import OpProcess
from kernelgen.worker.judge.sample_results import SampleResults, TimedSample
from kernelgen.worker.judge.wall import checked_by_the_wall, empty_kernel
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.op_host import JOINED

# A sample on the CPU takes about so long: some hundred times what its request and reply vary by.
SAMPLE_S = 1e-3
MOST_CALLS = MOST_SETS = 64
ROTATED_BYTES = 32 * 2**20
# Empty batches that are timed in each block, of a process without an op.
EMPTY_BATCHES = 15
# A process of the op holds no more of the GPU's memory for its context, its results and its own use: so much, and so
# many times its inputs.
HELD_BYTES, HELD_COPIES = 4 * 2**30, 16
# The judge's own allocator keeps no more of it, from a check on.
KEPT_BYTES = 2**30
HELD_BACK = (
    "the cores or the priority of its threads were changed, by itself or by another process such as its rival: leave "
    "both to the system"
)
OTHERS_HELD_BACK = (
    "the cores or the priority of what it is measured against were changed while it ran: leave both to the system"
)
NEVER_IDLE = "the GPU was busy before most of its calls, with work that it left there or with another program's"
MOVED = "the cores of the process that measures were changed while it ran: leave them to the system"
WENT_ON = "it went on while it was stopped: it had itself continued, as a timer or another process can"
# Work for the GPU that takes the judge longer than this waits for somebody else's. So often it waits.
QUIET_S, QUIET_TRIES = 2e-4, 5
# Calls of a sample that are compared with the reference.
COMPARED = 4
_CHANCE = random.SystemRandom()


class JudgedCase:
    """A case of an op, and of its peers.

    Args:
        drawing: what draws its inputs.
        processes: by function, the process that runs it; further ones are added to `functions`.
        idle: a process without an op, which tells what a request and a reply take; None on CUDA.
        bystanders: what was on the GPU before there was a process of the op; None on a CPU.

    Of a drawing for the backward the gradient alone is timed; the forward runs before.
    """

    def __init__(
        self,
        drawing: Drawing,
        processes: Mapping[str, OpProcess],
        arena: CpuArena | CudaArena,
        idle: OpProcess | None,
        bystanders: Bystanders | None = None,
    ) -> None:
        self.drawing, self._arena, self._idle, self.bystanders = drawing, arena, idle, bystanders
        self.op, self.sizes, self.dtype = drawing.op, drawing.sizes, drawing.dtype
        self.device, self.backward = drawing.device, drawing.backward
        self.functions = dict(processes)
        # Those that all processes of a block of samples run on, this one too.
        self.cores: Collection[int] = CORES
        self._processes = list(dict.fromkeys(processes.values()))
        self.calls_a_sample, self.graphs = 1, False
        self._turn, self._empty_s = 0, 0.0
        self._waits = self._waits_in_vain = 0
        for process in self._processes:
            process.count_anew()
        self._last: TimedSample | None = None
        # By function, the seconds of the samples that were taken.
        self.seconds: dict[str, list[float]] = {}
        # By process, the function that is armed there for all sets.
        self._armed: dict[OpProcess, str] = {}
        self._is_cuda = torch.device(self.device).type == "cuda"
        self.results = SampleResults(self)
        for process in self._processes:
            self.results.join(process)
        if self._is_cuda:
            self.clock = clock.CudaClock()
            self._probe = torch.zeros(1, device=self.device)
        # The outputs take about as much memory again.
        fitting = ROTATED_BYTES // max(1, 2 * drawing.nbytes)
        self._set_count = 2 if self._is_cuda else max(2, min(MOST_SETS, fitting))
        self.sets: list[JudgedInputs] = []
        self.place([drawing.new_set()])

    @property
    def method(self) -> str:
        return ("cuda graphs" if self.graphs else "cuda events") if self._is_cuda else "cpu clock"

    @functools.cached_property
    def empty_kernel(self) -> tuple[float, float]:
        return empty_kernel(self.clock)

    # ---- Inputs -----------------------------------------------------------------------------------------------

    def place(self, sets: Sequence[JudgedInputs]) -> None:
        """Puts sets into the arena, at addresses that differ from those of the sets before, and tells the processes."""
        offset, places = 0, []
        for inputs in sets:
            # Where tensors lie relative to each other makes a kernel faster or slower by several percent, for as long
            # as the process lives (Mytkowicz et al., 2009): so it changes with each block.
            offset += 64 * _CHANCE.randrange(1, 1024)
            of_set: dict[int, TensorPlace] = {}
            for tensor in (*distinct(inputs.args), *inputs.cotangents):
                offset = aligned(offset)
                place = of_set[id(tensor)] = _placed(tensor, offset)
                offset += place.nbytes + 64
            places.append(of_set)
        handle = self._arena.resize(offset)
        storage = self._arena.storage
        for inputs, of_set in zip(sets, places, strict=True):
            inputs.shared = [of_set[id(tensor)].tensor(storage) for tensor in distinct(inputs.args)]
            inputs.shared_cotangents = [of_set[id(tensor)].tensor(storage) for tensor in inputs.cotangents]
            self.drawing.hand_over(inputs)
        self.sets = list(sets)
        described = [
            pytree.tree_map_only(Tensor, lambda tensor, of_set=of_set: of_set[id(tensor)], inputs.args)
            for inputs, of_set in zip(sets, places, strict=True)
        ]
        cotangents = [[of_set[id(t)] for t in inputs.cotangents] for inputs, of_set in zip(sets, places, strict=True)]
        self._armed.clear()
        self.results.close()  # The processes free the graphs and results of the sets before.
        if self._is_cuda:
            torch.cuda.synchronize()
        for process in self._processes:
            process.ask("inputs", arena=handle, sets=described, cotangents=cotangents)

    def join(self, process: OpProcess) -> None:
        """Lets another process see the inputs."""
        self._processes.append(process)
        self.results.join(process)
        self.place(self.sets)

    def fresh(self) -> None:
        """New inputs at new addresses; every function is called on each set once."""
        with suppress(OSError):
            os.sched_setaffinity(0, self.cores)
        for process in (*self._processes, *([self._idle] if self._idle else [])):
            process.move(self.cores)
        self.sets = []
        self.place([self.drawing.new_set() for _ in range(self._set_count)])
        batch = 1 if self._is_cuda else len(self.sets)
        for name in self.functions:
            for first in range(0, len(self.sets), batch):
                self.run(name, list(range(first, first + batch)))
                self.results.open(name)
            self.results.learn_layout(name)
        if self._idle:
            self._empty_s = self._time_of_empty_batches()

    def _time_of_empty_batches(self) -> float:
        """What a request and a reply take. A process without an op says so, for an op could make them seem long."""
        self._idle.ask("arm", function="", indices=[], backward=False, graphs=False)
        return statistics.median(self._idle.go()[0] for _ in range(EMPTY_BATCHES))

    # ---- Samples ----------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Frees its inputs and the memory of the op that it reads from, and lets the op return other layouts from now
        on; `fresh` has to follow."""
        self.sets, self._last = [], None
        self.results.forget()

    def warm_up(self, name: str) -> float:
        """The fastest call's seconds, after warming up."""
        self.run(name, [0])
        self.results.learn_layout(name)
        self._empty_s = self._time_of_empty_batches() if self._idle else 0.0
        end, fastest, times = time.perf_counter() + 2 * clock.WARM_UP_S, float("inf"), 0
        while times < 3 or time.perf_counter() < end:
            fastest, times = min(fastest, self.run(name, [0]).seconds), times + 1
        return fastest

    def plan(self, seconds: float) -> None:
        """Chooses how samples are taken of calls that take about so long. Those from now on are counted: an op that
        goes on while it is stopped could have waited for them."""
        for process in self._processes:
            process.count_anew()
        if self._is_cuda:
            short = seconds < clock.CudaClock.GRAPH_S and not self.backward
            self._armed.clear()
            self.graphs = short and all(
                process.ask("graphs", function=name, index=0)["captured"] for name, process in self.functions.items()
            )
        else:
            self.calls_a_sample = max(1, min(MOST_CALLS, self._set_count, round(SAMPLE_S / max(seconds, 1e-9))))

    def sample(self, name: str) -> float:
        """Seconds a call."""
        taken = self.run(name, self._next_sets()).seconds
        self.seconds.setdefault(name, []).append(taken)
        return taken

    def _next_sets(self) -> list[int]:
        first, self._turn = self._turn, self._turn + self.calls_a_sample
        return [index % len(self.sets) for index in range(first, self._turn)]

    def run(self, name: str, indices: list[int], kinds: Sequence[str] = ()) -> TimedSample:
        """One call of a function on each of these sets, with new values; of these kinds, one for each set, instead of
        those that are timed."""
        process, chosen = self.functions[name], [self.sets[index] for index in indices]
        numbers: list[int] = []
        if self.backward:
            self._renew(chosen, kinds)
            self._arm(name, indices)  # The forward runs here: it knows the inputs, and not yet the cotangents.
            for inputs in chosen:
                self.drawing.renew_cotangents(inputs)
        else:
            if not self._is_cuda:
                self._arm(name, indices)  # Which frees the results of the last sample, before the clock runs.
            elif self._armed.get(process) != name:
                self._arm(name, list(range(len(self.sets))))
                self._armed[process] = name
            numbers = indices if self._is_cuda else []
            self._renew(chosen, kinds)
        return self._go(name, indices, numbers, kinds)

    def _renew(self, chosen: Sequence[JudgedInputs], kinds: Sequence[str]) -> None:
        for inputs, values in itertools.zip_longest(chosen, kinds, fillvalue="normal"):
            self.drawing.renew(inputs, values)

    def run_again(self, sample: TimedSample) -> TimedSample:
        """A further sample, taken as this."""
        return self.run_joined(sample.name) if sample.joined else self.run(sample.name, sample.indices, sample.kinds)

    def join_calls(self, name: str) -> bool:
        """Has a call of a function on each of the sets captured in one CUDA graph; whether that can be done. The
        forwards of gradients run now, on values that stay."""
        if self.backward:
            self._renew(self.sets, ())
            torch.cuda.synchronize()
        facts = {"function": name, "count": len(self.sets), "backward": self.backward}
        return bool(self.functions[name].ask("join_calls", **facts)["captured"])

    def run_joined(self, name: str) -> TimedSample:
        """The calls of a function that its process joined in a CUDA graph, with new values: of gradients, cotangents
        alone."""
        if self.backward:
            for inputs in self.sets:
                self.drawing.renew_cotangents(inputs)
        else:
            self._renew(self.sets, ())
        return self._go(name, list(range(len(self.sets))), [JOINED])

    def _go(self, name: str, indices: list[int], numbers: list[int], kinds: Sequence[str] = ()) -> TimedSample:
        if self._is_cuda:
            self.clock.flush()
            self._wait_for_the_gpu()
        seconds, own, addresses = self.functions[name].go(numbers)
        # The clock of the op's process takes single calls alone.
        a_call = own if self._is_cuda and own else max(seconds - self._empty_s, 1e-9) / len(indices)
        self._last = TimedSample(name, indices, [*kinds], JOINED in numbers, a_call, addresses)
        return self._last

    def _arm(self, name: str, indices: list[int]) -> None:
        if self._is_cuda:
            torch.cuda.synchronize()  # What a forward runs on, or a graph is captured with, has to be there.
        order = {"function": name, "indices": indices, "backward": self.backward, "graphs": self.graphs}
        self.functions[name].ask("arm", **order)

    def _wait_for_the_gpu(self) -> None:
        """Until it is through with what the judge gave it, and with what another process did, which may be the rival's
        or work that the op left."""
        torch.cuda.synchronize()
        self._waits += 1
        for _ in range(QUIET_TRIES):
            begin = time.perf_counter()
            self._probe.zero_()
            torch.cuda.synchronize()
            if time.perf_counter() - begin < QUIET_S:
                return
        self._waits_in_vain += 1

    def _was_never_idle(self) -> str | None:
        """A doubt if the GPU was busy before most samples: a kernel of the op's that never ends could watch for new
        inputs, and compute before the clock runs."""
        return NEVER_IDLE if 2 * self._waits_in_vain > self._waits else None

    # ---- Checks -----------------------------------------------------------------------------------------------

    def check(self, *, coarsely: bool = False) -> CheckResult:
        """Whether the results of the last sample are the op's, all of them, computed when the clock stopped."""
        try:
            if fault := self._went_on() or self._held_back():
                return CheckResult(fault)
            last, results, late = self.results.read(self._last)
            remark, doubt = None, late or self.functions[last.name].doubt or self._moved() or self._was_never_idle()
            for position in _CHANCE.sample(range(len(results)), min(COMPARED, len(results))):
                inputs = self.sets[last.indices[position]]
                self.drawing.recall(inputs)
                if inputs.were_changed():
                    return CheckResult("it wrote to its inputs, or to the memory around them")
                compared = compare_with_reference(self, inputs, results[position], coarsely=coarsely)
                if compared.fault:
                    return CheckResult(self._explained(compared.fault, last, results, position))
                remark, doubt = remark or compared.remark, doubt or compared.doubt
                if last.name == OP:
                    self._check_contract(last, position)
            return CheckResult(remark=remark, doubt=doubt)
        except CallError as error:
            return self._of_a_call(error)
        except MismatchError as wrong:
            return CheckResult(wrong.fault.text)
        except torch.OutOfMemoryError:  # Of the judge, for copies of the results.
            held = self.hoards()
            return held if held.fault else CheckResult(doubt=NOT_COMPARED)
        finally:
            self._leave_room()

    def _of_a_call(self, error: CallError) -> CheckResult:
        """A fault; a doubt if it says that it lacked memory of a GPU that others use."""
        is_memory = self._is_cuda and isinstance(error, RaisedError) and error.kind == "OutOfMemoryError"
        if is_memory and (others := self.bystanders.sentence()):
            return CheckResult(doubt=f"not compared, since it ran out of memory ({error}); {others}")
        return CheckResult(str(error))

    def _leave_room(self) -> None:
        """Gives back what the reference took of the GPU's memory: the op and its peers need it, and where one of them
        lacks memory, it frees results of before, which are open here."""
        if self._is_cuda and torch.cuda.memory_reserved() > KEPT_BYTES + 4 * self.drawing.nbytes:
            gc.collect()  # Suppressed exceptions refer to frames, and these to the reference's results.
            torch.cuda.empty_cache()

    def check_special_values(self, name: str) -> CheckResult:
        """Whether a function's results of a sample of special values, such as infinite or large ones, are those that
        fuzz allows. No sample that is timed has such, so an op that knows when it is timed could leave out what they
        take; it does not know of this sample. A usual one follows, which `check` may be asked about. On a GPU there is
        none: what is allowed takes references of large inputs, in memory that the op needs."""
        if self._is_cuda:
            return CheckResult()
        indices = self._next_sets()
        try:
            fault = self._fault_of_special_values(name, indices)
        except MismatchError:  # So lab.py draws none.
            fault = None
        except CallError as error:
            fault = None if self._reference_refuses(indices) else str(error)
        finally:
            gc.collect()  # Suppressed exceptions refer to frames, and these to the references' results.
        self.run(name, indices)
        return CheckResult(fault)

    def _fault_of_special_values(self, name: str, indices: list[int]) -> str | None:
        sample, results, _ = self.results.read(self.run(name, indices, [_CHANCE.choice(VALUES[1:]) for _ in indices]))
        for position in _CHANCE.sample(range(len(results)), min(COMPARED, len(results))):
            inputs, values = self.sets[sample.indices[position]], sample.kinds[position]
            self.drawing.recall_cotangents(inputs)
            if fault := compare_special_values(self, inputs, values, results[position]):
                return fault
        return None

    def _reference_refuses(self, indices: list[int]) -> bool:
        """Whether the reference, too, raises for a set that a sample was taken of."""
        with torch.no_grad():
            for inputs in (self.sets[index] for index in indices):
                try:
                    self.op.reference(*copies(inputs.args))
                except Exception:
                    return True
        return False

    def _went_on(self) -> str | None:
        """A fault if a process runs while it is stopped, such as by a timer that continues it, where it could compute
        from new inputs before the clock runs."""
        return WENT_ON if self.functions[self._last.name].goes_on() else None

    def _held_back(self) -> str | None:
        """A fault if somebody slows a process by its cores or its priority. Any process of the same user can do that,
        and an op looks faster if its peer gets slower, or the process that takes the empty batches."""
        if self._is_cuda:  # There the cores of a process have no part in the time.
            return None
        if self.functions[self._last.name].is_held_back():
            return HELD_BACK
        others = [*self._processes, *([self._idle] if self._idle else [])]
        return OTHERS_HELD_BACK if any(process.is_held_back() for process in others) else None

    def _moved(self) -> str | None:
        """A doubt if this process runs on other cores than it was told: so may the peers then, which follow it."""
        return MOVED if not self._is_cuda and os.sched_getaffinity(0) != set(self.cores) else None

    def _check_contract(self, sample: TimedSample, position: int) -> None:
        """What fuzz asks of results, since an op may know that it is timed: memory of their own, in their layout.

        Raises:
            MismatchError: they lie in the memory of an input, or are laid out as the reference's may not be.
        """
        if self._is_cuda or self.backward or self.op.mutates:
            return
        inputs, where = self.sets[sample.indices[position]], self.results.where(sample, position)
        addresses = [address for address, _ in where]
        places = self.functions[sample.name].places_in(self._arena, addresses)
        outs = [
            Region(address if place is None else place, *layout)
            for (address, layout), place in zip(where, places, strict=True)
        ]
        begin, shared = self._arena.storage.data_ptr(), {id(ours): theirs for ours, theirs in inputs.pairs()}
        theirs = [shared[id(tensor)] for tensor in tensors(inputs.args)]
        regions = [Region(t.data_ptr() - begin, t.dtype, tuple(t.shape), tuple(t.stride())) for t in theirs]
        plain_args = copies(inputs.args)
        plains = self.op.reference(*plain_args)
        contract.check_strides(self.op, inputs.args, outs, plain_args, tensors(plains))
        contract.check_memory(regions, outs, plain_args, plains)

    def _explained(self, fault: str, last: TimedSample, results: list[list[Tensor]], position: int) -> str:
        """The fault, and what further calls say of its cause, if they can be read: where a reference lacked memory, the
        op's process has freed the results."""
        self.functions[last.name].settle(min(0.05, 2e-3 + 2 * last.seconds))
        with suppress(CallError, torch.OutOfMemoryError):
            if not _same(self.results.read_now(last)[position], results[position]):
                return f"its results changed after it had returned: work was left on another stream or thread ({fault})"
        with suppress(CallError, torch.OutOfMemoryError):
            if _same(self.results.read_now(self.run(last.name, last.indices))[position], results[position]):
                return f"it returned what it had for earlier values at the same addresses ({fault})"
        return fault

    def hoards(self) -> CheckResult:
        """A fault if the op's process holds so much of the GPU's memory that the judge lacks it; a doubt if others may
        be who does. The results of the last sample are freed."""
        if not self._is_cuda:
            return CheckResult()
        self.results.close()
        for process in self._processes:
            process.ask("free_memory")
        torch.cuda.empty_cache()
        held = self.bystanders.more_taken()
        if held <= HELD_BYTES + HELD_COPIES * self.drawing.nbytes:
            return CheckResult()
        if others := self.bystanders.sentence():
            return CheckResult(doubt=f"{NOT_COMPARED}; {others}")
        text = f"it holds {held / 2**30:.1f} GiB of the GPU's memory, so that its results cannot be compared"
        return CheckResult(text)

    def check_afterwards(self, name: str = OP) -> CheckResult:
        """The checks that need calls of their own, for when all samples are taken."""
        if self._is_cuda:
            return checked_by_the_wall(self, name)
        if self.calls_a_sample == 1:
            self.run(name, [0, 1])
            return self.check()
        return CheckResult()


def _placed(tensor: Tensor, offset: int) -> TensorPlace:
    """A place for a tensor: in its own strides or, where its elements share memory, contiguous."""
    overlaps = any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    stride = torch.empty(tensor.shape, device="meta").stride() if overlaps else tensor.stride()
    return TensorPlace(offset, tensor.dtype, tuple(tensor.shape), tuple(stride), tensor.requires_grad)


def _same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(same_bits(a, b) for a, b in zip(first, second, strict=True))
