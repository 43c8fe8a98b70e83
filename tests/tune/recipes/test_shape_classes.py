"""Which kernel a case takes: the classes of shapes of a lab.py are those by which the sources choose."""

import importlib
import math
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from kernelgen.emulator import compiler, library
from kernelgen.errors import LabError
from kernelgen.tune import lab_file, text
from kernelgen.tune.space import Space
from kernelgen.tune.task import ShapeClass, Task

from .survey import HOPPER, HOPPER_CLASSES, OPS, PACKAGE, STRUCTS, includes

# Whole files on one worker: what their tests look at takes seconds, and is looked at again.
pytestmark = pytest.mark.slow

needs_headers = pytest.mark.skipif(not library.has_toolkit(), reason="needs the headers of a CUDA toolkit, and g++")

# Rows, columns, and which kernels without tunables take them: forward and backward, in bfloat16 and in float32.
NORMS_WITHOUT_TUNABLES = [
    (131072, 128, {"short rows": [False], "few rows": []}, {"short rows": [False], "few rows": []}),
    (131072, 512, {"short rows": [False], "few rows": []}, {"short rows": [], "few rows": []}),
    (131072, 127, {"not aligned": [False, True]}, {"not aligned": []}),
    (4096, 4099, {"not aligned": [], "short rows": [], "few rows": []}, {"not aligned": [], "few rows": []}),
    (256, 4096, {"few rows": [True], "short rows": []}, {"few rows": [True], "short rows": []}),
    (8, 2**20, {"few rows": [True]}, {"few rows": []}),
]


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize("rows, columns, half, single", NORMS_WITHOUT_TUNABLES)
def test_cases_of_norms_whose_kernels_have_no_tunables_are_named(surveys, op, rows, columns, half, single):
    lab = surveys.lab(op)
    for dtype, kernels in ((torch.bfloat16, half), (torch.float32, single)):
        for backward in (False, True):
            untuned = lab.UNTUNED["cuda backward" if backward else "cuda"]
            reason = untuned(dtype, rows=rows, columns=columns, weighted=1, added=0)
            assert [name for name in kernels if name in (reason or "")] == [
                name for name, directions in kernels.items() if backward in directions
            ]


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_the_limits_of_those_kernels_are_those_of_the_sources(project, surveys, op):
    lab = surveys.lab(op)
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


def test_a_task_names_what_it_leaves_out(surveys):
    facts = surveys.described("rms_norm", "cuda", "9.0", backward=True)
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
        surveys.described("rms_norm", "cuda", "9.0", cases=["heads of 128"])


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
  const ForwardChoice choice = choose_forward<D>(p, {132, 1693}, true, false);
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
def test_the_class_of_an_attention_is_that_of_the_kernel_it_takes(project, surveys, tmp_path):
    lab = surveys.lab("flash_attention")
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


def test_the_class_of_a_product_is_that_of_the_tile_it_takes(project, surveys, tmp_path, monkeypatch):
    lab = surveys.lab("linear_activation")
    rows = (1, 65, 128, 256, 384, 400, 448, 512, 560, 600, 700, 1024, 2048, 8192)
    columns = (520, 1024, 1536, 1856, 2048, 4096, 6144, 11008, 14336)
    sizes = [(m, n, k) for m in rows for n in columns for k in (512, 1000, 4096, 4104, 8192)]
    (tmp_path / "main.cpp").write_text(
        '#include <cstdio>\n#include "sm90/tile_choice.h"\nusing namespace linear_activation_kernel;\n'
        "const auto print = [](auto tile) {\n"
        "  std::puts(sm90::Defaults<typename decltype(tile)::type>::shapes.data());\n};\n"
        "const sm90::Gpu gpu{132, 30, 15, 1693};\n"
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
    cases = surveys.classes("linear_activation", "9.0")
    assert set(cases) == set(taken)  # There is something to tune each by.
    assert cases["wgmma, swapped tiles of 64 x 32"] == {"16 tokens"}
    # TMA takes rows that are not whole 16 bytes from a padded copy, and short ones are not copied.
    assert "odd sizes" in cases[lab.SHAPE_CLASSES["cuda 9.0"](m=4099, n=2049, k=1024)]
    assert lab.SHAPE_CLASSES["cuda 9.0"](m=4099, n=2049, k=63) is None
    assert set(surveys.classes("linear_activation", "8.0")) == {"mma.sync, many tiles", "mma.sync, few tiles"}


def test_the_class_of_a_product_of_8_bits_is_that_of_the_tile_it_takes(project, surveys, tmp_path):
    lab = surveys.lab(HOPPER)
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
