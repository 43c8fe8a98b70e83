"""The recipes' own tunables: the defaults lie in the space and pass its gates, and a lab.py's estimates of a
configuration agree with the sources and with the compiler's report."""

import functools
import importlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from build_tools.tuning_header import tuning_header

from kernelgen.emulator import compiler, library
from kernelgen.errors import LabError
from kernelgen.toolchain import resources
from kernelgen.tune import gates, lab_file, space, text
from kernelgen.tune.device_limits import DEVICE_LIMITS
from kernelgen.tune.space import Space
from kernelgen.tune.task import ShapeClass, Task
from kernelgen.worker.tune import TuningWorker
from tests.conftest import with_sample
from tests.stamped.conftest import REPOSITORY, edit, stamp

# All of them on one worker: what they look at takes seconds, and is looked at again.
pytestmark = pytest.mark.slow

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
NVCC = shutil.which("nvcc") or next(map(str, Path("/usr/local").glob("cuda/bin/nvcc")), None)
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="there is no nvcc here")
needs_headers = pytest.mark.skipif(not library.has_toolkit(), reason="needs the headers of a CUDA toolkit, and g++")
# A chip with the limits of 9.0 that runs the portable kernels.
LIKE_9_0 = "10.0"

# The project that the tests of this module look at.
STAMPED: list[Path] = []
# What its ops' lab.py estimate, as JSON, by op, part of the tunables, points and cases: it is not told the chip, and
# most chips share a part.
ESTIMATES: dict[tuple[str, str, str], str] = {}
# linear_activation's tiles of rows of W by rows of x: in clusters that multicast one operand or none, of four that
# multicast both, and whose blocks split k.
SWAPPED = (
    *((64, 32), (64, 48), (192, 104), (192, 112), (192, 160), (192, 192), (256, 128), (256, 144), (256, 160)),
    *((128, columns) for columns in (112, 128, 144, 160, 176, 192, 208, 224)),
)
FOURS = ((64, 96), (128, 80), (128, 96))
SPLITS = (
    *(("Halves", rows, columns) for rows, columns in ((64, 64), (64, 96), (64, 128), (128, 96))),
    *(("Quarters", rows, columns) for rows, columns in ((64, 32), (64, 64), (64, 128), (128, 128))),
    ("Eighths", 64, 32),
)
LINEAR_CLASSES = {
    "large tiles": "Large",
    "wide tiles": "Wide",
    "tiles of 160 columns": "Columns160",
    "tiles of 96 columns": "Columns96",
    "small tiles": "Small",
    "small tiles of 96 columns": "SmallColumns96",
    "small tiles of 128 columns": "SmallColumns128",
    "tiles of 128 columns in fours": "FourColumns128",
    "small tiles of 128 columns in fours": "FourSmallColumns128",
    **{f"swapped tiles of {rows} x {columns}": f"Swapped{rows}x{columns}" for rows, columns in SWAPPED},
    **{f"swapped tiles of {rows} x {columns} in fours": f"Four{rows}x{columns}" for rows, columns in FOURS},
    **{f"{parts.lower()} of tiles of {high} x {wide}": f"{parts}{high}x{wide}" for parts, high, wide in SPLITS},
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


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Iterator[Path]:
    """All recipes with tunables, and their generated headers. Nothing is built, but they can be imported."""
    ops = [{"name": recipe, "recipe": recipe} for recipe in sorted({*RECIPES, HOPPER})]
    project = stamp(tmp_path_factory.mktemp("recipes") / "project", project_name="tuned-recipes", ops=ops)
    environment = {**os.environ, "USE_CUDA": "0"}
    subprocess.run([sys.executable, "-m", "build_tools", "configure"], cwd=project, env=environment, check=True)
    sys.path.insert(0, str(project / "src"))
    STAMPED.append(project)
    yield project
    STAMPED.clear()
    ESTIMATES.clear()
    sys.path.remove(str(project / "src"))


def described(op: str, device: str, capability: str | None, backward: bool = False, **more: Any) -> dict[str, Any]:
    """An op's space, by a worker in this process."""
    worker = TuningWorker({"project": STAMPED[0], "package": PACKAGE, "op": op, "backward": backward, **more})

    def answer(do: str, **arguments: Any) -> str:
        return json.dumps(getattr(worker, do)(**arguments))

    tunables = json.loads(answer("describe", device=device, capability=capability))["tunables"]
    part = space.part(tunables, device, capability, backward)

    def ask(do: str, **arguments: Any) -> dict[str, Any]:
        if do != "estimates":
            return json.loads(answer(do, **arguments))
        key = op, part, json.dumps([arguments["points"], arguments["cases"]])
        if key not in ESTIMATES:
            ESTIMATES[key] = answer(do, **arguments)
        return json.loads(ESTIMATES[key])

    return lab_file.describe(ask, op, device, capability, backward)


@dataclass
class Survey:
    """What `kernelgen tune OP --dry-run` works on."""

    op: str
    chip: str | None
    backward: bool = False

    def __post_init__(self) -> None:
        self.space = described(self.op, "cuda" if self.chip else "cpu", self.chip, self.backward)
        self.points = list(
            space.Space({name: tuple(values) for name, values in self.space["tunables"].items()}).points()
        )
        self.classes = {shape_class["shapes"]: shape_class for shape_class in self.space["classes"]}

    def kept(self, shapes: str | None) -> list[dict[str, Any]]:
        return [self.points[number] for number in self.classes[shapes]["kept"]]

    def estimates(self, shapes: str | None, values: dict[str, Any]) -> list[dict[str, Any]]:
        """The lab.py's estimates of a point, for bfloat16 and the first case of a class; always a list."""
        lab = importlib.import_module(f"{PACKAGE}.ops.{self.op}.lab")
        part = space.part(lab.TUNABLES, "cuda", self.chip, self.backward)
        estimates = lab.ESTIMATES[part](values, torch.bfloat16, **lab.CASES[self.classes[shapes]["cases"][0][0]])
        return estimates if isinstance(estimates, list) else [estimates]


@functools.cache
def survey_of(op: str, chip: str | None, backward: bool = False) -> Survey:
    """A survey that several tests look at: a large space takes seconds."""
    return Survey(op, chip, backward)


def includes(project: Path, op: str) -> list[str]:
    rooms = filter(Path.is_dir, (project / OPS.parent / "include").iterdir())
    folders = (project / OPS / op, *rooms, project / "build" / "release" / "generated")
    return [f"-I{folder}" for folder in folders]


def directions(op: str) -> tuple[bool, ...]:
    """False for the forward, and True for the backward where there is one."""
    return (False,) if op in (*WITHOUT_GRADIENT, HOPPER) else (False, True)


@pytest.mark.parametrize(
    "op, backward, chip",
    [
        (HOPPER, False, "9.0"),
        *((op, backward, chip) for op in RECIPES for backward in directions(op) for chip in ("9.0", LIKE_9_0)),
    ],
)
def test_the_defaults_lie_in_the_space_and_pass_its_gates(project, tmp_path, op, backward, chip):
    """On the GPU that they were chosen on, by either way. The values are those that a compiler sees."""
    survey = survey_of(op, chip, backward)
    names, classes = list(survey.space["tunables"]), list(survey.classes)
    lines = [f'#include "{header}"\n' for header in sorted({STRUCTS[op, shapes][0] for shapes in classes})]
    lines += ["#include <cstdio>\n", f"using namespace {op}_kernel;\nint main() {{\n"]
    for shapes in classes:
        lines += [f'  std::printf("%d ", int({STRUCTS[op, shapes][1]}::{name}));\n' for name in names]
        lines.append('  std::puts("");\n')
    (tmp_path / "main.cpp").write_text("".join(lines) + "}\n")
    command = ["c++", "-std=c++17", *includes(project, op), "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    printed = subprocess.check_output(tmp_path / "main", text=True).splitlines()
    for shapes, values in zip(classes, printed, strict=True):
        assert dict(zip(names, map(int, values.split()), strict=True)) in survey.kept(shapes), shapes


@pytest.mark.parametrize("op", RECIPES)
def test_the_gates_leave_something_on_every_chip(project, op):
    for chip in ("8.0", "8.9", "9.0", "10.0", "12.0"):
        for backward in directions(op):
            empty = [
                shapes
                for shapes, shape_class in survey_of(op, chip, backward).classes.items()
                if not shape_class["kept"]
            ]
            # The gradient of keys for heads of 96 and 128 takes more shared memory than GPUs for graphics have.
            graphics = (op, chip, backward) in {("flash_attention", chip, True) for chip in ("8.9", "12.0")}
            assert empty == (["heads of 128", "heads of 96"] if graphics else [])


def test_flash_attentions_space_is_large_and_the_gates_rule_much_of_it_out(project):
    forward, backward = (survey_of("flash_attention", LIKE_9_0, backward) for backward in (False, True))
    assert {name.split("_")[0] for name in backward.space["tunables"]} == {"keys", "queries"}
    assert {"forward_keys", "min_keys_per_split"} < set(forward.space["tunables"])
    for survey in (forward, backward):
        assert len(survey.space["tunables"]) + len(forward.space["apart"]) >= 9
        assert len(survey.points) >= 2500
        for shapes, shape_class in survey.classes.items():
            # Fewer numbers of warps divide 96 dimensions into pieces of 16.
            least = 50 if shapes == "heads of 96" else 100
            assert least <= len(shape_class["kept"]) <= 0.7 * len(survey.points)
            assert {"shared memory", "registers"} <= set(shape_class["rejected"])


def test_on_hopper_flash_attentions_own_kernels_for_it_are_tuned(project):
    forward, backward = (survey_of("flash_attention", "9.0", backward) for backward in (False, True))
    assert {"consumers", "keys", "rescale_at"} < set(forward.space["tunables"])
    assert {"query_stages", "values_first"} < set(backward.space["tunables"])
    for survey in (forward, backward):
        assert all(name.startswith("wgmma") for name in survey.classes)
        for shape_class in survey.classes.values():
            assert 10 <= len(shape_class["kept"]) <= 0.7 * len(survey.points)
            assert "shared memory" in shape_class["rejected"]
    # A step of 160 keys takes more registers than one of three consumers has; derivatives beside products, too.
    wide = {(values["consumers"], values["keys"]) for values in forward.kept("wgmma, wide tiles of heads of 64")}
    assert {(3, 128), (2, 192)} < wide
    assert (3, 160) not in wide
    assert not any(values["values_first"] for values in backward.kept("wgmma, gradient of heads of 64"))


def test_what_hopper_leaves_to_the_portable_kernels_is_not_tuned_as_its_own(project):
    forward, backward = (survey_of("flash_attention", "9.0", backward) for backward in (False, True))
    cases = set(importlib.import_module(f"{PACKAGE}.ops.flash_attention.lab").CASES)
    tuned = [
        {case for shape_class in survey.classes.values() for case, _ in shape_class["cases"]}
        for survey in (forward, backward)
    ]
    wide = {f"4096 x {name}{mask}" for name in ("192/128", "192", "256") for mask in ("", " causal")}
    wide.add("one query, 32768 keys x 256")
    decoded = {"one query, 4096 keys", "one query, 32768 keys", "one query, 4096 keys, sinks"}
    assert cases - tuned[0] == {*decoded, *wide}
    assert cases - tuned[1] == wide
    with pytest.raises(LabError, match=r"for cuda 9\.0 serves none of these cases: one query, 4096 keys"):
        described("flash_attention", "cuda", "9.0", cases=["one query, 4096 keys"])


# Rows, columns, and which kernels without tunables take them: forward and backward, in bfloat16 and in float32.
NORMS_WITHOUT_TUNABLES = [
    (131072, 128, {"short rows": [False], "few rows": []}, {"short rows": [False], "few rows": []}),
    (131072, 512, {"short rows": [False], "few rows": []}, {"short rows": [], "few rows": []}),
    (131072, 127, {"not aligned": [False, True]}, {"not aligned": []}),
    (4096, 4099, {"not aligned": [], "short rows": [], "few rows": []}, {"not aligned": [], "few rows": []}),
    (256, 4096, {"few rows": [True], "short rows": []}, {"few rows": [True], "short rows": []}),
    (8, 2**20, {"few rows": [True]}, {"few rows": []}),
]


def lab_of(op: str) -> ModuleType:
    survey_of(op, "9.0")  # By which a worker imports it.
    return importlib.import_module(f"{PACKAGE}.ops.{op}.lab")


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize("rows, columns, half, single", NORMS_WITHOUT_TUNABLES)
def test_cases_of_norms_whose_kernels_have_no_tunables_are_named(project, op, rows, columns, half, single):
    lab = lab_of(op)
    for dtype, kernels in ((torch.bfloat16, half), (torch.float32, single)):
        for backward in (False, True):
            untuned = lab.UNTUNED["cuda backward" if backward else "cuda"]
            reason = untuned(dtype, rows=rows, columns=columns, weighted=1, added=0)
            assert [name for name in kernels if name in (reason or "")] == [
                name for name, directions in kernels.items() if backward in directions
            ]


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_the_limits_of_those_kernels_are_those_of_the_sources(project, op):
    lab = lab_of(op)
    headers = project / OPS.parent / "include" / "cuda"
    source = "".join((headers / name).read_text() for name in ("row_matrix.h", "flat_rows.cuh", "few_rows.h"))

    def constant(name: str) -> int:
        (value,) = re.findall(rf"{name} = ([\d *]+)[;,]", source)
        return math.prod(map(int, value.split("*")))

    assert constant("kMostShortBytes") == lab._MOST_SHORT_BYTES
    assert constant("kFlatThreads") * constant("kFlatAccesses") == lab._MOST_FLAT
    assert 132 * constant("kRows") == lab._FEW_ROWS
    assert 132 * constant("kBytes") == lab._FEW_BYTES
    assert constant("kLeastWideBytes") == lab._LEAST_WIDE_BYTES


def test_a_task_names_what_it_leaves_out(project):
    facts = described("rms_norm", "cuda", "9.0", backward=True)
    reasons = lab_file.by_reason(facts["left_out"])
    assert reasons == {"the kernels of few rows have no tunables": ["256 tokens", "one token"]}
    assert {dtype for _, dtype, _ in facts["left_out"]} == {"float32", "bfloat16"}
    measured = {case for shape_class in facts["classes"] for case, _ in shape_class["cases"]}
    assert "heads of 128" in measured
    assert not measured & {"256 tokens", "one token"}
    tuned = ShapeClass(None, [["heads of 128", "float32"]], [0], {})
    searched = Space({name: tuple(values) for name, values in facts["tunables"].items()})
    task = Task("cuda", "9.0", [], searched, [tuned], facts["left_out"], [], facts["torch"])
    lines = text.of_task(SimpleNamespace(op="rms_norm"), task).splitlines()
    assert lines[-1] == "left out: 256 tokens, one token: the kernels of few rows have no tunables."
    assert task.as_dict()["left_out"] == facts["left_out"]
    message = r"rms_norm has as tunables for cuda serves none of these cases: heads of 128: the kernel of short rows"
    with pytest.raises(LabError, match=message):
        described("rms_norm", "cuda", "9.0", cases=["heads of 128"])


def test_the_portable_kernels_are_tuned_on_hopper_where_they_are_asked_for(project):
    code = (
        "import sys; from kernelgen.worker.tune import TuningWorker; op, backward = sys.argv[1:]; "
        f"request = {{'project': '.', 'package': '{PACKAGE}', 'op': op, 'backward': bool(backward)}}; "
        "worker = TuningWorker(request); "
        "from kernelgen.tune import lab_file; ask = lambda do, **arguments: getattr(worker, do)(**arguments); "
        "print(*lab_file.describe(ask, op, 'cuda', '9.0', bool(backward))['tunables'])"
    )
    for op, backward in (("flash_attention", ""), ("flash_attention", "backward"), ("linear_activation", "")):
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), f"{PACKAGE}_{op}_PATH".upper(): "sm80"}
        tunables = subprocess.check_output(
            [sys.executable, "-c", code, op, backward], cwd=project, env=environment, text=True
        )
        assert tunables.split() == list(survey_of(op, LIKE_9_0, bool(backward)).space["tunables"])


