"""What a request means on this machine: the op's search space on one chip, as far as its gates let it pass."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from kernelgen.errors import LabError
from kernelgen.lab.worker_process import WorkerProcess
from kernelgen.tune import lab_file
from kernelgen.tune.errors import TuningError
from kernelgen.tune.request import TuningRequest
from kernelgen.tune.space import Space


@dataclass(frozen=True)
class ShapeClass:
    """Shapes that are tuned together, apart from all others.

    Attributes:
        shapes: the name of the class; None for the class of all shapes.
        cases: the cases and dtypes to measure.
        kept: the numbers of the points that the gates let pass.
        rejected: by gate, how many points it rejects and some of them.
    """

    shapes: str | None
    cases: list[list[str]]
    kept: list[int]
    rejected: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """An op's search space on one chip.

    Attributes:
        chip: the key of tuned.json: a compute capability, or the CPU's name.
        gpus: the numbers of the GPUs to measure on: those like the first.
        shape_classes: all shape classes of the op's cases.
        left_out: the cases that kernels without these tunables serve, each with its dtype and the reason.
        apart: the tunables of the other direction, where forward and backward are tuned apart.
    """

    device: str
    chip: str
    gpus: list[int]
    space: Space
    shape_classes: list[ShapeClass]
    left_out: list[list[str]]
    apart: list[str]
    torch: str

    def to_search(self) -> list[ShapeClass]:
        """The shape classes in which the gates let points pass."""
        return [shape_class for shape_class in self.shape_classes if shape_class.kept]

    def as_dict(self) -> dict[str, Any]:
        facts = {"device": self.device, "chip": self.chip, "tunables": self.space.tunables, "points": self.space.size}
        classes = [{**asdict(shape_class), "kept": len(shape_class.kept)} for shape_class in self.shape_classes]
        return facts | {"classes": classes, "left_out": self.left_out}


def read_task(request: TuningRequest) -> Task:
    """Have a worker read the op's lab.py and apply the gates.

    Raises:
        LabError: the op has no tunables for the device, or its lab.py has something else than it should.
        TuningError: no point passes the gates.
    """
    with closing(_worker(request)) as worker:
        gpu = {"capability": request.chip, "alike": []}
        if request.device != "cpu" and request.chip is None:
            gpu = worker.ask("gpu")
        return _task(request, worker.ask, gpu)


def read_tasks(request: TuningRequest, chips: Sequence[str]) -> Iterator[tuple[str, Task | LabError | TuningError]]:
    """The same for several GPUs that are not here, each with its compute capability; or why it has no such task."""
    with closing(_worker(request)) as worker:
        for chip in chips:
            try:
                yield chip, _task(request, worker.ask, {"capability": chip, "alike": []})
            except (LabError, TuningError) as error:
                yield chip, error


def _worker(request: TuningRequest) -> WorkerProcess:
    return WorkerProcess(request.op, request.python, request.root, {**request.to_worker(), "work": "tune"})


def _task(request: TuningRequest, ask: lab_file.Ask, gpu: dict[str, Any]) -> Task:
    device = request.device or ("cuda" if gpu["capability"] else "cpu")
    capability = gpu["capability"] if device == "cuda" else None
    answer = lab_file.describe(ask, request.op, device, capability, request.backward)
    points = Space({name: tuple(values) for name, values in answer["tunables"].items()})
    chip = (gpu["capability"] or "no GPU") if device == "cuda" else answer["cpu"]
    shape_classes = [ShapeClass(**facts) for facts in answer["classes"]]
    left_out, apart = answer["left_out"], answer["apart"]
    task = Task(device, chip, gpu["alike"], points, shape_classes, left_out, apart, answer["torch"])
    if not task.to_search():
        reasons = "; ".join(
            f"{gate}: {rejected['count']}, such as {rejected['examples'][0]['text']}"
            for gate, rejected in shape_classes[0].rejected.items()
        )
        raise TuningError(
            f"The gates leave none of the {points.size} points of {request.op} ({reasons}); list other values in its "
            "lab.py."
        )
    return task
