"""Faults in the recipes' kernels and in the project's headers. recipe_checks.py has what must catch them."""

from collections.abc import Callable

from tests.emulator.faults import Fault, Kind
from tests.worker.mutants.cuda import CUDA

# What a wrong result shows, and no report has to.
WRONG_RESULT = {"named": False}


def _linear(name: str, kind: Kind, old: str, new: str = "", **options) -> Fault:
    return Fault(name, "linear_activation", "sm90/forward.cu", kind, old, new, **options)


def _transposed(name: str, kind: Kind, old: str, new: str = "", **options) -> Fault:
    return Fault(name, "linear_activation", "sm90/parts.cuh", kind, old, new, **options)


def _attention(
    name: str, kind: Kind, old: str, new: str = "", file: str = "sm80/attention_forward.cuh", **options
) -> Fault:
    return Fault(name, "flash_attention", f"../../include/{file}", kind, old, new, **options)


def _gradient(name: str, kind: Kind, old: str, new: str = "", **options) -> Fault:
    path = "../../include/sm80/attention_backward_keys.cuh"
    return Fault(name, "flash_attention_gradient", path, kind, old, new, **options)


def _sm90_attention(name: str, kind: Kind, old: str, new: str = "", file: str = "pipeline", **options) -> Fault:
    path = f"../../include/sm90/attention_forward_{file}.cuh"
    return Fault(name, "sm90_attention", path, kind, old, new, **options)


def _backward(subject: str, default: str) -> Callable[..., Fault]:
    """Faults of the gradient for Hopper that this check must catch; in header attention_`file`.cuh."""

    def fault(name: str, kind: Kind, old: str, new: str = "", file: str = default, **options) -> Fault:
        return Fault(name, subject, f"../../include/sm90/attention_{file}.cuh", kind, old, new, **options)

    return fault


_turns = _backward("sm90_ordered_gradient", "turns")
_stepped = _backward("sm90_stepped_gradient", "backward_iterations")
_few_keys = _backward("sm90_few_keys_gradient", "backward_work")
_drawn = _backward("sm90_drawn_gradient", "drawn_work")
_drawn_wide = _backward("sm90_drawn_wide_gradient", "consumer_keys")
_wide = _backward("sm90_wide_gradient", "backward_iterations")


# The other mutated headers are in cuda/.
HEADER_FOLDERS = dict.fromkeys(
    ("mbarrier.cuh", "product_accumulator.cuh", "product_splits.cuh", "product_tiles.cuh"), "sm90"
)


def _header(
    name: str, kind: Kind, header: str, old: str, new: str = "", subject: str = "include", **options: object
) -> Fault:
    return Fault(
        name, subject, f"../../include/{HEADER_FOLDERS.get(header, 'cuda')}/{header}", kind, old, new, **options
    )


def _tiles(name: str, kind: Kind, old: str, new: str = "", **options: object) -> Fault:
    return _header(name, kind, "product_tiles.cuh", old, new, "linear_activation", **options)


def _accumulator(name: str, kind: Kind, old: str, new: str = "", **options: object) -> Fault:
    return _header(name, kind, "product_accumulator.cuh", old, new, "linear_activation", **options)


def _splits(name: str, kind: Kind, old: str, new: str = "", **options: object) -> Fault:
    return _header(name, kind, "product_splits.cuh", old, new, "linear_activation", **options)


# Some of those that `kernelgen fuzz` finds on a GPU (tests/worker/mutants).
_FROM_FUZZING = {
    "off_by_one_tail": Kind.TAIL,
    "alignment_assumed": Kind.ALIGNMENT,
    "sum_of_one_warp": Kind.INDEX,
    "last_columns_not_fetched": Kind.TAIL,
    "last_partial_sum": Kind.TAIL,
}

_WAIT_FOR_PRODUCTS = """      wgmma_wait<1>();
      if (step > 0) release"""

STORE_TWO_MATRICES = "stmatrix_x2_transposed(shared + swizzled(row, chunk), rounded[0], rounded[1]);"