# Prints the class of a forward: queries, keys, heads of keys, heads that share one, batch, dimensions / 8, causal.
ATTENTION_CLASS = """
#include <cstdio>

#include "forward_choice.h"

using namespace flash_attention_kernel;

template <int D>
void print(int queries, int keys, int kv_heads, int shared, int batch, int dims8, int causal) {
  Forward p{};
  p.batch = batch, p.heads = kv_heads * shared, p.kv_heads = kv_heads, p.dim = 8 * dims8;
  p.q.head = p.dim, p.q.row = p.heads * p.dim;
  p.mask = {queries, keys, 1 << 29, causal ? 0 : 1 << 29};
  const ForwardChoice choice = choose_forward<D>(p, 132, true, false);
  constexpr int kWidth = kTileWidth<D>;
  std::string_view shapes = sm90::ForwardDefaults<D>::shapes;
  if constexpr (D < 128) {
    if (sm90::prefers_wide_tile<D>(p.mask)) shapes = sm90::WideForwardDefaults<D>::shapes;
  } else {
    if (sm90::prefers_long_tile(p.mask)) shapes = "None";
  }
  if (choice.kernel == ForwardKernel::kDecode) shapes = "None";
  if (choice.kernel == ForwardKernel::kPacked) {
    const bool few = sm90::has_few_rows(choice.packed_heads, p.mask, p.score);
    shapes = few ? sm90::FewRowsDefaults<kWidth>::shapes : sm90::PackedDefaults<kWidth>::shapes;
    if (few && D == 64 && sm90::is_short(p.mask)) shapes = "None";
  }
  std::puts(shapes.data());
}
"""
ATTENTIONS = [
    *((1, 4096, 32, 1, 4, 16, 0), (8, 4096, 1, 1, 1, 8, 0), (9, 4096, 1, 1, 1, 8, 0), (2, 4096, 4, 8, 16, 16, 0)),
    *((16, 4096, 32, 1, 4, 16, 1), (70, 3000, 2, 5, 1, 16, 1), (70, 300, 2, 5, 1, 8, 0), (333, 333, 8, 4, 1, 16, 1)),
    *((256, 4096, 32, 1, 1, 16, 0), (300, 131072, 4, 7, 2, 8, 1), (40, 20, 1, 200, 1, 8, 1), (17, 129, 3, 1, 40, 8, 0)),
    *((33, 33, 16, 1, 128, 8, 1), (50, 65, 12, 1, 16, 8, 0), (60, 64, 4, 4, 30, 16, 1)),
    *((512, 512, 21, 1, 32, 12, 0), (2048, 2048, 25, 1, 8, 10, 0), (2048, 2048, 21, 1, 8, 12, 1)),
    *((16, 8192, 8, 4, 1, 12, 1), (100, 8192, 7, 1, 1, 11, 0), (1000, 1000, 4, 1, 1, 9, 1)),
]


