"""The project of all recipes that have tunables, and what `kernelgen tune OP --dry-run` works on for each of them."""

import functools
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelgen.tune import lab_file, space
from kernelgen.worker.tune import TuningWorker

WITHOUT_GRADIENT = ("quantize_fp8", "rms_norm_fp8", "swiglu_fp8")
RECIPES = ("elementwise", "flash_attention", "layer_norm", "linear_activation", "rms_norm", "swiglu", *WITHOUT_GRADIENT)
# Whose kernels are for compute capability 9.0 alone, and its classes.
HOPPER = "linear_fp8"
HOPPER_CLASSES = {
    "medium tiles alone": "Alone",
    "few small tiles": "Few",
    **{f"{kind} tiles": kind.capitalize() for kind in ("large", "wide", "deep", "high", "medium", "tall", "small")},
    **{f"{kind} of small tiles": kind.capitalize() for kind in ("halves", "quarters")},
}
PACKAGE = "tuned_recipes"
OPS = Path("src") / PACKAGE / "ops"
# A chip with the limits of 9.0 that runs the portable kernels.
LIKE_9_0 = "10.0"

# linear_activation's tiles of rows of W by rows of x: in clusters that multicast one operand or none, of four that
# multicast both, and whose blocks split k.
SWAPPED = (
    *((64, 32), (64, 64), (192, 112), (192, 128), (192, 144), (192, 160), (192, 192), (256, 160)),
    *((128, columns) for columns in (96, 112, 128, 144, 160, 176, 192, 224)),
)
FOURS = ((64, 96), (128, 80), (128, 96))
SPLITS = (
    ("halves beside each other", "BesideHalves", 128, 96),
    *(("paired halves", "PairedHalves", 64, columns) for columns in (64, 96, 128)),
    ("paired halves", "PairedHalves", 128, 128),
    *(("quarters", "Quarters", 64, columns) for columns in (32, 128)),
    ("paired quarters", "PairedQuarters", 64, 64),
    ("eighths", "Eighths", 64, 32),
)
LINEAR_CLASSES = {
    "large tiles": "Large",
    "wide tiles": "Wide",
    **{f"tiles of {columns} columns": f"Columns{columns}" for columns in (64, 96, 128, 160)},
    "small tiles of 96 columns": "SmallColumns96",
    "swapped tiles of 128 x 96 beside each other": "Beside128x96",
    **{f"swapped tiles of {rows} x {columns}": f"Swapped{rows}x{columns}" for rows, columns in SWAPPED},
    **{f"swapped tiles of {rows} x {columns} in fours": f"Four{rows}x{columns}" for rows, columns in FOURS},
    **{f"{parts} of tiles of {high} x {wide}": f"{name}{high}x{wide}" for parts, name, high, wide in SPLITS},
}
# Which header holds the defaults of a class of shapes, and as which struct.
STRUCTS = {
    ("elementwise", None): ("tuning.h", "Defaults"),
    ("flash_attention", "heads of 64"): ("tuning.h", "sm80::Defaults<64>"),
    ("flash_attention", "heads of 96"): ("tuning.h", "sm80::Defaults<96>"),
    ("flash_attention", "heads of 128"): ("tuning.h", "sm80::Defaults<128>"),
    **{
        ("flash_attention", f"wgmma, heads of {dims}"): ("tuning.h", f"sm90::ForwardDefaults<{dims}>")
        for dims in (64, 96, 128)
    },
    **{
        ("flash_attention", f"wgmma, wide tiles of heads of {dims}"): ("tuning.h", f"sm90::WideForwardDefaults<{dims}>")
        for dims in (64, 96)
    },
    **{
        ("flash_attention", f"wgmma, {rows}packed heads of {dims}"): ("tuning.h", f"sm90::{name}<{dims}>")
        for rows, name in (("", "PackedDefaults"), ("few rows of ", "FewRowsDefaults"))
        for dims in (64, 128)
    },
    **{
        ("flash_attention", f"wgmma, {kind}gradient of heads of {dims}"): ("tuning.h", f"sm90::{name}<{dims}>")
        for kind, name in (("", "BackwardDefaults"), ("deterministic ", "OrderedDefaults"))
        for dims in (64, 96, 128)
    },
    ("layer_norm", None): ("tuning.h", "Defaults"),
    **{
        ("linear_activation", f"wgmma, {shapes}"): ("tuning.h", f"sm90::Defaults<sm90::{name}>")
        for shapes, name in LINEAR_CLASSES.items()
    },
    ("linear_activation", "mma.sync, many tiles"): ("tuning.h", "sm80::Defaults<sm80::Large>"),
    ("linear_activation", "mma.sync, few tiles"): ("tuning.h", "sm80::Defaults<sm80::Small>"),
    ("linear_activation", "gradient"): ("tuning.h", "BackwardDefaults"),
    ("rms_norm", None): ("tuning.h", "Defaults"),
    ("swiglu", None): ("tuning.h", "Defaults"),
    **{(op, None): ("tuning.h", "Defaults") for op in WITHOUT_GRADIENT},
    **{(HOPPER, shapes): ("tuning.h", f"sm90::Defaults<sm90::{name}>") for shapes, name in HOPPER_CLASSES.items()},
}


