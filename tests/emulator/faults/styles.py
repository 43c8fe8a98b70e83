"""Faults in the ten kernels of styles/."""

from tests.emulator.faults import Fault, Kind


def _in(subject: str, *rows: tuple) -> list[Fault]:
    """Faults of one style; a row is (name, kind, old, new, report or False), the last two of which may be absent."""
    faults = []
    for name, kind, old, *rest in rows:
        # What follows a comment's slashes stays.
        new = rest[0] if rest else old[old.find("//") :] if "//" in old else ""
        report = rest[1] if len(rest) > 1 else None
        options = {"named": False} if report is False else {"report": report}
        faults.append(Fault(f"{subject}:{name}", subject, f"{subject}.cu", kind, old, new, **options))
    return faults


_SYNC = "__syncthreads();"
WRONG_RESULT = False

ROW_LOGSUMEXP = _in(
    "row_logsumexp_cub",
    ("max_not_waited_for", Kind.BLOCK_BARRIER, f"{_SYNC}  // row_max is known"),
    ("max_written_by_all", Kind.TWO_WRITERS, "if (threadIdx.x == 0) row_max = ", "row_max = "),
    ("result_written_by_all", Kind.TWO_WRITERS, "if (threadIdx.x == 0) d_out[blockIdx.x] = ", "d_out[blockIdx.x] = "),
    (
        *("one_column_too_many", Kind.TENSOR_END),
        *("i < num_cols; i += BLOCK_THREADS) thread_max", "i <= num_cols; i += BLOCK_THREADS) thread_max"),
    ),
    ("rows_taken_for_aligned", Kind.ALIGNMENT, "aligned && num_cols % 4 == 0", "num_cols % 4 == 0"),
    ("columns_taken_for_fours", Kind.ALIGNMENT, "aligned && num_cols % 4 == 0", "aligned"),
    ("twice_the_threads", Kind.LAUNCH, "<<<num_rows, THREADS>>>", "<<<num_rows, 2 * THREADS>>>", "bound to"),
    ("a_row_too_few", Kind.TAIL, "false><<<num_rows, THREADS>>>", "false><<<num_rows - 1, THREADS>>>"),
    (
        *("last_column_left_out", Kind.TAIL),
        *("i < num_cols; i += BLOCK_THREADS) thread_sum", "i < num_cols - 1; i += BLOCK_THREADS) thread_sum"),
    ),
)

HISTOGRAM = _in(
    "histogram_cg",
    (
        *("bins_not_cleared", Kind.UNINITIALISED),
        "for (unsigned int bin = block.thread_rank(); bin < kBins; bin += block.size()) bins[bin] = 0;",
    ),
    ("bins_not_cleared_yet", Kind.BLOCK_BARRIER, "bins[bin] = 0;\n  block.sync();", "bins[bin] = 0;"),
    (
        "bins_not_complete_yet",
        Kind.BLOCK_BARRIER,
        "atomicAdd(outside, rejected);\n  block.sync();",
        "atomicAdd(outside, rejected);",
    ),
    ("plain_bins", Kind.PLAIN_UPDATE, "atomicAdd(&bins[value], 1u)", "++bins[value]"),
    ("plain_counts", Kind.PLAIN_UPDATE, "atomicAdd(&counts[bin], bins[bin])", "counts[bin] += bins[bin]"),
    ("grid_not_waited_for", Kind.WIDE_BARRIER, "grid.sync();"),
    ("block_waited_for_only", Kind.WIDE_BARRIER, "grid.sync();", "block.sync();"),
    ("a_bin_too_many", Kind.SHARED_END, "value < kBins", "value <= kBins"),
    ("counts_not_cleared", Kind.UNINITIALISED, "cudaMemsetAsync(counts, 0, kBins", "cudaMemsetAsync(counts, 0, 2"),
    ("one_warp_s_rejects", Kind.INDEX, "warp.thread_rank() == 0", "block.thread_rank() == 0"),
    ("more_blocks_than_fit", Kind.LAUNCH, "dim3(kBlocks)", "dim3(100000)"),
)

