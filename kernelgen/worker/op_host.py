"""The process that runs a project's op, or its peers, for the judge. Its word counts for nothing.

It answers orders one after the other. Inputs lie in memory that the judge shares and rewrites; of results it gives the
addresses, from which the judge reads by itself. While no clock runs, the judge keeps this process stopped.

Messages from the judge are pickled orders, {"do": METHOD, **ARGUMENTS}, or GO, which starts what was armed: the calls
whose numbers follow it, or all. Messages to the judge are never unpickled: JSON after an OK or FAILED, or, after GO,
the seconds by this process's own clock (used on CUDA, where the judge checks them) and the addresses of the results.
"""

import ctypes
import importlib
import importlib.util
import json
import os
import pickle
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kernelgen.worker.confinement import confine, end_with_parent

GO, OK, FAILED, TIMED = b"go", b"+", b"!", b"t"
JOINED = -1  # In place of a call's number: the graph of many calls.
# Characters of an exception's message that the judge gets. A report of the emulated GPU is long.
MOST_OF_A_MESSAGE = 20_000
_M_PERTURB = -6


def main(fd: int, arena_fd: int, scratch: str) -> None:
    """Serves the judge at the other end of `fd`; confined to `scratch`, unless that is empty."""
    end_with_parent()
    if scratch:
        confine(Path(scratch))
        if sys.flags.no_site:  # Confined, Python starts again, with what the project has put beside torch.
            os.execv(sys.executable, [word for word in sys.orig_argv if word != "-S"])
    _Host(Connection(fd), arena_fd).serve()


