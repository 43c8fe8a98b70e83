"""Mutants: the recipes' kernels with one fault each, such as people write. The emulated GPU must catch every one.

Some are those that `kernelgen fuzz` finds on a GPU (tests/worker/mutants); others lack a barrier, a wait or an arrival.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelgen.emulator.library import EmulatedLibrary, EmulatorError
from tests.worker.mutants import Mutant
from tests.worker.mutants.cuda import CUDA

from . import test_recipes as recipes
from . import test_vocabulary as vocabulary
from .conftest import ALL_SCHEDULES, ENTRIES, Memory, build, copy_op

FROM_FUZZING = (
    *("off_by_one_tail", "alignment_assumed"),
    *("sum_of_one_warp", "row_not_waited_for", "last_columns_not_fetched", "last_partial_sum"),
)


def _linear(name: str, old: str, new: str = "") -> Mutant:
    return Mutant(name, "linear_activation", "sm90/forward.cu", old, new)


def _attention(name: str, old: str, new: str = "", file: str = "sm80/forward.cu") -> Mutant:
    return Mutant(name, "flash_attention", file, old, new)


def _sm90_attention(name: str, old: str, new: str = "") -> Mutant:
    return Mutant(name, "sm90_attention", "sm90/forward.cu", old, new)


HEADER_FOLDERS = {"mbarrier.cuh": "sm90"}  # The other mutated headers are in cuda/.


def _header(name: str, header: str, old: str, new: str = "") -> Mutant:
    return Mutant(name, "include", f"../../include/{HEADER_FOLDERS.get(header, 'cuda')}/{header}", old, new)


def _norm_header(name: str, header: str, old: str, new: str = "") -> Mutant:
    return replace(_header(name, header, old, new), recipe="rms_norm")


_WAIT_FOR_PRODUCTS = """      wgmma_wait<1>();
      if (step > 0) release"""

MUTANTS = [
    *(mutant for mutant in CUDA if mutant.name.removeprefix("cuda_") in FROM_FUZZING),
    _norm_header("rows_beyond_the_last", "tile.cuh", " && rows % tile.groups_per_block == 0", ""),
    _linear("tile_not_waited_for", "barriers.full[stage].wait(position.parity());"),
    _linear("buffer_not_waited_for", ".wait(position.parity() ^ 1);\n      full.arrive", ";\n      full.arrive"),
    _linear("released_while_being_read", _WAIT_FOR_PRODUCTS, "      if (step > 0) release"),
    _linear("panel_still_being_read", "if (leads) tma_store_wait_read<0>();"),
    _linear("panel_not_yet_written", "named_barrier_sync(kConsumerBarrier + consumer, kWarpgroup);"),
    _linear("one_arrival_for_two_consumers", "Tile::kMulticast * (Traits::kCooperative ? 2 : 1)", "Tile::kMulticast"),
    _linear("released_to_one_block_only", "thread < Tile::kMulticast", "thread < 1"),
    _linear("share_in_the_wrong_place", "offset(index * kShare * kSwizzleRow)", "offset(0)"),
    _linear("rows_waited_for_that_do_not_come", "rows_left(Tile::kRows, corner.row, scheduler.m)", "Tile::kRows"),
    _linear("boxes_beyond_the_end", "rows > 0 ? &operand.rest", "rows > 0 ? &operand.whole"),
    _linear("sums_of_the_tile_before", "step > 0 || part > 0", "true"),
    _linear("shares_not_waited_for", "  cluster::arrive();\n  cluster::wait();\n#pragma", "#pragma"),
    _linear("gone_before_its_share_is_read", "  if constexpr (Tile::kSplits > 1) cluster::wait();\n}", "}"),
    _linear("a_turn_is_not_passed_on", "named_barrier_arrive(kMainloopBarrier + 1 - consumer, 2 * kWarpgroup);", ";"),
    _attention("keys_not_waited_for", "cp_async_wait<Block::kStages - 2>();", "cp_async_wait<Block::kStages - 1>();"),
    _attention("keys_still_being_read", "__syncthreads();  // This iteration's tiles have arrived,", "//"),
    _attention(
        "one_row_too_many", "p.out.row, p.mask.queries - first_row,", "p.out.row, p.mask.queries - first_row + 1,"
    ),
    _attention("mask_one_key_too_wide", "right + 1;", "right + 2;", "mask.h"),
    _sm90_attention("task_not_waited_for", "barriers.full_queries[queries.stage()].wait(queries.parity());"),
    _sm90_attention("task_replaced_while_it_lasts", ".wait(queries.parity() ^ 1);", ";"),
    _sm90_attention("scores_not_waited_for", "wgmma_wait<decltype(pending)::value>();"),
    _sm90_attention("values_not_waited_for", "barriers.full_values[values.stage()].wait(values.parity());"),
    _sm90_attention("sums_of_the_last_tile", "    rows.clear_accumulator();\n"),
    _sm90_attention("results_still_leaving", "if (thread == 0) tma_store_wait_read<0>();  // The last", "//"),
    _header("sums_share_a_buffer", "thread_group.cuh", "warp_sums = sums[buffer_ ^= 1];", "warp_sums = sums[0];"),
    _header("sums_of_a_block_share_a_buffer", "thread_group.cuh", "&sums[buffer_ ^= 1][", "&sums[0]["),
    _header("block_not_synchronised", "thread_group.cuh", "[] { __syncthreads(); }", "[] {}"),
    _header("part_not_synchronised", "thread_group.cuh", "named_barrier_sync(1 + threadIdx.y, blockDim.x);"),
    _header(
        "groups_share_a_barrier", "thread_group.cuh", "named_barrier_sync(1 + threadIdx.y,", "named_barrier_sync(1,"
    ),
    _header("groups_share_their_sums", "thread_group.cuh", "threadIdx.y * (blockDim.x / kWarp)", "0"),
    _header("columns_not_synchronised", "column_sums.cuh", "__syncthreads();  // Other threads", "//"),
    _header("groups_not_added_up", "column_sums.cuh", "add(parts, blockDim.y,", "add(parts, 1,"),
    _header("groups_as_many_as_fit", "tile.cuh", "std::min(most / tile.threads, kMostGroups)", "most / tile.threads"),
    _header("more_clusters_than_fit", "tile.cuh", "if (tile.blocks_per_group > 1) groups = std::min", "//"),
    _norm_header("past_the_row_s_end", "tile.cuh", "return n == threads", "return n <= threads"),
    _header(
        "pipeline_one_row_short", "pipeline.cuh", "__pipeline_wait_prior(kStages - 1)", "__pipeline_wait_prior(kStages)"
    ),
    _header("quotient_too_small", "divisor.cuh", "/ value + 1);", "/ value);"),
    _header("parity_of_many_steps", "mbarrier.cuh", "if (position_ >= 2 * kStages)", "if (position_ >= kStages)"),
]


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
        check(lambda name, sources=(): library, reference, memory)
        memory.check()
    except (AssertionError, EmulatorError) as error:
        return str(error) or type(error).__name__
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", CHECKS)
def test_a_correct_kernel_passes(ops, reference, recipe):
    assert _failure(ops, recipe, reference) == ""


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(ops, reference, tmp_path, mutant):
    op = copy_op(ops, FOLDERS.get(mutant.recipe, mutant.recipe), tmp_path / "p")
    mutant.apply(op)
    assert _failure(op.parent, mutant.recipe, reference)
