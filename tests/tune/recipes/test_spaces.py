"""The recipes' spaces of tunables: the defaults lie in them and pass their gates, and the gates leave enough."""

import os
import subprocess
import sys

import pytest

from kernelgen.errors import LabError
from tests.stamped.conftest import REPOSITORY

from .survey import HOPPER, LIKE_9_0, PACKAGE, RECIPES, STRUCTS, directions, includes

# Whole files on one worker: what their tests look at takes seconds, and is looked at again.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "op, backward, chip",
    [
        (HOPPER, False, "9.0"),
        *((op, backward, chip) for op in RECIPES for backward in directions(op) for chip in ("9.0", LIKE_9_0)),
    ],
)
def test_the_defaults_lie_in_the_space_and_pass_its_gates(project, surveys, tmp_path, op, backward, chip):
    """On the GPU that they were chosen on, by either way. The values are those that a compiler sees."""
    survey = surveys.of(op, chip, backward)
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
def test_the_gates_leave_something_on_every_chip(surveys, op):
    for chip in ("8.0", "8.9", "9.0", "10.0", "12.0"):
        for backward in directions(op):
            empty = [
                shapes
                for shapes, shape_class in surveys.of(op, chip, backward).classes.items()
                if not shape_class["kept"]
            ]
            # The gradient of heads of 96 takes more shared memory than GPUs for graphics have, or has few warps.
            graphics = (op, chip, backward) in {("flash_attention", chip, True) for chip in ("8.9", "12.0")}
            assert empty == (["heads of 96"] if graphics else [])


def test_flash_attentions_space_is_large_and_the_gates_rule_much_of_it_out(surveys):
    forward, backward = (surveys.of("flash_attention", LIKE_9_0, backward) for backward in (False, True))
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


def test_on_hopper_flash_attentions_own_kernels_for_it_are_tuned(surveys):
    forward, backward = (surveys.of("flash_attention", "9.0", backward) for backward in (False, True))
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


def test_in_8_bits_consumers_share_what_is_promoted_by_parts(surveys):
    """Tiles that take turns have their sums in one accumulator, as those of 128 x 128 with promotion do not."""
    survey = surveys.of(HOPPER, "9.0", False)
    by_turns = {
        shapes: {(values["rows"], values["columns"]) for values in survey.kept(shapes) if values["ping_pong"]}
        for shapes in survey.classes
    }
    assert (128, 128) in by_turns["large tiles"]
    for shapes, tiles in by_turns.items():
        if shapes not in ("large tiles", "wide tiles", "deep tiles"):
            assert tiles == {(64, 64), (64, 128), (128, 64)}


def test_what_hopper_leaves_to_the_portable_kernels_is_not_tuned_as_its_own(surveys):
    forward, backward = (surveys.of("flash_attention", "9.0", backward) for backward in (False, True))
    cases = set(surveys.lab("flash_attention").CASES)
    tuned = [
        {case for shape_class in survey.classes.values() for case, _ in shape_class["cases"]}
        for survey in (forward, backward)
    ]
    wide = {f"4096 x {name}{mask}" for name in ("192/128", "192", "256") for mask in ("", " causal")}
    wide.add("one query, 32768 keys x 256")
    decoded = {"one query, 4096 keys", "one query, 32768 keys", "one query, 4096 keys, sinks"}
    # These take a tile of 176 keys, the only one that is faster for long sequences of heads of 128.
    long = {"8192 x 128", "16384 x 128", "16384 x 128 causal", "64 queries, 32768 keys", "1024 queries, 32768 keys"}
    assert cases - tuned[0] == {*decoded, *wide, *long}
    assert cases - tuned[1] == wide
    with pytest.raises(LabError, match=r"for cuda 9\.0 serves none of these cases: one query, 4096 keys"):
        surveys.described("flash_attention", "cuda", "9.0", cases=["one query, 4096 keys"])


def test_the_portable_kernels_are_tuned_on_hopper_where_they_are_asked_for(project, surveys):
    # A worker of its own: lab.py reads the variable when it is imported.
    code = (
        "import sys; from kernelgen.worker.tune import TuningWorker; from kernelgen.tune import space\n"
        "for op, backward in (('flash_attention', False), ('flash_attention', True), ('linear_activation', False)):\n"
        f"    request = {{'project': '.', 'package': '{PACKAGE}', 'op': op, 'backward': backward}}\n"
        "    tunables = TuningWorker(request).describe('cuda', '9.0')['tunables']\n"
        "    print(*space.read(op, tunables, 'cuda', '9.0', backward).tunables)"
    )
    forced = {f"{PACKAGE}_{op}_PATH".upper(): "sm80" for op in ("flash_attention", "linear_activation")}
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **forced}
    lines = subprocess.check_output([sys.executable, "-c", code], cwd=project, env=environment, text=True).splitlines()
    kinds = [("flash_attention", False), ("flash_attention", True), ("linear_activation", False)]
    for line, (op, backward) in zip(lines, kinds, strict=True):
        assert line.split() == list(surveys.of(op, LIKE_9_0, backward).space["tunables"])
        assert line.split() != list(surveys.of(op, "9.0", backward).space["tunables"])


@pytest.mark.parametrize("op", [recipe for recipe in RECIPES if recipe != "flash_attention"])
def test_on_the_cpu_the_grain_is_tuned(surveys, op):
    survey = surveys.of(op, None)
    assert "grain" in survey.space["tunables"]
    assert survey.classes[None]["rejected"] == {}