LINEAR = [
    _tiles(
        *("buffer_not_waited_for", Kind.STAGE),
        *(".wait(position.parity() ^ 1);\n      full.arrive", ";\n      full.arrive"),
    ),
    # A relaxed arrival at the cluster's barrier follows.
    _tiles("barriers_not_fenced", Kind.INIT_FENCE, "    fence_mbarrier_init();\n"),
    _tiles(
        *("one_arrival_for_two_consumers", Kind.MBARRIER),
        *("Tile::kMulticast * Layout<Tile>::kShares", "Tile::kMulticast"),
    ),
    _tiles("share_in_the_wrong_place", Kind.INDEX, "offset(index * kShare * kSwizzleRow)", "offset(0)"),
    _tiles(
        *("rows_waited_for_that_do_not_come", Kind.MBARRIER),
        *("rows_left(Tile::kRows, corner.row, scheduler.m)", "Tile::kRows"),
    ),
    _tiles("boxes_beyond_the_end", Kind.INDEX, "rows > 0 ? &operand.rest", "rows > 0 ? &operand.whole"),
    _accumulator("tile_not_waited_for", Kind.ASYNC_WAIT, "barriers.full[stage].wait(position.parity());"),
    _accumulator("released_while_being_read", Kind.STAGE, _WAIT_FOR_PRODUCTS, "      if (step > 0) release"),
    _accumulator("released_to_one_block_only", Kind.DEADLOCK, "thread < Tile::kMulticast", "thread < 1"),
    _accumulator("sums_of_the_tile_before", Kind.UNINITIALISED, "adds || part > 0", "true", **WRONG_RESULT),
    _tiles(
        *("gone_before_others_arrive", Kind.ENDED_BLOCK),
        *("for (int stage = 0; stage < Tile::kStages; ++stage, p", "for (int stage = 0; stage < 0; ++stage, p"),
    ),
    _splits("shares_not_waited_for", Kind.ASYNC_WAIT, "if (split < kStrips) barrier->wait(0);"),
    _splits(
        *("shares_sent_before_others_have_barriers", Kind.WIDE_BARRIER),
        *("if constexpr (Tile::kMulticast == 1) cluster::wait();", ""),
    ),
    _linear("panel_still_being_read", Kind.ASYNC_WAIT, "if (leads) tma_store_wait_read<0>();"),
    _linear(
        "panel_not_yet_written", Kind.BLOCK_BARRIER, "named_barrier_sync(kConsumerBarrier + consumer, kWarpgroup);"
    ),
    _transposed(
        *("last_rows_stored_with_the_next_tiles", Kind.INDEX),
        *("is_narrow(part) ? result.narrow : result.whole, shared, row", "result.whole, shared, row"),
        **WRONG_RESULT,
    ),
    _transposed(
        *("two_matrices_stored_of_four", Kind.INDEX),
        *("stmatrix_x4_transposed(shared + swizzled(row, chunk), rounded);", STORE_TWO_MATRICES),
        **WRONG_RESULT,
    ),
    _transposed("bias_of_the_first_product", Kind.INDEX, "+ i / 2 * 64 + i % 2 * 8", "+ i % 2 * 8", **WRONG_RESULT),
    _transposed("row_past_the_bias", Kind.TENSOR_END, "bias && row < n ?", "bias ?"),
    _linear(
        *("a_turn_is_not_passed_on", Kind.NAMED_BARRIER),
        *("named_barrier_arrive(kMainloopBarrier + 1 - consumer, 2 * kWarpgroup);", ";"),
    ),
]

DIRECT = [
    Fault(
        *("sums_of_other_warps_not_waited_for", "linear_direct", "sm80/direct.cu", Kind.BLOCK_BARRIER),
        *("  __syncthreads();\n  for (int i = threadIdx.x;", "  for (int i = threadIdx.x;"),
    ),
]

