"""Mutants: the recipes' kernels with one fault each, such as people write. The emulated GPU must catch every one.

Some are those that `kernelgen fuzz` finds on a GPU (tests/worker/mutants); others lack a barrier, a wait or an arrival.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelgen.emulator.library import EmulatedLibrary, EmulatorError

from . import test_recipes as recipes
from . import test_vocabulary as vocabulary
from .conftest import ALL_SCHEDULES, ENTRIES, Memory, build, copy_op
from .faults import Fault
from .faults.recipes import RECIPE_FAULTS


def _norms(compiled, reference, memory) -> None:
    for rows, n in ((9, 1021), (3, 4100), (37, 20), (9, 512)):
        recipes.check_norm(compiled, reference, memory, "rms_norm", True, rows, n, 90, torch.float32)


def _elementwise(compiled, reference, memory) -> None:
    for shift in (0, 1):
        recipes.test_elementwise(compiled, reference, memory, torch.float32, 1003, shift)


def _linear_activation(compiled, reference, memory) -> None:
    m, n, k = 330, 392, 328
    x, bias = (memory.copy(recipes.random(*size, dtype=torch.float16)) for size in ((m, k), (n,)))
    weight = memory.copy((recipes.random(n, k) / k**0.5).to(torch.float16))
    expected = reference("linear_activation").linear_activation(x.double(), weight.double(), bias.double(), "none")
    for tile in CHECKED_TILES:
        for seed in ALL_SCHEDULES:
            y, z = (memory.empty(m, n, dtype=torch.float16) for _ in "yz")
            compiled("")(tile, x, weight, bias, y, z, m, n, k, seed=seed, multiprocessors=8)
            recipes.close(z, expected)


def _flash_attention(compiled, reference, memory) -> None:
    for seed in ALL_SCHEDULES:
        attention = recipes.Attention(memory, 64, (1, 2, 1, 150, 260, 64), causal=True)
        inputs = (attention.q.float(), attention.k.float(), attention.v.float())
        expected = reference("flash_attention").flash_attention(*inputs, causal=True)
        recipes.close(attention.forward(compiled("flash_attention"), seed=seed)[0], expected)


def _sm90_attention_forward(compiled, reference, memory) -> None:
    for seed in ALL_SCHEDULES:
        attention = recipes.Attention(memory, 64, (1, 2, 1, 200, 300, 64), causal=True)
        inputs = (attention.q.float(), attention.k.float(), attention.v.float())
        expected = reference("flash_attention").flash_attention(*inputs, causal=True)
        out, lse = attention.empty_like(attention.q), memory.empty(*attention.rows)
        compiled("")("forward", *attention.inputs(), out, lse, seed=seed, multiprocessors=2)
        recipes.close(out, expected)


def _include(compiled, reference, memory) -> None:
    kernels = compiled("include")
    for seed in ALL_SCHEDULES:
        for group in ("lanes", "part", "block", "cluster"):
            vocabulary.test_groups_take_each_row_once_and_sum_it(kernels, memory, group, 50, 100, seed)
        for group in ("lanes", "part", "block"):
            vocabulary.test_a_pipeline_loads_rows_and_column_sums_add_them(kernels, memory, group, 37, 60, 2, seed)
    vocabulary.test_no_more_clusters_are_launched_than_fit(kernels, 100, 8)
    vocabulary.test_a_persistent_block_is_filled_with_groups(kernels, 64, 1000, 256, 4)
    vocabulary.test_a_divisor_divides_every_int(kernels, 7)
    for steps in range(6):
        vocabulary.test_a_ring_advances_by_many_steps_at_once(kernels, steps)


CHECKED_TILES = ("four_beside", "ping_pong", "halves")


def _checked_tiles() -> str:
    """The entry with CHECKED_TILES only: clusters of blocks beside and below each other, ping-pong, and a tile that two
    blocks split."""
    lines = (ENTRIES / "linear_activation_sm90.cu").read_text().splitlines()
    return "\n".join(
        line for line in lines if not line.startswith("FORWARD(") or line[8:].split(",")[0] in CHECKED_TILES
    )


SM90_ATTENTION = """
#define INSTANCE_T float16
#define INSTANCE_D 64
#include "flash_attention_problem.h"
#include "sm90/forward.cu"
extern "C" cudaError_t forward(
    const Shape* shape, void* q, void* k, void* v, double softcap, void* out, float* lse) {
  static int counter;
  Forward p{problem(*shape, q, k, v, softcap), shape->of_queries(out), lse};
  p.tile_counter = &counter;
  return sm90::forward<float16, 64>(p, nullptr);
}
"""


def _first_export(name: str) -> str:
    """An entry with the first of its element types only."""
    head, first, *_ = re.split(r"^(?=EXPORT\()", (ENTRIES / name).read_text(), flags=re.MULTILINE)
    return head + first


# By recipe, or by a name of FOLDERS: the entry, further sources, and the check that has to catch the faults.
CHECKS: dict[str, tuple[str, list[str], Callable]] = {
    "elementwise": (_first_export("elementwise.cu"), ["kernel.cu"], _elementwise),
    "rms_norm": (_first_export("rms_norm.cu"), [], _norms),
    "linear_activation": (_checked_tiles(), [], _linear_activation),
    "flash_attention": (_first_export("flash_attention.cu"), [], _flash_attention),
    "sm90_attention": (SM90_ATTENTION, [], _sm90_attention_forward),
    "include": ((ENTRIES / "vocabulary.cu").read_text(), [], _include),
}


# The ops of the checks that are not named for a recipe.
FOLDERS = {"include": "elementwise", "sm90_attention": "flash_attention"}


def _failure(ops: Path, recipe: str, reference: Callable) -> str:
    """The first failure of a recipe's check, or ""."""
    entry, sources, check = CHECKS[recipe]
    library: EmulatedLibrary = build(ops / FOLDERS.get(recipe, recipe), entry, sources)
    memory = Memory()
    torch.manual_seed(0)
    try:
        check(lambda name, sources=(), capability=90: library, reference, memory)
        memory.check()
    except (AssertionError, EmulatorError) as error:
        return str(error) or type(error).__name__
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", CHECKS)
def test_a_correct_kernel_passes(ops, reference, recipe):
    assert _failure(ops, recipe, reference) == ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", RECIPE_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_in_a_recipe_is_caught(ops, reference, tmp_path, fault: Fault):
    op = copy_op(ops, FOLDERS.get(fault.subject, fault.subject), tmp_path / "p")
    fault.apply(op)
    failure = _failure(op.parent, fault.subject, reference)
    assert failure
    assert re.search(fault.wanted or "", failure), failure