MATMUL = _in(
    "matmul_tiled",
    ("tiles_not_loaded_yet", Kind.BLOCK_BARRIER, f"{_SYNC}  // The sub-matrices"),
    ("tiles_replaced_while_read", Kind.BLOCK_BARRIER, f"{_SYNC}  // They have been"),
    ("barrier_inside_a_branch", Kind.DIVERGENCE, f"{_SYNC}  // The sub", f"if (row < Csub.height) {_SYNC}  // The sub"),
    ("a_row_beyond_the_end", Kind.TENSOR_END, "row >= A.height", "row > A.height"),
    ("a_row_written_beyond_the_end", Kind.TENSOR_END, "row < A.height &&", "row <= A.height &&"),
    ("stride_of_the_other_matrix", Kind.INDEX, "(int)n, b}", "(int)k, b}"),
    ("edge_tiles_left_out", Kind.TAIL, "(C.width + dimBlock.x - 1) / dimBlock.x", "C.width / dimBlock.x"),
    ("last_step_left_out", Kind.TAIL, "(A.width + BLOCK_SIZE - 1) / BLOCK_SIZE", "A.width / BLOCK_SIZE"),
    ("a_step_beyond_the_tile", Kind.INDEX, "e < BLOCK_SIZE", "e <= BLOCK_SIZE"),
    (
        "threads_left_early",
        Kind.UNINITIALISED,
        "float Cvalue = 0;",
        "float Cvalue = 0;\n  if ((int)threadIdx.x >= Csub.width) return;",
    ),
)

