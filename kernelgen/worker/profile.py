"""Runs one case for a profiler: Nsight Compute, or torch's own.

Under Nsight Compute a single call, warmed up before, stands between cudaProfilerStart and -Stop, so that neither the
drawing of inputs nor a compilation is in the report.
"""

from pathlib import Path
from typing import Any

import torch

from kernelgen.errors import LabError
from kernelgen.worker import bench, ceilings, protocol
from kernelgen.worker.clock import Call
from kernelgen.worker.environment import describe
from kernelgen.worker.evaluation import tensors
from kernelgen.worker.inputs import Make
from kernelgen.worker.op import Op, Sizes, chosen_device, dtype_name, load, require_kernel

TIMED_CALLS = 20
WARM_CALLS = 3


def work(request: dict[str, Any], emit: protocol.Emit) -> None:
    """Profiles the case request["case"] of the op request["op"].

    Args:
        request: `package`, `project`, `op`, `seed`, `counters` (whether this process runs under Nsight Compute); and
            where given `device`, `case`, `dtype`, `backward`, `tf32`, and `interpreted` for an op that has no compiled
            kernel to require.
        emit: gets "environment"; "start"; then "case" (what it is, and what the op has to move and to compute) and,
            without counters, "times" (`calls`, and `rows` with `name`, `count` and `seconds` a call) and "ceilings"; or
            "failed" (op, case, reason).

    Raises:
        LabError: there is no such case, dtype, gradient or kernel.
    """
    device = chosen_device(request)
    bench.set_tf32(bool(request.get("tf32")))
    emit("environment", **describe(device, Path(request["project"]), {"tf32": request.get("tf32")}))
    op = load(request["package"], request["op"])
    if not request.get("interpreted"):
        require_kernel(request["package"], request["op"], device)
    backward = bool(request.get("backward"))
    bench.check_gradient(op, backward)
    cases = bench.chosen_cases(op, device, [request["case"]] if request.get("case") else None)
    case, sizes = next(iter(cases.items()))
    dtype = bench.chosen_dtypes(op, device, request.get("dtype"))[0]
    if not emit.start(op.name, f"{case} · {dtype_name(dtype)}"):
        return
    try:
        moved, flops = bench.cost(op, sizes, dtype, backward)
        facts = {"op": op.name, "case": case, "sizes": sizes, "dtype": dtype_name(dtype), "backward": backward}
        emit("case", **facts, bytes=moved, flops=flops)
        make = Make(device, dtype, seed=request["seed"], requires_grad=backward)
        call = _call(op, make, sizes, backward)
        for _ in range(WARM_CALLS):
            call()
        if request["counters"]:
            _once(call)
        else:
            emit("times", calls=TIMED_CALLS, rows=_times(call, device))
            emit("ceilings", **ceilings.measure(device, (dtype,)))
    except LabError:
        raise
    except Exception as error:
        if protocol.is_fatal(error):
            protocol.leave(error)
        emit("failed", op=op.name, case=case, reason=protocol.in_a_line(error))


def _call(op: Op, make: Make, sizes: Sizes, backward: bool) -> Call:
    """A call of the op on random inputs; for the backward, of its gradient alone."""
    args = op.inputs(make, **sizes)
    if not backward:
        return lambda: op.function(*args)
    outputs = [out for out in tensors(op.function(*args)) if out.requires_grad]
    cotangents = [make.cotangent(out) for out in outputs]
    leaves = [tensor for tensor in tensors(args) if tensor.requires_grad]
    return lambda: torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True, retain_graph=True)


def _once(call: Call) -> None:
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def _times(call: Call, device: str) -> list[dict[str, Any]]:
    """A call's time by kernel, or by operator on the CPU, as torch's profiler has it; the longest first."""
    from torch.profiler import ProfilerActivity, profile

    cuda = torch.device(device).type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities, acc_events=True) as profiled:
        for _ in range(TIMED_CALLS):
            call()
        if cuda:
            torch.cuda.synchronize()
    kind = torch.autograd.DeviceType.CUDA if cuda else torch.autograd.DeviceType.CPU
    rows = []
    for event in profiled.key_averages():
        seconds = (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e6
        if event.device_type == kind and seconds > 0:
            rows.append({"name": event.key, "count": event.count / TIMED_CALLS, "seconds": seconds / TIMED_CALLS})
    return sorted(rows, key=lambda row: -row["seconds"])