ATTENTION = [
    _attention(
        *("keys_not_waited_for", Kind.ASYNC_WAIT),
        *("cp_async_wait<(Block::kStages > 1 ? Block::kStages - 2 : 0)>();", "cp_async_wait<Block::kStages - 1>();"),
    ),
    _attention("keys_still_being_read", Kind.STAGE, "__syncthreads();  // This iteration's tiles have arrived,", "//"),
    _attention(
        *("one_row_too_many", Kind.TENSOR_END),
        *("out, first_row, mask.queries,", "out, first_row, mask.queries + 1,"),
    ),
    _attention("mask_one_key_too_wide", Kind.INDEX, "right + 1;", "right + 2;", "cuda/mask.h"),
    _gradient(
        *("weights_of_the_pair_not_waited_for", Kind.NAMED_BARRIER),
        *("named_barrier_sync(1 + Block::warp() % Block::kPairs, 2 * kWarpSize);  // The pair", "//"),
    ),
    _gradient(
        *("weights_in_the_tile_of_the_last_ones", Kind.STAGE),
        *("shared + kDs + step % 2 * kDsBytes", "shared + kDs"),
    ),
    _sm90_attention(
        *("task_not_waited_for", Kind.ASYNC_WAIT),
        "barriers.full_queries[queries.stage()].wait(queries.parity());",
    ),
    _sm90_attention("task_replaced_while_it_lasts", Kind.STAGE, ".wait(queries.parity() ^ 1);", ";"),
    _sm90_attention("scores_not_waited_for", Kind.ASYNC_WAIT, "wgmma_wait<decltype(pending)::value>();"),
    _sm90_attention(
        "values_not_waited_for", Kind.ASYNC_WAIT, "barriers.full_values[values.stage()].wait(values.parity());"
    ),
    _sm90_attention("sums_of_the_last_tile", Kind.UNINITIALISED, "    rows.clear_accumulator();\n", **WRONG_RESULT),
    _sm90_attention(
        *("results_still_leaving", Kind.ASYNC_WAIT),
        *("if (thread == 0) tma_store_wait_read<0>();  // The last", "//", "rows"),
    ),
]

TURNS = [
    # Counts are raised by atomic operations, so that under some schedules only bits differ.
    _turns("turn_not_waited_for", Kind.INDEX, "while (count < before);", "while (false);", **WRONG_RESULT),
    _turns(
        *("turn_waited_for_after_the_first_block_alone", Kind.INDEX),
        *("while (count < before);", "while (count < (before > 0));"),
        **WRONG_RESULT,
    ),
    _turns("turn_passed_before_the_sum_is_there", Kind.ASYNC_WAIT, "tma_store_wait();", "tma_store_wait_read<0>();"),
    _turns("turn_passed_without_a_release", Kind.FENCE, "red.release.gpu.global", "red.relaxed.gpu.global"),
    _turns("turn_seen_without_an_acquire", Kind.FENCE, "ld.acquire.gpu.global", "ld.relaxed.gpu.global"),
    _turns(
        *("blocks_by_index_wait_for_later_ones", Kind.DEADLOCK),
        *("return blocks_before(p.progress);", "return blockIdx.x;", "backward_pipeline"),
    ),
    _turns(
        *("turns_of_blocks_that_never_come", Kind.DEADLOCK),
        *(" - mask.begin(first_row) / KernelTraits<Tile>::kKeys;", ";", "grad_q_adder"),
    ),
    _turns(
        *("counts_of_the_last_call", Kind.UNINITIALISED),
        *("if (part == 0 && threadIdx.x == 0) *Turn", "if (false) *Turn", "backward_prepare"),
    ),
]

STEPPED = [
    _stepped(
        *("dst_of_a_step_overwritten_while_it_is_read", Kind.NAMED_BARRIER),
        "if (was_read && consumer != step) named_barrier_sync(kDsEmpty + step, kThreads);",
    ),
    _stepped(
        *("dst_of_a_step_read_before_all_have_written_it", Kind.NAMED_BARRIER),
        "named_barrier_sync(kOneStep ? kConsumersBarrier : kDsFull + consumer, kThreads);",
        "named_barrier_sync(kWarpgroupBarrier + consumer, kWarpgroup);",
    ),
]

FEW_KEYS = [
    _few_keys(
        *("queries_without_keys_not_visited", Kind.TAIL),
        *("single ? 0 : mask.first_query(first_key)", "mask.first_query(first_key)"),
    ),
    _few_keys(
        *("part_overwritten_while_it_leaves", Kind.STAGE),
        *("if (leads) tma_store_wait_read<0>();\n    __syncwarp();", "__syncwarp();", "grad_q_adder"),
    ),
    _few_keys(
        *("splits_in_one_place", Kind.TWO_WRITERS),
        *("tile * p.group_splits + split", "tile * p.group_splits", "consumer_keys"),
    ),
    _few_keys(*("sums_of_the_first_split", Kind.INDEX), *("splits = p.group_splits", "splits = 1", "backward_convert")),
]