class _Host:
    """Each public method but `serve` is an order; its result is a JSON object."""

    def __init__(self, connection: Connection, arena_fd: int) -> None:
        self._connection, self._arena_fd = connection, arena_fd
        self._arena: Any = None
        self._functions: dict[str, Any] = {}
        self._mutates: tuple[int, ...] = ()
        self._calls: list[Any] = []
        self._results: list[Any] = []
        self._graphs: dict[Any, Any] = {}
        self._joined: Any = None
        self._clock = None
        self._fuzzed: Any = None
        self._sharing: Any = None
        self._libraries: set[str] = set()

    def serve(self) -> None:
        receive, send = self._connection.recv_bytes, self._connection.send_bytes
        while True:
            try:
                message = receive()
            except EOFError:
                os._exit(0)
            try:
                send(self._answer(message))
            except BrokenPipeError:
                os._exit(0)

    def _answer(self, message: bytes) -> bytes:
        try:
            if message.startswith(GO):
                return self._go(message.removeprefix(GO))
            order = pickle.loads(message)
            return OK + json.dumps(getattr(self, order.pop("do"))(**order) or {}).encode()
        except Exception as error:
            problem = {"type": type(error).__name__, "message": str(error)[:MOST_OF_A_MESSAGE]}
            return FAILED + json.dumps(problem).encode()

    # ---- Loading ----------------------------------------------------------------------------------------------

    def load_op(self, package: str, name: str, lab: str) -> dict[str, Any]:
        """Import the project, and take the op that the trusted lab.py names."""
        importlib.import_module("torch")
        importlib.import_module(f"{package}.ops.{name}")
        module = _load_file(f"{package}.ops.{name}.lab", lab)
        self._functions, self._mutates = {"op": module.OP}, tuple(getattr(module, "MUTATES", ()))
        library = sys.modules.get(f"{package}._library")
        return {"missing": getattr(library, "missing", {})}

    def require_kernel(self, package: str, name: str, device: str) -> dict[str, Any]:
        from kernelgen.errors import LabError
        from kernelgen.worker.op import require_kernel

        try:
            require_kernel(package, name, device)
        except LabError as error:
            return {"problem": str(error)}
        return {"problem": None}

    def load_library(self, path: str) -> None:
        """Put a library of the op in force: PyTorch calls the kernel that was registered last."""
        import torch

        if path not in self._libraries:
            torch.ops.load_library(path)
            self._libraries.add(path)
            return
        # A library that is open already registers nothing; a copy of it does.
        with tempfile.TemporaryDirectory() as scratch:
            torch.ops.load_library(shutil.copy(path, scratch))

    def load_peers(self, package: str, name: str, trusted: str) -> dict[str, Any]:
        """Take the peers of a trusted lab.py; nothing of the project is imported."""
        from kernelgen.worker.judge import trusted as files

        op = files.load(Path(trusted), package, name)
        self._functions, self._mutates = dict(op.peers), op.mutates
        return {}

    def start_clock(self, tf32: bool) -> dict[str, Any]:
        """What a GPU needs: its clock, and whether float32 products may use TF32."""
        import torch

        from kernelgen.worker.clock import CudaClock

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        if torch.cuda.is_available():
            self._clock = CudaClock()
        return {}

    def state(self) -> dict[str, Any]:
        """What a function can leave changed for those that run after it."""
        import torch

        from kernelgen.worker.state import rounding

        backends = torch.backends
        return {
            "threads": torch.get_num_threads(),
            "default dtype": str(torch.get_default_dtype()),
            "float32 matmul precision": torch.get_float32_matmul_precision(),
            "cudnn.allow_tf32": backends.cudnn.allow_tf32,
            "cudnn.benchmark": backends.cudnn.benchmark,
            "cudnn.deterministic": backends.cudnn.deterministic,
            "cudnn.enabled": backends.cudnn.enabled,
            "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
            "gradients": torch.is_grad_enabled(),
            "flushed denormals": bool(torch.full((), 1e-40) * 1 == 0),
            "rounding": rounding(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Undo what a function left changed."""
        import torch

        from kernelgen.worker.state import round_to_nearest

        backends = torch.backends
        torch.set_num_threads(state["threads"])
        torch.set_default_dtype(getattr(torch, state["default dtype"].removeprefix("torch.")))
        torch.set_float32_matmul_precision(state["float32 matmul precision"])
        torch.use_deterministic_algorithms(state["deterministic algorithms"])
        torch.set_grad_enabled(state["gradients"])
        torch.set_flush_denormal(state["flushed denormals"])
        round_to_nearest()
        for name in ("allow_tf32", "benchmark", "deterministic", "enabled"):
            setattr(backends.cudnn, name, state[f"cudnn.{name}"])

    # ---- Inputs -----------------------------------------------------------------------------------------------

    def inputs(self, arena: dict[str, Any], sets: list[Any], cotangents: list[list[Any]]) -> None:
        """Map the arena, and take the arguments of each set from it."""
        from torch.utils._pytree import tree_map_only

        from kernelgen.worker.judge.arena import TensorPlace, opened

        self._calls, self._results, self._graphs, self._joined = [], [], {}, None
        storage = self._arena = opened(self._arena_fd, arena)

        def taken(tree: Any) -> Any:
            return tree_map_only(TensorPlace, lambda place: place.tensor(storage), tree)

        self._sets, self._cotangents = [taken(args) for args in sets], [taken(grads) for grads in cotangents]

    # ---- Fuzz -------------------------------------------------------------------------------------------------

    def fuzz(self, call: str, **arguments: Any) -> dict[str, Any]:
        """An order of `FuzzedOp`."""
        if self._fuzzed is None:
            from kernelgen.worker.fuzzed_op import FuzzedOp
            from kernelgen.worker.mutation import on_copies

            self._fuzzed = FuzzedOp(on_copies(self._functions["op"], self._mutates), self._arena_fd)
        return getattr(self._fuzzed, call)(**arguments)

    def set_schedules(self, package: str, schedule: int) -> None:
        """Of the threads of the emulated GPU."""
        from kernelgen.worker.emulated import set_schedules

        set_schedules(package, schedule)

    def perturb_memory(self, byte: int) -> None:
        """Has glibc fill what it allocates with the complement of a byte, so that an element nobody writes shows; 0
        turns that off, for calls that are timed."""
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_M_PERTURB, byte)

    # ---- Calls ------------------------------------------------------------------------------------------------

    def arm(self, function: str, indices: list[int], backward: bool, graphs: bool) -> None:
        """Prepare a call on each of these sets; for a gradient, the forward runs here."""
        from kernelgen.worker.judge.arena import populate

        self._results, self._joined = [], None
        if self._arena is not None and self._arena.device.type == "cpu":
            populate(self._arena)
        self._calls = [self._call(self._functions[function], index, backward) for index in indices]
        if graphs:
            from kernelgen.worker.clock import captured

            for position, index in enumerate(indices):
                key = function, index
                if key not in self._graphs:
                    self._graphs[key] = captured(self._calls[position])
                self._calls[position] = self._graphs[key] or self._calls[position]

    def graphs(self, function: str, index: int) -> dict[str, Any]:
        """Whether a call can be captured into a CUDA graph."""
        self.arm(function, [index], False, True)
        return {"captured": self._graphs[function, index] is not None}

    def join_calls(self, function: str, count: int, backward: bool) -> dict[str, Any]:
        """Capture a call on each of the first `count` sets into one CUDA graph, which the number JOINED then launches;
        whether that could be done."""
        import torch

        from kernelgen.worker.clock import captured

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # A gradient runs on the stream of its forward.
            calls = [self._call(self._functions[function], index, backward) for index in range(count)]
        self._joined = captured(lambda: [call() for call in calls], stream)
        return {"captured": self._joined is not None}

    def left(self, times: int = 10) -> dict[str, Any]:
        """For how many seconds the GPU still works when the current stream is through."""
        import torch

        waits = []
        for _ in range(times):
            torch.cuda.synchronize()
            self._clock.sample(self._calls)
            torch.cuda.current_stream().synchronize()
            start = time.perf_counter()
            torch.cuda.synchronize()
            waits.append(time.perf_counter() - start)
        return {"seconds": min(waits)}  # Another program on the GPU makes some of the waits long, the op all of them.

    def layouts(self) -> dict[str, Any]:
        """Type, dtype, shape and stride of each result of each call."""
        return {"layouts": [[_layout(tensor) for tensor in _tensors(result)] for result in self._results]}

    def free_memory(self) -> None:
        """Gives back the GPU's memory that nothing uses."""
        import torch

        self._results = []
        torch.cuda.empty_cache()

    def allocations(self) -> dict[str, Any]:
        """The allocations on a GPU that the results lie in, as `gpu_memory.Sharing` tells of them."""
        from kernelgen.worker.judge.arena import extent_of
        from kernelgen.worker.judge.gpu_memory import Sharing

        self._sharing = self._sharing or Sharing()
        there = [tensor for result in self._results for tensor in _tensors(result) if tensor.numel()]
        return {"allocations": self._sharing.allocations(map(extent_of, there))}

    def _call(self, function: Any, index: int, backward: bool) -> Any:
        args = self._sets[index]
        if self._mutates:
            from kernelgen.worker.mutation import beside, written

            # What was written lies in the arena, where the judge reads it.
            arguments = written(args, self._mutates)
            return lambda: beside(function(*args), arguments)
        if not backward:
            return lambda: function(*args)
        import torch

        floating = [out for out in _tensors(function(*args)) if out.is_floating_point()]
        pairs = zip(floating, self._cotangents[index], strict=False)
        pairs = [(out, grad) for out, grad in pairs if out.requires_grad]
        leaves = [tensor for tensor in _tensors(args) if tensor.requires_grad]
        outputs, grads = [out for out, _ in pairs], [grad for _, grad in pairs]
        return lambda: torch.autograd.grad(outputs, leaves, grads, allow_unused=True, retain_graph=True)

    def _go(self, numbers: bytes = b"") -> bytes:
        chosen = struct.unpack(f"{len(numbers) // 4}i", numbers)
        calls = [self._calls[number] for number in chosen if number != JOINED] or self._calls
        seconds = 0.0
        self._results = []  # The next ones then lie in the same memory, which the judge has opened.
        if JOINED in chosen:
            self._results = self._joined()
            self._clock.synchronize()
        elif self._clock and len(calls) == 1:
            seconds, self._results = self._clock.sample(calls)
        else:
            self._results = [call() for call in calls]
            if self._clock:
                self._clock.synchronize()
        addresses = [tensor.data_ptr() for result in self._results for tensor in _tensors(result)]
        return TIMED + struct.pack(f"d{len(addresses)}q", seconds, *addresses)


def _load_file(name: str, path: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _tensors(tree: Any) -> Iterator[Any]:
    """The tensors of a result: of torch's pytrees, those that ops return."""
    if hasattr(tree, "data_ptr"):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _tensors(value)
    elif isinstance(tree, (tuple, list)):
        for value in tree:
            yield from _tensors(value)


def _layout(tensor: Any) -> list[Any]:
    return [
        f"{type(tensor).__module__}.{type(tensor).__qualname__}",
        str(tensor.dtype),
        *map(list, (tensor.shape, tensor.stride())),
    ]
