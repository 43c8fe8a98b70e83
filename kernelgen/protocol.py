"""What the host and a worker agree on; lab/worker_process.py speaks it on the host, worker/protocol.py in the worker.

A worker is a process in the project's Python, where torch is. Both sides write JSON objects, one a line, through pipes
that the worker keeps to itself: before it imports anything of the op it moves its standard input and output aside, so
that what the op prints goes to standard error.

The first line is the request. Its `work` names a module (of kernelgen.worker, if it has no dot) with a function
`work(request, emit)`; `emit(event, **facts)` sends {"event": event, **facts}. If the function returns None, all is done
and the worker sends "done". Otherwise it returns an object that takes orders: {"do": METHOD, **ARGUMENTS} calls one of
its methods, and the worker sends "answer" with the dictionary that the method returns, or "refused" with a `message`.
The orders end where the host closes the pipe. "error" (`message`, `exit_code`) says that the work itself failed.

A worker that goes through cases sends "start" (`op`, `case`) before each, so that a crash or a hang is put down to it,
and "close" (`op`) after an op's last. The host starts another in place of one that was lost, and tells it under
`finished` and `closed` which cases and ops to leave out.
"""

from collections.abc import Container

# The name of the op itself among the implementations that are timed in one case; the others are its peers.
OP = "op"
# The variable that names the folder in which a worker has its ops write; the host removes it.
SCRATCH = "KERNELGEN_SCRATCH"
# The variables by which PyTorch allocates a GPU's memory so that CUDA does not share it with another process, as it has
# to be between a judge and its op.
ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# Work that judges an op: its process imports nothing of the project, not even what has torch's name there.
JUDGES = ("bench", "compare", "fuzz", "tune")


def part(tables: Container[str], kind: str, capability: str | None, backward: bool) -> str:
    """The key of a lab.py's TUNABLES for a kind of device, cpu or cuda: the most specific of "cuda 9.0 backward", "cuda
    backward", "cuda 9.0" and "cuda" that it has. A GPU or a gradient with kernels of its own has a key of its own."""
    devices = [f"{kind} {capability.rstrip('af')}", kind] if capability else [kind]
    keys = [*(f"{device} backward" for device in devices if backward), *devices]
    return next((key for key in keys if key in tables), kind)