DRAWN = [
    _drawn(
        *("keys_loaded_before_gradients_have_left", Kind.STAGE),
        "stored.wait((number + 1) % 2);",
    ),
    _drawn(
        *("gradients_without_iterations_over_those_that_leave", Kind.STAGE),
        "stored.wait((work.number + 1) % 2);",
    ),
    _drawn(
        *("a_consumer_a_phase_behind", Kind.DEADLOCK),
        "(work.number + 1) % 2);\n    named_barrier_sync(kWarpgroupBarrier + consumer, kWarpgroup);",
        "(work.number + 1) % 2);",
    ),
    _drawn(
        *("work_replaced_while_it_is_read", Kind.STAGE),
        "      empty[number % kStages].wait((number / kStages + 1) % 2);\n",
    ),
    _drawn("work_read_by_a_warp_while_it_is_replaced", Kind.WARP_BARRIER, "if (kThreads == kWarp) __syncwarp();"),
    _drawn(
        *("keys_of_the_tile_before", Kind.MBARRIER),
        *("barriers.full_keys.wait(work.loaded % 2);", ";", "backward_pipeline"),
    ),
]

DRAWN_WIDE = [
    _drawn_wide(
        *("rings_of_the_other_gradients", Kind.MBARRIER),
        *("Before& kind = before[work.key_tile.block];", "Before& kind = before[0];", "drawn_work"),
    ),
    _drawn_wide(
        *("rows_of_the_next_sequence", Kind.TWO_WRITERS),
        *("if (of_half < rows.count && first < dim)", "if (first < dim)"),
        **WRONG_RESULT,
    ),
    _drawn_wide("columns_of_another_thread", Kind.INDEX, "transpose_in_quad(chunk);", **WRONG_RESULT),
]

WIDE = [
    _wide(
        *("dst_overwritten_while_it_is_read", Kind.NAMED_BARRIER),
        "if constexpr (Tile::kDsTiles == 1) named_barrier_sync(kConsumersBarrier, Traits::kConsumers * kWarpgroup);",
        file="consumer_keys",
    ),
    _wide(
        *("lses_overwritten_while_they_are_read", Kind.STAGE),
        "named_barrier_sync(kWarpgroupBarrier + keys.consumer, kWarpgroup);  // The whole warpgroup has read the LSEs.",
    ),
    _wide(
        *("gradients_overwritten_while_they_are_read", Kind.ASYNC_WAIT),
        *("wgmma_wait<0>();\n    wgmma_pin(keys.grad_v);\n    release(", "wgmma_pin(keys.grad_v);\n    release("),
    ),
    _wide(
        *("one_half_of_the_panel_in_the_middle_twice", Kind.INDEX),
        *("kWhole * kPanel + consumer * kPanel / 2", "kWhole * kPanel", "consumer_keys"),
        **WRONG_RESULT,
    ),
    _wide(
        *("grad_q_of_the_last_block", Kind.TWO_WRITERS),
        *("atomicAdd(target + n * kWarpgroup, values);", "target[n * kWarpgroup] = values;", "consumer_keys"),
        **WRONG_RESULT,
    ),
    _wide(
        *("grad_q_overwritten_while_it_leaves", Kind.STAGE),
        "if constexpr (Traits::kHasAdder) named_barrier_sync(kShareEmpty + keys.consumer, kWarpgroup + kWarp);",
    ),
    _wide(
        *("turn_passed_before_consumers_have_added", Kind.NAMED_BARRIER),
        "for (int part = 0; part < Traits::kConsumers; ++part) named_barrier_sync(kShareFull + part, kThreads);",
        file="grad_q_adder",
    ),
    _wide(
        *("the_first_block_adds_to_what_nobody_zeroed", Kind.UNINITIALISED),
        *("const bool stores = Traits::kStagesShares || is_first;", "const bool stores = Traits::kStagesShares;"),
    ),
]