@needs_headers
def test_the_class_of_an_attention_is_that_of_the_kernel_it_takes(project, tmp_path):
    lab = importlib.import_module(f"{PACKAGE}.ops.flash_attention.lab")
    names = ("queries", "keys", "kv_heads", "shared", "batch", "dims8", "causal")
    sizes = [
        *(dict(zip(names, values, strict=True)) for values in ATTENTIONS),
        *(case for case in lab.CASES.values() if case["dims8"] <= 16),
    ]
    calls = "".join(
        f"  print<{next(dims for dims in (64, 96, 128) if 8 * case['dims8'] <= dims)}>"
        f"({', '.join(str(case[name]) for name in names)});\n"
        for case in sizes
    )
    (tmp_path / "main.cpp").write_text(f"{ATTENTION_CLASS}int main() {{\n{calls}}}\n")
    folders = [*includes(project, "flash_attention"), f"-I{compiler.find().headers}"]
    subprocess.run(["c++", "-std=c++17", *folders, "main.cpp", "-o", "main"], cwd=tmp_path, check=True)
    printed = subprocess.check_output(tmp_path / "main", text=True).splitlines()
    assert printed == [str(lab.SHAPE_CLASSES["cuda 9.0"](**case)) for case in sizes]
    forward = {shapes for op, shapes in STRUCTS if op == "flash_attention" and shapes.startswith("wgmma")}
    assert set(printed) == {"None", *(shapes for shapes in forward if "gradient" not in shapes)}


