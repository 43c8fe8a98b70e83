"""The devices that a tuning measures on: the CPU, or GPUs of one kind, with a measuring slot on each."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kernelgen.errors import LabError
from kernelgen.tune.request import TuningRequest
from kernelgen.tune.slot import MeasuringSlot
from kernelgen.tune.task import Task


@contextmanager
def measuring_slots(request: TuningRequest, task: Task, cases: list[list[str]]) -> Iterator[list[MeasuringSlot]]:
    """A slot on each device, with its workers started. At the end the workers are killed.

    Raises:
        LabError: there are fewer GPUs than were asked for.
    """
    to_worker = request.to_worker(task.device)
    slots = []
    for number, variables in visible_devices(request, task):
        with_device = {**to_worker, "environment": to_worker["environment"] | variables}
        slots.append(MeasuringSlot(request.python, request.root, with_device, request.limit_s, request.seed + number))
    warm_up = cases if task.device == "cuda" else []  # On the CPU a warm-up would take cores from the compilers.
    with ExitStack() as stack:
        for slot in slots:
            stack.callback(slot.kill)
            slot.begin(warm_up, request.budget.proofs)
        yield slots


def visible_devices(request: TuningRequest, task: Task) -> list[tuple[int, dict[str, str]]]:
    """The number of each device, and the environment variables with which a process sees that one alone.

    Raises:
        LabError: there are fewer GPUs than were asked for.
    """
    if task.device == "cpu":
        return [(0, {})]
    count = request.gpus or len(task.gpus)
    if count > len(task.gpus):
        raise LabError(f"{request.op} cannot be tuned on {count} GPUs: torch sees {len(task.gpus)} of one kind here.")
    # torch counts the GPUs that this process may see; the variable names them as the driver does.
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    names = {number: visible[number] if visible else str(number) for number in task.gpus[:count]}
    return [(number, {"CUDA_VISIBLE_DEVICES": name}) for number, name in names.items()]