HEADERS = [
    _header(
        *("rows_beyond_the_last", Kind.TENSOR_END, "tile.cuh"),
        *(" && rows % tile.groups_per_block == 0", "", "rms_norm"),
    ),
    _header(
        *("sums_share_a_buffer", Kind.BLOCK_BARRIER, "thread_group.cuh"),
        *("warp_sums = sums[buffer_ ^= 1];", "warp_sums = sums[0];"),
    ),
    _header(
        *("sums_of_a_block_share_a_buffer", Kind.BLOCK_BARRIER, "thread_group.cuh"),
        *("&sums[buffer_ ^= 1][", "&sums[0]["),
    ),
    _header("block_not_synchronised", Kind.BLOCK_BARRIER, "thread_group.cuh", "[] { __syncthreads(); }", "[] {}"),
    _header(
        *("part_not_synchronised", Kind.BLOCK_BARRIER, "thread_group.cuh"),
        "named_barrier_sync(1 + threadIdx.y, blockDim.x);",
    ),
    _header(
        *("groups_share_a_barrier", Kind.NAMED_BARRIER, "thread_group.cuh"),
        *("named_barrier_sync(1 + threadIdx.y,", "named_barrier_sync(1,"),
    ),
    _header(
        *("groups_share_their_sums", Kind.TWO_WRITERS, "thread_group.cuh"),
        *("threadIdx.y * (blockDim.x / kWarp)", "0"),
    ),
    _header(
        *("columns_not_synchronised", Kind.BLOCK_BARRIER, "column_sums.cuh"),
        *("__syncthreads();  // Other threads", "//"),
    ),
    _header("groups_not_added_up", Kind.TAIL, "column_sums.cuh", "add(parts, blockDim.y,", "add(parts, 1,"),
    _header(
        *("groups_as_many_as_fit", Kind.LAUNCH, "tile.cuh"),
        *("std::min(most / tile.threads, kMostGroups)", "most / tile.threads"),
        **WRONG_RESULT,
    ),
    _header(
        *("more_clusters_than_fit", Kind.LAUNCH, "tile.cuh"),
        *("if (tile.blocks_per_group > 1) groups = std::min", "//"),
        **WRONG_RESULT,
    ),
    _header(
        *("past_the_row_s_end", Kind.TENSOR_END, "tile.cuh"),
        *("return n == threads", "return n <= threads", "rms_norm"),
    ),
    _header(
        "sum_of_one_warp_of_many", Kind.INDEX, "row_group.cuh", "? value : sum_of_warps", "? value : T", "rms_norm"
    ),
    _header(
        *("last_vectors_not_fetched", Kind.TAIL, "peeled_gradient.cuh"),
        *("if (index(access) < count)", "if (index(access) < count - 1)", "rms_norm"),
        **WRONG_RESULT,
    ),
    _header(
        *("neighbours_copies_not_waited_for", Kind.WARP_BARRIER, "peeled_gradient.cuh"),
        *("__syncwarp();  // The copies", "//", "rms_norm"),
    ),
    _header(
        *("partial_sums_share_a_row", Kind.TWO_WRITERS, "peeled_gradient.cuh"),
        *("const int64_t row = blockIdx.x / cluster::size();", "const int64_t row = 0;", "rms_norm"),
    ),
    _header(
        *("pipeline_one_row_short", Kind.ASYNC_WAIT, "pipeline.cuh"),
        *("__pipeline_wait_prior(kStages - 1)", "__pipeline_wait_prior(kStages)"),
    ),
    _header("quotient_too_small", Kind.INDEX, "divisor.cuh", "/ value + 1);", "/ value);"),
    _header(
        *("parity_of_many_steps", Kind.MBARRIER, "mbarrier.cuh"),
        *("if (position_ >= 2 * kStages)", "if (position_ >= kStages)"),
        **WRONG_RESULT,
    ),
]

RECIPE_FAULTS = [
    *(
        Fault(mutant.name, mutant.recipe, mutant.file, _FROM_FUZZING[name], mutant.old, mutant.new)
        for mutant in CUDA
        if (name := mutant.name.removeprefix("cuda_")) in _FROM_FUZZING
    ),
    *(LINEAR + DIRECT + ATTENTION + TURNS + STEPPED + FEW_KEYS + DRAWN + DRAWN_WIDE + WIDE + HEADERS),
]