def includes(project: Path, op: str) -> list[str]:
    rooms = filter(Path.is_dir, (project / OPS.parent / "include").iterdir())
    folders = (project / OPS / op, *rooms, project / "build" / "release" / "generated")
    return [f"-I{folder}" for folder in folders]


def directions(op: str) -> tuple[bool, ...]:
    """False for the forward, and True for the backward where there is one."""
    return (False,) if op in (*WITHOUT_GRADIENT, HOPPER) else (False, True)


class Survey:
    """What `kernelgen tune OP --dry-run` works on: the space of an op on a chip, or on the CPU, and what its gates
    leave."""

    def __init__(self, op: str, chip: str | None, backward: bool, described: dict[str, Any]) -> None:
        self.op, self.chip, self.backward, self.space = op, chip, backward, described
        tunables = {name: tuple(values) for name, values in described["tunables"].items()}
        self.points = list(space.Space(tunables).points())
        self.classes = {shape_class["shapes"]: shape_class for shape_class in described["classes"]}

    def kept(self, shapes: str | None) -> list[dict[str, Any]]:
        return [self.points[number] for number in self.classes[shapes]["kept"]]

    def estimates(self, shapes: str | None, values: dict[str, Any]) -> list[dict[str, Any]]:
        """The lab.py's estimates of a point, for bfloat16 and the first case of a class; always a list."""
        lab = importlib.import_module(f"{PACKAGE}.ops.{self.op}.lab")
        part = space.part(lab.TUNABLES, "cuda", self.chip, self.backward)
        estimates = lab.ESTIMATES[part](values, torch.bfloat16, **lab.CASES[self.classes[shapes]["cases"][0][0]])
        return estimates if isinstance(estimates, list) else [estimates]


class Surveys:
    """Those of a project. Each is made once in a run of the tests, since a large space takes seconds."""

    def __init__(self, project: Path, made_once: Callable[[str, Callable[[Path], None]], Path]) -> None:
        self._project, self._made_once = project, made_once
        self.of = functools.cache(self._of)
        # What an op's lab.py estimates, by op, part of the tunables, first point and cases: it is not told the chip,
        # and most chips share a part.
        self._estimates: dict[tuple[str, str, str], Any] = {}

    def worker(self, op: str, backward: bool = False, **more: Any) -> TuningWorker:
        """In this process, which imports the op's lab.py then."""
        request = {"project": self._project, "package": PACKAGE, "op": op, "backward": backward}
        return TuningWorker({**request, **more})

    def described(self, op: str, device: str, capability: str | None, backward: bool = False, **more: Any) -> Any:
        worker = self.worker(op, backward, **more)
        part = space.part(worker.describe(device, capability)["tunables"], device, capability, backward)

        def ask(do: str, **arguments: Any) -> dict[str, Any]:
            if do != "estimates":
                return answer(do, **arguments)
            key = op, part, json.dumps([arguments["points"][0], arguments["cases"]])
            if key not in self._estimates:
                self._estimates[key] = answer(do, **arguments)
            return self._estimates[key]

        def answer(do: str, **arguments: Any) -> dict[str, Any]:
            return json.loads(json.dumps(getattr(worker, do)(**arguments)))

        return lab_file.describe(ask, op, device, capability, backward)

    def lab(self, op: str) -> ModuleType:
        """The op's lab.py, as a worker imports it."""
        self.worker(op).describe("cuda", "9.0")
        return importlib.import_module(f"{PACKAGE}.ops.{op}.lab")

    def classes(self, op: str, capability: str) -> dict[str, set[str]]:
        """The names of the cases of each class of shapes of a forward on CUDA; the gates are not asked."""
        classes = self.worker(op).describe("cuda", capability)["classes"]
        return {part["shapes"]: {case for case, _ in part["cases"]} for part in classes}

    def _of(self, op: str, chip: str | None, backward: bool = False) -> Survey:
        self.lab(op)

        def describe(folder: Path) -> None:
            described = self.described(op, "cuda" if chip else "cpu", chip, backward)
            (folder / "space.json").write_text(json.dumps(described))

        folder = self._made_once(f"space-{op}-{chip}-{'backward' if backward else 'forward'}", describe)
        return Survey(op, chip, backward, json.loads((folder / "space.json").read_text()))