@pytest.mark.parametrize("op", [recipe for recipe in RECIPES if recipe != "flash_attention"])
def test_on_the_cpu_the_grain_is_tuned(project, op):
    survey = survey_of(op, None)
    assert "grain" in survey.space["tunables"]
    assert survey.classes[None]["rejected"] == {}


def test_the_class_of_a_product_is_that_of_the_tile_it_takes(project, tmp_path, monkeypatch):
    lab = lab_of("linear_activation")
    rows = (1, 65, 128, 256, 384, 400, 448, 512, 560, 600, 700, 1024, 2048, 8192)
    columns = (520, 1024, 1536, 1856, 2048, 4096, 6144, 11008, 14336)
    sizes = [(m, n, k) for m in rows for n in columns for k in (512, 1000, 4096, 4104, 8192)]
    (tmp_path / "main.cpp").write_text(
        '#include <cstdio>\n#include "sm90/tile_choice.h"\nusing namespace linear_activation_kernel;\n'
        "const auto print = [](auto tile) {\n"
        "  std::puts(sm90::Defaults<typename decltype(tile)::type>::shapes.data());\n};\n"
        "const sm90::Gpu gpu{132, 30, 15};\n"
        "int main() {\n" + "".join(f"  sm90::visit_class({m}, {n}, {k}, gpu, print);\n" for m, n, k in sizes) + "}\n"
    )
    command = ["c++", "-std=c++17", *includes(project, "linear_activation"), "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    taken = subprocess.check_output(tmp_path / "main", text=True).splitlines()
    assert taken == [lab.SHAPE_CLASSES["cuda 9.0"](m=m, n=n, k=k) for m, n, k in sizes]
    kinds = {name for op, name in STRUCTS if op == "linear_activation" and name.startswith("wgmma")}
    assert set(taken) == kinds
    monkeypatch.syspath_prepend(project / "tests")
    if not hasattr(sys.modules[PACKAGE], "__file__"):  # A worker that judges has put a stand-in in its place.
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            monkeypatch.delitem(sys.modules, name)
    suite = importlib.import_module(f"{PACKAGE}.ops.linear_activation.test_linear_activation").TestLinearActivation
    suite_classes = {lab.SHAPE_CLASSES["cuda 9.0"](m=m, n=n, k=k) for m, n, k in suite.SIZES["sm90"]}
    assert suite_classes - {None} == kinds  # None: short rows, which are padded where the path is forced.
    cases = {
        name: {case for case, _ in shape_class["cases"]}
        for name, shape_class in survey_of("linear_activation", "9.0").classes.items()
    }
    assert set(cases) == set(taken)  # There is something to tune each by.
    assert cases["wgmma, swapped tiles of 64 x 32"] == {"16 tokens"}
    # TMA takes rows that are not whole 16 bytes from a padded copy, and short ones are not copied.
    assert "odd sizes" in cases[lab.SHAPE_CLASSES["cuda 9.0"](m=4099, n=2049, k=1024)]
    assert lab.SHAPE_CLASSES["cuda 9.0"](m=4099, n=2049, k=63) is None
    assert set(survey_of("linear_activation", "8.0").classes) == {"mma.sync, many tiles", "mma.sync, few tiles"}


def test_the_class_of_a_product_of_8_bits_is_that_of_the_tile_it_takes(project, tmp_path):
    lab = importlib.import_module(f"{PACKAGE}.ops.{HOPPER}.lab")
    rows, columns = (1, 16, 65, 256, 512, 2048, 8192), (32, 64, 256, 512, 896)
    sizes = [(m, n16, k16, kind) for m in rows for n16 in columns for k16 in (32, 256, 512) for kind in (1, 2)]
    visits = [
        f"  sm90::visit_class<{str(not lab.KINDS[kind][2]).lower()}>({m}, {16 * n16}, {16 * k16}, 132, print);\n"
        for m, n16, k16, kind in sizes
    ]
    (tmp_path / "main.cpp").write_text(
        f'#include <cstdio>\n#include "sm90/tile_choice.h"\nusing namespace {HOPPER}_kernel;\n'
        "const auto print = [](auto tile) {\n"
        "  std::puts(sm90::Defaults<typename decltype(tile)::type>::shapes.data());\n};\n"
        "int main() {\n" + "".join(visits) + "}\n"
    )
    command = ["c++", "-std=c++17", *includes(project, HOPPER), "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    taken = subprocess.check_output(tmp_path / "main", text=True).splitlines()
    assert taken == [lab.SHAPE_CLASSES["cuda 9.0"](m=m, n16=n, k16=k, kind=kind) for m, n, k, kind in sizes]
    assert set(taken) == set(HOPPER_CLASSES)


@pytest.mark.slow
@needs_nvcc
def test_a_dry_run_for_a_gpu_that_is_not_here_shows_the_space_and_what_a_candidate_costs(project):
    # Two of four dtypes: every object takes seconds, and the program compiles all of them twice.
    types = "T = float32, float64, float16, bfloat16"
    edit(project / OPS / "swiglu" / "kernel.cu", (types, "T = float32, bfloat16"))
    command = [sys.executable, "-m", "kernelgen", "tune", "swiglu", "--dry-run", "--chip", "9.0"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "VIRTUAL_ENV": sys.prefix}
    result = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "compiling swiglu for compute capability 9.0, once as it is" in result.stderr
    assert "swiglu on 9.0: 20 points\n" in result.stdout
    assert "1 rejected by registers, such as swiglu_forward: " in result.stdout
    assert re.search(r"19 trials, each \d+\.\d s to compile .* and no GPU here to measure on", result.stdout)
    result = subprocess.run([*command, "--json"], cwd=project, env=environment, capture_output=True, check=True)
    plan = json.loads(result.stdout)
    assert [len(plan["tunables"]), plan["points"], plan["classes"][0]["kept"]] == [2, 20, 19]
    assert plan["cost"]["measuring_s"] is None
    # The candidates are compiled for that chip alone.
    (reports,) = {path.parent for path in project.glob("build/tune/swiglu-cuda/swiglu/*.txt")}
    assert {path.name.split(".")[-3] for path in reports.iterdir() if path.suffix == ".txt"} == {"90"}


# ---- What the sources and the compiler give -----------------------------------------------------------------------

# By op, class of shapes and direction: a source that its kernels are compiled in, with one of its instances, and, by a
# part of an estimate's `kernel`, what C++ calls its shared memory, for the struct of values {0}.
COMPILED_IN: dict[tuple[str, str | None, bool], tuple[str, dict[str, str]]] = {
    ("flash_attention", "heads of 64", False): (
        "sm80/forward.cu T=float16 D=64",
        {"forward": "sm80::fwd::Block<float16, 64, 64, {0}>::kSharedBytes"},
    ),
    ("flash_attention", "heads of 128", False): (
        "sm80/forward.cu T=float16 D=128",
        {"forward": "sm80::fwd::Block<float16, 128, 128, {0}>::kSharedBytes"},
    ),
    ("flash_attention", "heads of 64", True): (
        "sm80/backward_keys.cu T=float16 D=64",
        {"backward_keys": "sm80::kKeysSharedBytes<{0}, 64, 64>"},
    ),
    ("flash_attention", "heads of 128", True): (
        "sm80/backward_queries.cu T=float16 D=128",
        {"backward_queries": "sm80::bwd_queries::Block<float16, 128, 128, {0}>::kSharedBytes"},
    ),
    ("flash_attention", "wgmma, heads of 64", False): (
        "sm90/forward.cu T=float16 D=64",
        {"ForwardDefaults<64>": "sm90::fwd::KernelTraits<sm90::ForwardTile<64, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, wide tiles of heads of 64", False): (
        "sm90/forward.cu T=float16 D=64",
        {"WideForwardDefaults<64>": "sm90::fwd::KernelTraits<sm90::ForwardTile<64, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, wide tiles of heads of 96", False): (
        "sm90/forward.cu T=float16 D=96",
        {"WideForwardDefaults<96>": "sm90::fwd::KernelTraits<sm90::ForwardTile<96, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, heads of 128", False): (
        "sm90/forward.cu T=float16 D=128",
        {"ForwardDefaults<128>": "sm90::fwd::KernelTraits<sm90::ForwardTile<128, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, packed heads of 64", False): (
        "sm90/packed.cu T=float16 D=64",
        {"PackedDefaults<64>": "sm90::fwd::KernelTraits<sm90::PackedTile<64, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, few rows of packed heads of 128", False): (
        "sm90/packed.cu T=float16 D=128",
        {"FewRowsDefaults<128>": "sm90::fwd::KernelTraits<sm90::PackedTile<128, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, gradient of heads of 64", True): (
        "sm90/backward.cu T=float16 D=64 KIND=kOrdinary",
        {"BackwardDefaults<64>": "sm90::bwd::KernelTraits<sm90::BackwardTile<64, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, gradient of heads of 128", True): (
        "sm90/backward.cu T=float16 D=128 KIND=kOrdinary",
        {"BackwardDefaults<128>": "sm90::bwd::KernelTraits<sm90::BackwardTile<128, {0}>>::kBytes + 1024"},
    ),
    ("flash_attention", "wgmma, deterministic gradient of heads of 128", True): (
        "sm90/backward.cu T=float16 D=128 KIND=kOrdered",
        {"OrderedDefaults<128>": "sm90::bwd::KernelTraits<sm90::OrderedTile<128, {0}>>::kBytes + 1024"},
    ),
    ("linear_activation", "wgmma, large tiles", False): (
        "sm90/forward.cu T=float16 GROUP=LARGE",
        {"::Large>": "sm90::KernelTraits<sm90::Tile<{0}>>::kBytes + 1024"},
    ),
    ("linear_activation", "wgmma, swapped tiles of 192 x 104", False): (
        "sm90/forward.cu T=float16 GROUP=BESIDE",
        {"::Swapped192x104>": "sm90::KernelTraits<sm90::Tile<{0}>>::kBytes + 1024"},
    ),
    ("linear_activation", "wgmma, halves of tiles of 64 x 64", False): (
        "sm90/forward.cu T=float16 GROUP=HALVES",
        {"::Halves64x64>": "sm90::KernelTraits<sm90::Tile<{0}>>::kBytes + 1024"},
    ),
    ("linear_activation", "gradient", True): ("backward.cu T=float16", {}),
    ("rms_norm", None, False): ("forward.cu T=bfloat16 ROWS=kAligned", {}),
    ("rms_norm", None, True): (
        "backward.cu T=bfloat16 ROWS=kAligned",
        {"LaneGroup": "(RowPipeline<float16, 8, {0}::backward_accesses, {0}::backward_stages>::bytes(128, 2))"},
    ),
    ("swiglu", None, False): ("kernel.cu T=float32", {}),
    ("swiglu", None, True): ("kernel.cu T=bfloat16", {}),
}


# Both directions, and both generations.
SAMPLE = {("flash_attention", "heads of 128", True), ("flash_attention", "wgmma, heads of 64", False)}
# Classes that a GPU of compute capability 9.0 serves only where it is told to.
PORTABLE = {("flash_attention", "heads of 64"), ("flash_attention", "heads of 128")}


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize(
    "kind", with_sample(COMPILED_IN, SAMPLE), ids=lambda kind: f"{kind[0]} {kind[1] or ''}{' backward' * kind[2]}"
)
def test_corners_of_the_space_compile_to_what_is_estimated(project, tmp_path, monkeypatch, kind):
    """Of the points that pass: the one with the least and the one with the most shared memory, then registers."""
    op, shapes, backward = kind
    monkeypatch.chdir(project)
    survey = survey_of(op, LIKE_9_0 if (op, shapes) in PORTABLE else "9.0", backward)

    def size(values: dict[str, Any]) -> tuple[int, ...]:
        estimates = survey.estimates(shapes, values)
        return tuple(max(estimate.get(key, 0) for estimate in estimates) for key in ("shared", "registers"))

    for values in (min(survey.kept(shapes), key=size), max(survey.kept(shapes), key=size)):
        estimates = survey.estimates(shapes, values)
        kernels = compiled(project, tmp_path, kind, values, estimates)
        for estimate in estimates:
            own_kernels = [kernel for kernel in kernels if re.search(estimate["kernel"], kernel.name)]
            # An estimate is the fewest registers that the largest instantiation needs.
            if own_kernels and "registers" in estimate:
                assert max(kernel.registers for kernel in own_kernels) >= estimate["registers"], (
                    values,
                    estimate,
                    own_kernels,
                )
        spilled = sum(kernel.spill_stores + kernel.spill_loads for kernel in kernels)
        rejection = gates.judge_compiled(
            [kernel.as_dict() for kernel in kernels], estimates, spilled, DEVICE_LIMITS["9.0"]
        )
        assert rejection is None, values


def compiled(
    project: Path,
    folder: Path,
    kind: tuple[str, str | None, bool],
    values: dict[str, Any],
    estimates: list[dict[str, Any]],
) -> list[resources.Kernel]:
    """One source compiled with these values, in which shared memory is asserted to be as estimated."""
    op, shapes, _ = kind
    (source, *instance), shared_bytes = COMPILED_IN[kind][0].split(), COMPILED_IN[kind][1]
    header = folder / "tuned" / "cuda" / f"{op}.h"
    header.parent.mkdir(parents=True, exist_ok=True)
    entry = {"shapes": {shapes: values}} if shapes else {"values": values}
    header.write_text(tuning_header(op, {"": entry}))
    struct = f"tuned::{op}::Values0<{STRUCTS[op, shapes][1]}>"
    shared = [
        f"static_assert({shared_bytes[part].format(struct)} == {estimate['shared']});"
        for part in shared_bytes
        for estimate in estimates
        if part in estimate["kernel"] and "shared" in estimate
    ]
    assert len(shared) == len(shared_bytes)
    lines = [f'#include "{project / OPS / op / source}"', f"using namespace {op}_kernel;", *shared]
    (folder / "asserting.cu").write_text("\n".join(lines) + "\n")
    command = [NVCC, "-std=c++17", "--expt-relaxed-constexpr", "-gencode=arch=compute_90a,code=sm_90a", "-Xptxas=-v"]
    command += [f"-DINSTANCE_{value}" for value in instance]
    command += [f"-I{folder}", *includes(project, op), "-cubin", "asserting.cu", "-o", "asserting.cubin"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{values}: {result.stderr[-2000:]}"
    return resources.demangled(resources.parse(source, result.stderr))
