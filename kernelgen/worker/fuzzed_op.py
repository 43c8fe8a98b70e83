"""Calls an op in the ways that fuzz asks for, in the op's process, and says where the results lie.

The judge (worker/judge/caller.py) gives the orders, owns the values of the inputs, and reads the results from this
process' memory. What an answer says of containers, fakes and the state of the process is the op's word.
"""

import contextlib
import ctypes
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelgen.worker import state
from kernelgen.worker.evaluation import call, ones_like, own, tensors
from kernelgen.worker.judge.arena import StoragePart, extent_of, opened
from kernelgen.worker.judge.gpu_memory import Sharing

_SWITCH_S = 1e-5
# About a hundredth of a second of the GPU's cycles.
_LATE_CYCLES = 20_000_000
_MODES = {"gradients": contextlib.nullcontext, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}

# A result and the gradients, as the op returned them.
Called = tuple[Any, list[Tensor | None]]
Described = dict[str, Any]


class FuzzedOp:
    """Each public method is an order; its arguments can be pickled, its result is a JSON object.

    The results of an order stay alive until the next.
    """

    def __init__(self, function: Callable[..., Any], arena_fd: int = -1) -> None:
        self._function, self._arena_fd = function, arena_fd
        self._results: list[Called] = []
        self._sharing = Sharing()

    # ---- Inputs -----------------------------------------------------------------------------------------------

    def inputs(self, arena: dict[str, Any], storages: list[tuple[int, int, bool]], sets: list[Any]) -> Described:
        """Map the arena, and take the arguments and cotangents of each set from it.

        Args:
            storages: offset and size of each, in bytes, and whether floating-point numbers lie there.
            sets: pairs of arguments and cotangents, with a `StoragePart` in the place of each tensor.

        Returns the addresses of the storages.
        """
        self._results = []
        whole = self._arena = opened(self._arena_fd, arena)
        parts = [whole[offset : offset + nbytes] for offset, nbytes, _ in storages]
        self._blanks = [0xFF if is_floating else 0 for _, _, is_floating in storages]  # NaN, or an index that exists.
        self._device = str(whole.device)
        self._storages = [torch.empty(0, dtype=torch.uint8, device=whole.device).set_(part) for part in parts]
        of_part: dict[int, Tensor] = {}

        def tensor(part: StoragePart) -> Tensor:
            if id(part) not in of_part:
                of_part[id(part)] = part.tensor(parts[part.storage])
            return of_part[id(part)]

        self._sets = pytree.tree_map_only(StoragePart, tensor, sets)
        return {"addresses": [storage.data_ptr() for storage in self._storages]}

    def _renew(self) -> None:
        """As autograd counts what is written in place: the judge wrote new values."""
        for tensor in {id(tensor): tensor for tensor in tensors(self._sets)}.values():
            torch.autograd.graph.increment_version(tensor)

    # ---- Calls ------------------------------------------------------------------------------------------------

    def draw(self, number: int, modes: list[str], reborn: bool, renewed: bool, blank: list[Any]) -> Described:
        """Calls with gradients and in other modes, with what only a process itself knows: its changed `state`.

        Args:
            reborn: by other tensors that have the addresses and version numbers of the set's.
            renewed: the set has new values.
            blank: dtype and shape of the results to expect, for which memory is filled with NaN.
        """
        self._results = []
        if renewed and not reborn:
            self._renew()
        args, cotangents = self._sets[number]
        args = _reborn(args) if reborn else args
        with poisoned_memory(), state.changes(self._device) as changed:
            self._poison_blocks(blank, args)
            results = [self._call(args, cotangents)]
            for mode in modes:
                with _MODES[mode]():
                    results.append(self._call(args))
            self._synchronize()
        return self._answer(results, state=changed)

    def evaluate(self, number: int, *, threads: int = 0, autocast: str = "", renewed: bool = False) -> Described:
        """A call with gradients: with a number of threads, or under autocast of a type of device."""
        self._results = []
        if renewed:
            self._renew()
        args, cotangents = self._sets[number]
        usual = torch.get_num_threads()
        if threads:
            torch.set_num_threads(threads)
        try:
            with torch.autocast(autocast, dtype=torch.bfloat16) if autocast else contextlib.nullcontext():
                result = self._call(args, cotangents)
            self._synchronize()
            return self._answer([result])
        finally:
            if threads:
                torch.set_num_threads(usual)

    def compiled(self) -> Described:
        """A call with gradients on each set, by one compiled function: sizes that change become symbols, which fakes
        have to take, too."""
        from kernelgen.worker.fakes import FakeChecker

        self._results = []
        with FakeChecker(symbolic=True) as checker:
            call(self._function, *self._sets[0])
        torch._dynamo.reset()
        try:
            function = torch.compile(self._function, backend="aot_eager")
            results = [self._call(args, cotangents, function) for args, cotangents in self._sets]
            self._synchronize()
            return self._answer(results, fake=checker.fault)
        finally:
            torch._dynamo.reset()

    def in_a_graph(self, number: int, *, times: int = 1, only: int | None = None, changed: str = "") -> Described:
        """A call in the middle of a graph of autograd: its inputs are no leaves.

        Args:
            times: how often the gradients are computed from one graph.
            only: the number of the floating-point output that takes a gradient, alone.
            changed: "inputs" or "outputs" are zeros by the time of the backward.
        """
        self._results = []
        leaves_and_others, cotangents = self._sets[number]
        leaves = list({id(t): t for t in tensors(leaves_and_others) if t.requires_grad}.values())
        args = pytree.tree_map_only(Tensor, lambda t: t.view_as(t) if t.requires_grad else t, leaves_and_others)
        result = self._function(*args)
        floating = [out for out in tensors(result) if out.is_floating_point()]
        pairs = list(zip(floating, cotangents, strict=False))
        pairs = [(out, grad) for out, grad in (pairs if only is None else pairs[only : only + 1]) if out.requires_grad]
        for tensor in tensors({"inputs": args, "outputs": result}.get(changed)):
            if tensor.is_floating_point():
                tensor.detach().zero_()
        grads: list[list[Tensor | None]] = [[None] * len(leaves)] * times
        if pairs:
            outs, weights = zip(*pairs, strict=True)
            options = {"allow_unused": True, "retain_graph": times > 1}
            grads = [list(torch.autograd.grad(outs, leaves, weights, **options)) for _ in range(times)]
        self._synchronize()
        return self._answer([(result, of_time) for of_time in grads])

    def forward(self) -> Described:
        """The outputs alone, of a call in memory filled with NaN."""
        self._results = []
        with poisoned_memory(), torch.no_grad():
            result = call(self._function, self._sets[0][0])  # Too large for a copy.
            self._synchronize()
        return self._answer([result])

    def repeat(self, times: int, mode: str) -> Described:
        """So many calls, and the bytes that were allocated when the results of earlier calls had gone."""
        self._results = []
        held = torch.cuda.memory_allocated() if self._device.startswith("cuda") else bytes_of_malloc()
        with _MODES[mode]():
            return self._answer([self._call(self._sets[0][0]) for _ in range(times)], held=held)

    def contract(self) -> Described:
        """Two calls, the first beside the fakes of all its operators, and the cotangents of both, which are ones."""
        from kernelgen.worker.fakes import FakeChecker

        self._results = []
        args = self._sets[0][0]
        with FakeChecker() as checker:
            first, ones = self._with_ones(args)
        second, others = self._with_ones(args)
        self._synchronize()
        cotangents = [self._layout(tensor) for tensor in (*ones, *others)]
        return self._answer([first, second], fake=checker.fault, cotangents=cotangents)

    def on_a_side_stream(self) -> Described:
        """As `contract`, on a stream where the inputs' values come late: a kernel on another does not wait for them."""
        self._results = []
        values = [storage.clone() for storage in self._storages]
        for storage, blank in zip(self._storages, self._blanks, strict=True):
            storage.fill_(blank)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(_LATE_CYCLES)
            for storage, value in zip(self._storages, values, strict=True):
                storage.copy_(value)
            result, _ = self._with_ones(self._sets[0][0])
            result = self._copied(*result)
        self._synchronize()
        return self._answer([result])

    def several_threads(self, times: int) -> Described:
        """A call on each set alone; then each set in a thread of its own, so many times, on CUDA on its own stream."""
        self._results = []
        alone = [self._call(args) for args, _ in self._sets]
        interval = sys.getswitchinterval()
        try:
            sys.setswitchinterval(_SWITCH_S)
            with ThreadPoolExecutor(len(self._sets)) as pool:
                threads = [pool.submit(self._call_often, args, times) for args, _ in self._sets]
                together = [result for thread in threads for result in thread.result()]
        finally:
            sys.setswitchinterval(interval)
        self._synchronize()
        return self._answer([*alone, *together])

    def _call_often(self, args: Any, times: int) -> list[Called]:
        on_cuda = self._device.startswith("cuda")
        with torch.cuda.stream(torch.cuda.Stream()) if on_cuda else contextlib.nullcontext():
            results = [self._call(args) for _ in range(times)]
            if on_cuda:
                torch.cuda.current_stream().synchronize()
        return results

    def _call(self, args: Any, cotangents: Sequence[Tensor] = (), function: Callable[..., Any] | None = None) -> Called:
        result, grads = call(function or self._function, args, cotangents)
        return self._copied(result, grads) if self._device.startswith("cuda") else (result, grads)

    @staticmethod
    def _copied(result: Any, grads: list[Tensor | None]) -> Called:
        """Copies that the current stream makes: what is left on another stream is not in them."""
        return [own(out) for out in tensors(result)], [None if grad is None else own(grad) for grad in grads]

    def _with_ones(self, args: Any) -> tuple[Called, list[Tensor]]:
        """A call, and the gradients of a sum of its outputs."""
        result = self._function(*args)
        ones = [ones_like(out) for out in tensors(result) if out.requires_grad]
        leaves = list({id(tensor): tensor for tensor in tensors(args) if tensor.requires_grad}.values())
        differentiable = [out for out in tensors(result) if out.requires_grad]
        grads: list[Tensor | None] = [None] * len(leaves)
        if leaves and differentiable:
            grads = list(torch.autograd.grad(differentiable, leaves, ones, allow_unused=True))
        return (result, grads), ones

    # ---- Results ----------------------------------------------------------------------------------------------

    def _answer(self, results: Sequence[Called], **more: Any) -> Described:
        self._results = list(results)
        described = [
            {
                "kind": kind(result),
                "outputs": [self._facts(out) for out in tensors(result)],
                "grads": [None if grad is None else self._facts(grad) for grad in grads],
            }
            for result, grads in results
        ]
        return {"calls": described, "allocations": self._allocations(), **more}

    def _facts(self, tensor: Tensor) -> list[Any]:
        return [*self._layout(tensor), self._place(tensor)]

    @staticmethod
    def _layout(tensor: Tensor) -> list[Any]:
        """Type, dtype, shape, strides, device and address."""
        type_ = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        shape_and_strides = list(tensor.shape), list(tensor.stride())
        return [type_, str(tensor.dtype), *shape_and_strides, str(tensor.device), tensor.data_ptr()]

    def _place(self, tensor: Tensor) -> int | None:
        """On CUDA where a tensor begins in the arena, in bytes; None if it lies elsewhere."""
        if not tensor.is_cuda or not tensor.numel():
            return None
        offset = tensor.data_ptr() - self._arena.data_ptr()
        return offset if 0 <= offset < self._arena.nbytes() else None

    def _allocations(self) -> list[Any]:
        """What opens the results on CUDA in another process."""
        if not self._device.startswith("cuda"):
            return []
        results = [tensor for result, grads in self._results for tensor in (*tensors(result), *grads)]
        there = [tensor for tensor in results if tensor is not None and tensor.is_cuda and tensor.numel()]
        return self._sharing.allocations(extent_of(tensor) for tensor in there if self._place(tensor) is None)

    def _synchronize(self) -> None:
        if self._device.startswith("cuda"):
            torch.cuda.synchronize()

    def _poison_blocks(self, blank: list[Any], args: Any) -> None:
        """Leaves NaN in the memory that CUDA's allocator hands out next for results of these sizes.

        The stable ABI's `empty_strided` asks the allocator directly, past what `poisoned_memory` fills. On the CPU the
        process' MALLOC_PERTURB_ does the same.
        """
        if self._device.startswith("cuda"):
            leaves = [tensor for tensor in tensors(args) if tensor.requires_grad]
            sizes = [*blank, *((leaf.dtype, leaf.shape) for leaf in leaves)]
            floating = [(dtype, shape) for dtype, shape in sizes if dtype.is_floating_point for _ in range(2)]
            blocks = [torch.full(shape, float("nan"), dtype=dtype, device=self._device) for dtype, shape in floating]
            del blocks