FMA_PIPELINE = _in(
    "fma_pipeline_sm90",
    ("stage_not_waited_for", Kind.ASYNC_WAIT, "mbar_wait(&smem.full[stage], phase);"),
    ("stage_not_free_yet", Kind.STAGE, "mbar_wait(&smem.empty[stage], phase ^ 1);"),
    ("producer_s_parity", Kind.MBARRIER, "phase ^ 1);", "phase);", "deadlock"),
    ("parity_not_flipped", Kind.MBARRIER, "stage = 0, phase ^= 1;\n  }", "stage = 0;\n  }"),
    ("half_of_the_bytes", Kind.MBARRIER, "2 * bytes", "bytes", f"{Kind.MBARRIER.report}|under way"),
    ("too_many_bytes", Kind.MBARRIER, "2 * bytes", "3 * bytes", "deadlock"),
    ("arrivals_of_threads", Kind.MBARRIER, "empty[s], CONSUMER_WARPS", "empty[s], CONSUMERS", "deadlock"),
    ("arrival_of_one_warp", Kind.MBARRIER, "empty[s], CONSUMER_WARPS", "empty[s], 1"),
    ("result_not_fenced", Kind.PROXY_FENCE, 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'),
    ("result_not_complete", Kind.BLOCK_BARRIER, "consumers_sync();  // All"),
    (
        "result_still_leaving",
        Kind.ASYNC_WAIT,
        'if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");',
    ),
    ("result_replaced_while_read", Kind.BLOCK_BARRIER, "consumers_sync();  // The result"),
    (
        "last_result_not_waited_for",
        Kind.ASYNC_WAIT,
        'if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");',
    ),
    ("barrier_of_all_threads", Kind.NAMED_BARRIER, '"n"(CONSUMERS)', '"n"(BLOCK)', "deadlock"),
    (
        "lanes_not_waited_for",
        Kind.WARP_BARRIER,
        "__syncwarp();\n    if (lane == 0) mbar_arrive",
        "if (lane == 0) mbar_arrive",
    ),
    (
        "whole_chunks_only",
        Kind.TENSOR_END,
        "const uint32_t count = n - begin < CHUNK ? n - begin : CHUNK;",
        "const uint32_t count = CHUNK;",
    ),
    ("barriers_not_ready_yet", Kind.BLOCK_BARRIER, f"{_SYNC}\n\n  int stage", "\n\n  int stage", "a race on|mbarrier"),
    (
        "too_little_shared_memory",
        Kind.SHARED_END,
        "sizeof(pipeline::SharedStorage) + 128",
        "sizeof(pipeline::SharedStorage) - 256",
    ),
    (
        "source_not_a_multiple_of_16",
        Kind.ALIGNMENT,
        "x + begin, bytes",
        "x + begin + 1, bytes",
        "at 0x|not aligned|multiple of",
    ),
)

GEMM = _in(
    "gemm_multistage_sm80",
    ("stage_not_waited_for", Kind.ASYNC_WAIT, "cp_async_wait<STAGES - 2>();", "cp_async_wait<STAGES - 1>();"),
    ("copies_of_others_not_waited_for", Kind.BLOCK_BARRIER, f"{_SYNC}  // This step's"),
    (
        "stage_still_being_read",
        Kind.STAGE,
        "ring[next % STAGES]",
        "ring[(next + 1) % STAGES]",
        "a race on|uninitialised memory",
    ),
    ("group_not_committed", Kind.ASYNC_WAIT, "cp_async_commit();\n\n    const Stage", "\n    const Stage"),
    ("rows_not_padded_to_16_bytes", Kind.ALIGNMENT, "LD = BK + 8", "LD = BK + 4"),
    ("tail_not_zeroed", Kind.TAIL, "inside ? 16 : 0", "16"),
    ("a_row_beyond_the_end", Kind.TENSOR_END, "row0 + r < rows", "row0 + r <= rows"),
    ("columns_beyond_the_end", Kind.TENSOR_END, " && col < N)", ")", "out of bounds|a race on"),
    (
        *("sums_not_cleared", Kind.UNINITIALISED, "for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.f;"),
        *("for (int e = 0; e < 0; ++e) acc[i][j][e] = 0.f;", WRONG_RESULT),
    ),
    ("too_little_shared_memory", Kind.SHARED_END, "STAGES * sizeof(Stage)>>>", "(STAGES - 1) * sizeof(Stage)>>>"),
    ("fragments_swapped", Kind.INDEX, "b[j / 2][j % 2], b[j / 2][j % 2 + 2]", "b[j / 2][j % 2 + 2], b[j / 2][j % 2]"),
    ("last_rows_left_out", Kind.TAIL, "(M + BM - 1) / BM", "M / BM"),
    ("last_columns_of_k_left_out", Kind.TAIL, "steps = (K + BK - 1) / BK", "steps = K / BK"),
)

GRID_REDUCTION = _in(
    "grid_reduction_ticket",
    ("partial_not_fenced", Kind.FENCE, "__threadfence();  // The partial"),
    ("ticket_not_fenced", Kind.FENCE, "__threadfence();  // What"),
    (
        *("plain_ticket", Kind.PLAIN_UPDATE, "atomicInc(&retirement_count, gridDim.x - 1);"),
        "retirement_count;\n    retirement_count = ticket == gridDim.x - 1 ? 0 : ticket + 1;",
    ),
    ("ticket_not_waited_for", Kind.BLOCK_BARRIER, f"{_SYNC}\n  if (!am_last)", "\n  if (!am_last)"),
    ("steps_not_separated", Kind.BLOCK_BARRIER, f"sdata[tid + s]);\n    {_SYNC}", "sdata[tid + s]);"),
    ("numbers_not_there_yet", Kind.BLOCK_BARRIER, f"sdata[tid] = mine;\n  {_SYNC}", "sdata[tid] = mine;"),
    ("every_block_adds_up", Kind.TWO_WRITERS, "if (!am_last) return;", "", "a race on|uninitialised memory"),
    ("half_a_warp_s_mask", Kind.MASK, "0xffffffff, mine.sum", "0x0000ffff, mine.sum"),
    (
        "ticket_not_reset",
        Kind.INDEX,
        "atomicInc(&retirement_count, gridDim.x - 1)",
        "atomicInc(&retirement_count, gridDim.x)",
    ),
    (
        "neighbour_beyond_the_end",
        Kind.SHARED_END,
        "sdata[tid + s]",
        "sdata[tid + s + 1]",
        "out of bounds|a race on|uninitialised memory",
    ),
    ("last_elements_left_out", Kind.TAIL, "i < n; i += gridDim.x", "i < n / 2 * 2 - 1; i += gridDim.x"),
)

SCAN = _in(
    "scan_lookback",
    (
        *("sum_not_fenced", Kind.FENCE, "states.aggregate[tile] = aggregate;\n        __threadfence();"),
        "states.aggregate[tile] = aggregate;",
    ),
    (
        *("prefix_not_fenced", Kind.FENCE, "exclusive + aggregate;\n        __threadfence();"),
        "exclusive + aggregate;",
    ),
    ("status_not_fenced", Kind.FENCE, "__threadfence();\n      value", "value"),
    ("plain_status", Kind.PLAIN_FLAG, "volatile u32* status", "u32* status", "a race on|spin|does not end"),
    ("tiles_by_block", Kind.DEADLOCK, "tile_shared = atomicAdd(next_tile, 1u)", "tile_shared = blockIdx.x"),
    ("tile_not_known_yet", Kind.BLOCK_BARRIER, f"{_SYNC}\n  const int tile", "\n  const int tile"),
    ("sums_not_there_yet", Kind.BLOCK_BARRIER, f"{_SYNC}\n  u32 before", "\n  u32 before"),
    ("prefix_not_there_yet", Kind.BLOCK_BARRIER, f"{_SYNC}\n  before +=", "\n  before +="),
    (
        "status_before_the_sum",
        Kind.FENCE,
        "states.aggregate[tile] = aggregate;\n        __threadfence();\n        states.status[tile] = kAggregate;",
        "states.status[tile] = kAggregate;\n        __threadfence();\n        states.aggregate[tile] = aggregate;",
    ),
    ("vector_beyond_the_end", Kind.TENSOR_END, "if (first + kItems <= n)", "if (first < n)"),
    ("results_beyond_the_end", Kind.TENSOR_END, "if (first + i < n) out", "out"),
    ("half_a_warp_s_vote", Kind.MASK, "__ballot_sync(~0u", "__ballot_sync(0xffffu"),
    (
        "status_not_cleared",
        Kind.UNINITIALISED,
        "workspace, 0, (1 + tiles)",
        "workspace, 0, 1",
        "uninitialised memory|spin|does not end",
    ),
    (
        "last_tile_left_out",
        Kind.TAIL,
        "(n + kTileItems - 1) / kTileItems);\n  if",
        "(n + kTileItems - 2) / kTileItems);\n  if",
    ),
)

# Another block's shared memory, before a barrier of the cluster.
_NOT_STARTED = "a race on|uninitialised memory|nothing says that the block has started"
SOFTMAX = _in(
    "softmax_cluster_sm90",
    ("maxima_not_there_yet", Kind.WIDE_BARRIER, "cluster.sync();  // The maxima", "// The maxima", _NOT_STARTED),
    (
        "maxima_of_one_block_waited_for",
        Kind.WIDE_BARRIER,
        "cluster.sync();  // The maxima",
        f"{_SYNC}  // The maxima",
        _NOT_STARTED,
    ),
    ("sums_not_there_yet", Kind.WIDE_BARRIER, "cluster.sync();  // The sums"),
    ("block_gone_too_early", Kind.ENDED_BLOCK, "cluster.sync();  // No block"),
    ("scratch_not_there_yet", Kind.BLOCK_BARRIER, f"{_SYNC}\n  value = scratch[0]", "\n  value = scratch[0]"),
    ("too_little_shared_memory", Kind.SHARED_END, "/ kClusterSize * sizeof(float)", "/ kClusterSize"),
    (
        "last_slice_too_long",
        Kind.TENSOR_END,
        "max(0, min(width, columns - begin))",
        "width",
        "out of bounds|a race on",
    ),
    (
        "a_block_that_is_not_there",
        Kind.INDEX,
        "map_shared_rank(&block_sum, other)",
        "map_shared_rank(&block_sum, other + 1)",
        "no block",
    ),
    ("own_sum_only", Kind.INDEX, "*cluster.map_shared_rank(&block_sum, other)", "block_sum"),
    ("grid_of_rows", Kind.LAUNCH, "rows * kClusterSize)", "rows * kClusterSize - 1)"),
)

TOPK = _in(
    "topk_bitonic",
    ("steps_not_separated", Kind.BLOCK_BARRIER, f"      {_SYNC}"),
    ("entries_not_there_yet", Kind.BLOCK_BARRIER, f"{_SYNC}\n\n  for (int size", "\n\n  for (int size"),
    ("limit_not_raised", Kind.SHARED_LIMIT, "if (bytes > 48 * 1024)", "if (bytes > 64 * 1024)"),
    ("shared_memory_of_the_row", Kind.SHARED_END, "bytes = padded *", "bytes = (int)n *"),
    ("padding_not_written", Kind.UNINITIALISED, "i < padded; i += blockDim.x", "i < n; i += blockDim.x"),
    (
        "one_result_too_many",
        Kind.TENSOR_END,
        "i < k; i += blockDim.x",
        "i <= k; i += blockDim.x",
        "out of bounds|a race on",
    ),
    (
        "results_by_row_length",
        Kind.INDEX,
        "values[(int64_t)blockIdx.x * k + i]",
        "values[(int64_t)blockIdx.x * n + i]",
        "out of bounds",
    ),
    ("ties_in_any_order", Kind.INDEX, "a.key == b.key && a.column < b.column", "a.key == b.key && a.column > b.column"),
    ("a_step_too_few", Kind.INDEX, "stride > 0", "stride > 1"),
    (
        "partner_beyond_the_end",
        Kind.SHARED_END,
        "const int high = low + stride;",
        "const int high = low + stride + 1;",
        "out of bounds|a race on|uninitialised memory",
    ),
)

PARTITION = _in(
    "partition_match",
    (
        *("plain_counts", Kind.PLAIN_UPDATE, "base = atomicAdd(&counts[bucket], __popc(peers));"),
        "base = counts[bucket], counts[bucket] = base + __popc(peers);",
    ),
    ("buckets_beyond_the_end", Kind.TENSOR_END, "i < n ? buckets[i] : -1", "buckets[i]"),
    ("counts_not_cleared", Kind.UNINITIALISED, "number * sizeof(int)", "1 * sizeof(int)"),
    ("rank_among_all", Kind.INDEX, "__popc(peers & lanemask_lt())", "__popc(active & lanemask_lt())"),
    ("leader_of_all", Kind.MASK, "__ffs(peers) - 1", "__ffs(active) - 1", WRONG_RESULT),
    ("one_reservation_a_warp", Kind.INDEX, "__popc(peers));", "1);", "a race on"),
    (
        "lists_of_another_bucket",
        Kind.INDEX,
        "(size_t)bucket * capacity",
        "(size_t)(bucket + 1) * capacity",
        "out of bounds",
    ),
    ("last_values_left_out", Kind.TAIL, "(n + threads - 1) / threads", "n / threads"),
    ("every_lane_reserves", Kind.INDEX, "if (rank == 0) base", "base"),
    (
        "list_of_reserved_places",
        Kind.MASK,
        "__match_any_sync(active, bucket)",
        "__match_any_sync(active & 0xffffu, bucket)",
    ),
)

STYLE_FAULTS = [
    *(ROW_LOGSUMEXP + HISTOGRAM + MATMUL + FMA_PIPELINE + GEMM),
    *(GRID_REDUCTION + SCAN + SOFTMAX + TOPK + PARTITION),
]