class _Mallinfo(ctypes.Structure):
    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names)


def bytes_of_malloc() -> int | None:
    """The bytes that this process has from malloc; None if its C library does not say."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2  # Of glibc since 2.33.
    except (AttributeError, OSError):
        return None
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return info.uordblks + info.hblkhd


def kind(result: Any) -> str:
    """A container and what is in it, in words; a named tuple is a tuple. What is no tensor has no other check."""
    for container in (tuple, list):
        if isinstance(result, container):
            return f"a {container.__name__} of ({', '.join(map(kind, result))})"
    if isinstance(result, dict):
        return f"a dict of ({', '.join(f'{key}: {kind(value)}' for key, value in sorted(result.items()))})"
    if isinstance(result, Tensor):
        return "a tensor"
    if isinstance(result, float):
        return f"float {result:.6g}"
    plain = (bool, int, str, torch.dtype, torch.device)
    return f"{type(result).__name__} {result!r}" if isinstance(result, plain) else type(result).__name__


def _reborn(args: Any) -> Any:
    """Other tensors at the addresses of these, with their version numbers: as when memory is freed and used again.

    A cache by address, shape and version takes them for the old ones; one that holds weak references does not.
    """
    of_id: dict[int, Tensor] = {}

    def again(tensor: Tensor) -> Tensor:
        if id(tensor) not in of_id:
            new = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            new.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
            while new._version < tensor._version:
                torch.autograd.graph.increment_version(new)
            of_id[id(tensor)] = new.requires_grad_(tensor.requires_grad)
        return of_id[id(tensor)]

    return pytree.tree_map_only(Tensor, again, args)


@contextlib.contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fills what `empty` allocates with NaN, so that an element nobody writes shows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # use_deterministic_algorithms does the same, but spends seconds on importing torch.compile's modules.
        torch.set_deterministic_debug_mode("warn")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode("default")
