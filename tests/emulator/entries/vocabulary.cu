// Kernels that use the headers of a project's include/.

#include <algorithm>

#include "cache_hints.cuh"
#include "cluster.cuh"
#include "column_sums.cuh"
#include "divisor.cuh"
#include "fp8.cuh"
#include "mbarrier.cuh"
#include "mma.cuh"
#include "ordered_key.cuh"
#include "pack.cuh"
#include "packed.cuh"
#include "pipeline.cuh"
#include "row.cuh"
#include "strided_view.h"
#include "swizzle.cuh"
#include "thread_group.cuh"
#include "tile.cuh"
#include "tma.cuh"
#include "tma.h"
#include "warpgroup.cuh"
#include "wgmma.cuh"

namespace {

// ---- vector, pack, swizzle ------------------------------------------------------------------------------------

__global__ void copy_vectors(const float* in, const float* absent, float* out, int64_t groups) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= groups) return;
  Vector<float, 4> values = load<4>(in, i);
  values += load_or<4>(absent, i, 2);
  forget_conversions(values);
  store(out, i, values);
}

// Zeros where a group is past the end.
template <int N>
__global__ void copy_evict_last(const float* in, float* out, int64_t groups) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  store_evict_last(out, i, load_evict_last<N>(in, i, i < groups));
}

__global__ void pack_pairs(const float* in, uint32_t* float16s, uint32_t* bfloat16s) {
  float16s[threadIdx.x] = pack<float16>(in[2 * threadIdx.x], in[2 * threadIdx.x + 1]);
  bfloat16s[threadIdx.x] = pack<bfloat16>(in[2 * threadIdx.x], in[2 * threadIdx.x + 1]);
}

// ---- ordered_key, packed, fp8, strided_view -------------------------------------------------------------------

template <typename T>
__global__ void order(const T* in, ordered_key_t<T>* keys, T* again, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  keys[i] = ordered_key(in[i]);
  again[i] = of_ordered_key<T>(keys[i]);
}

__global__ void find_largest(const float* in, unsigned long long* largest, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicMax(largest, ranked_key(in[i], i));
}

__global__ void tell_largest(const unsigned long long* largest, float* value, int* place) {
  *value = value_of(*largest);
  *place = place_of(*largest);
}

template <typename T, typename Sum>
__global__ void multiply_bytes(const float* a, const float* b, T* bytes, Sum* sums) {
  const Vector<T, 8> left = to_bytes<T>(load<8>(a, threadIdx.x), 2), right = to_bytes<T>(load<8>(b, threadIdx.x), 2);
  store(bytes, threadIdx.x, left);
  sums[threadIdx.x] = dot(left, right, Sum(7));
}

__global__ void decode_codes(float* e4m3s, float* e5m2s) {
  Vector<uint8_t, 4> codes;
  for (int i = 0; i < 4; ++i) codes[i] = threadIdx.x * 4 + i;
  store(e4m3s, threadIdx.x, fp8::decode_all(codes, fp8::Format{false}));
  store(e5m2s, threadIdx.x, fp8::decode_all(codes, fp8::Format{true}));
}

template <typename Index>
__global__ void copy_view(StridedView<const float, Index> in, StridedView<float, Index> out, Index n) {
  const Index threads = Index(gridDim.x) * blockDim.x;
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += threads) out[i] = in[i];
}

StridedLayout layout(int dimensions, const int64_t* sizes, const int64_t* strides) {
  StridedLayout layout;
  layout.dimensions = dimensions;
  std::copy(sizes, sizes + dimensions, layout.sizes);
  std::copy(strides, strides + dimensions, layout.strides);
  return layout;
}

// ---- reduce, thread_group, row --------------------------------------------------------------------------------

template <int kLanes>
__global__ void sum_groups(const float* in, float* out) {
  out[threadIdx.x] = warp_sum<kLanes>(in[threadIdx.x]);
}

template <int kLanes>
__global__ void argmax_of_groups(const float* in, float* values, int* places) {
  const int i = threadIdx.x;
  const Ranked<float> best = warp_argmax<kLanes>(Ranked<float>{in[i], i});
  values[i] = best.value;
  places[i] = best.place;
}

// The sum of each row, which every thread of its group computes, and how many groups took the row.
template <typename Group>
__global__ void sum_rows(const float* in, float* sums, int* taken, int64_t rows, int64_t n) {
  Group group;
  for (int64_t row = group.first(); group.in_turn(row, rows); row += group.count()) {
    float partial = 0;
    for (int64_t i = group.rank(); row < rows && i < n; i += group.size()) partial += in[row * n + i];
    const float total = group.sum(partial);
    // A second sum right after the first must use other buffers.
    const float again = group.sum(total) / float(group.size());
    if (row < rows) {
      if (group.rank() == 0) atomicAdd(&taken[row], 1);
      if (group.rank() == group.size() - 1) sums[row] = again;
    }
  }
}

// The largest, the product and the place of the largest of each row, twice.
template <typename Group>
__global__ void reduce_rows(
    const float* in, float* largest, float* products, float* firsts, int64_t* places, int64_t rows, int64_t n) {
  Group group;
  for (int64_t row = group.first(); group.in_turn(row, rows); row += group.count()) {
    float most = -INFINITY, product = 1;
    Ranked<float> best{-INFINITY, n};
    for (int64_t i = group.rank(); row < rows && i < n; i += group.size()) {
      const Ranked<float> candidate{in[row * n + i], i};
      if (candidate.is_before(best)) best = candidate;
      most = max(most, candidate.value);
      product *= candidate.value;
    }
    for (int again = 0; again < 2; ++again) {
      const float row_max = group.max(most), row_product = group.product(product);
      const Ranked<float> first = group.argmax(best);
      if (row < rows && group.rank() == group.size() - 1) {
        largest[row] = row_max;
        products[row] = row_product;
        firsts[row] = first.value;
        places[row] = first.place;
      }
    }
  }
}

// Adds another tensor's row to each row, and doubles the sum.
template <typename Group, int N, int kAccesses>
__global__ void change_rows(const float* in, const float* other, float* sum, float* doubled, int64_t rows, int64_t n) {
  Group group;
  const int64_t row = group.first();
  const bool valid = row < rows;
  RowFragment<Group, float, N, kAccesses> fragment(group, in + row * n, valid ? n / N : 0);
  fragment.add(other + row * n, sum + row * n);
  fragment.each([&](int64_t i, Vector<float, N> values) {
    values += values;
    store(doubled + row * n, i, values);
  });
}

// ---- pipeline, column_sums ------------------------------------------------------------------------------------

constexpr int kStages = 3;

// Copies rows and sums their columns. Groups take rows in turn.
template <typename Group, int N, int kAccesses>
__global__ void sum_columns_by(const float* in, float* out, float* sums, int64_t rows, int64_t n) {
  extern __shared__ __align__(32) char shared[];
  Group group;
  RowPipeline<float, N, kAccesses, kStages> pipeline(shared, 1);
  const int first = group.template first_access<kAccesses>(), accesses = static_cast<int>(n / N);
  const auto fetch = [&](int64_t row) {
    for (int access = 0; row < rows && access < kAccesses; ++access) {
      const int i = first + access * Group::kStep;
      if (i < accesses) pipeline.fetch(0, access, reinterpret_cast<const Vector<float, N>*>(in + row * n) + i);
    }
    pipeline.commit();
  };
  for (int stage = 0; stage < kStages - 1; ++stage) fetch(group.first() + stage * group.count());
  ColumnSums<float, N, kAccesses> columns;
  for (int64_t row = group.first(); group.in_turn(row, rows); row += group.count()) {
    fetch(row + (kStages - 1) * group.count());
    pipeline.wait();
    for (int access = 0; row < rows && access < kAccesses; ++access) {
      const int i = first + access * Group::kStep;
      for (int k = 0; k < N; ++k) columns.sums[access][k] += pipeline.access(0, access)[k];
      if (i < accesses) store(out + row * n, i, pipeline.access(0, access));
    }
    pipeline.release();
  }
  pipeline.drain();
  const int64_t partial_row = Group::kSharesBlock ? blockIdx.x : group.first();
  columns.write(group, shared, sums + partial_row * n, n);
}

template <typename Group, int N, int kAccesses>
cudaError_t launch_sum_columns_by(
    const float* in, float* out, float* partial, float* sums, int64_t rows, int64_t n, int64_t blocks, dim3 threads) {
  const size_t shared = RowPipeline<float, N, kAccesses, kStages>::bytes(threads.x * threads.y, 1);
  sum_columns_by<Group, N, kAccesses><<<blocks, threads, shared, nullptr>>>(in, out, partial, rows, n);
  return launch_sum_columns<float>(Stored<float>{partial, n}, Columns<float>{sums, nullptr, n}, blocks, n, 1, nullptr);
}

// ---- mma ------------------------------------------------------------------------------------------------------

// a (16x16) times b (16x8), both row-major: with ldmatrix transposing b (`out`), and with movmatrix (`again`). Copies
// `a` by stmatrix.
__global__ void multiply_small(const float16* a, const float16* b, float* out, float* again, float16* copy) {
  __shared__ __align__(16) float16 left[16][16], right[16][8], stored[16][16];
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) left[i / 16][i % 16] = a[i];
  for (int i = lane; i < 128; i += 32) right[i / 8][i % 8] = b[i];
  __syncwarp();
  uint32_t x[4], y[4], z[4];
  ldmatrix_x4(x, &left[lane % 16][lane / 16 * 8]);
  // Both halves of k, twice.
  ldmatrix_x4_transposed(y, &right[lane % 16][0]);
  ldmatrix_x4(z, &right[lane % 16][0]);
  float sums[4] = {}, others[4] = {};
  mma_16x8x16<float16>(sums, x, y[0], y[1]);
  mma_16x8x16<float16>(others, x, transposed(z[0]), transposed(z[1]));
  for (int i = 0; i < 4; ++i) {
    const int place = (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2;
    out[place] = sums[i];
    again[place] = others[i];
  }
  stmatrix_x4(&stored[lane % 16][lane / 16 * 8], x);
  __syncwarp();
  for (int i = lane; i < 256; i += 32) copy[i] = stored[i / 16][i % 16];
}

// ---- mbarrier, tma, wgmma, warpgroup, cluster -----------------------------------------------------------------

constexpr int kBox = 64;

struct Maps {
  CUtensorMap a, b, out;
};

// The product of a (m x k) and the transpose of b (n x k), by a producer and a consumer warpgroup. The blocks of a
// cluster have rows of their own and share columns; each loads a share of b by multicast.
template <int kColumns, int kCluster>
__global__ void multiply_tiles(const __grid_constant__ Maps maps, float* out, int n, int steps) {
  constexpr int kRing = 2, kStage = (kBox + kColumns) * kSwizzleRow, kShare = kColumns / kCluster;
  extern __shared__ __align__(1024) char shared[];
  __shared__ MBarrier full[kRing], empty[kRing];
  const int block = cluster::rank(), row0 = int(blockIdx.x) * kBox, column0 = int(blockIdx.y) * kColumns;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRing; ++i) {
      full[i].init(1);
      empty[i].init(kCluster);
    }
    fence_mbarrier_init();
  }
  cluster::arrive();
  cluster::wait();
  RingPosition<kRing> position;
  if (threadIdx.x < kWarpgroup) {
    give_registers<24>();
    if (threadIdx.x > 0) return;
    for (int step = 0; step < steps; ++step, position.advance()) {
      char* stage = shared + position.stage() * kStage;
      empty[position.stage()].wait(position.parity() ^ 1);
      full[position.stage()].arrive_expecting(kStage);
      tma_load(stage, maps.a, row0, step * kBox, full[position.stage()]);
      char* share = stage + (kBox + block * kShare) * kSwizzleRow;
      tma_load_multicast(
          share, maps.b, column0 + block * kShare, step * kBox, full[position.stage()], (1 << kCluster) - 1);
    }
    for (int i = 0; i < kRing; ++i, position.advance()) empty[position.stage()].wait(position.parity() ^ 1);
  } else {
    take_registers<240>();
    const int thread = threadIdx.x % kWarpgroup;
    float sums[kColumns / 2] = {};
    for (int step = 0; step < steps; ++step, position.advance()) {
      const char* stage = shared + position.stage() * kStage;
      const uint64_t a = wgmma_operand(stage), b = wgmma_operand(stage + kBox * kSwizzleRow);
      full[position.stage()].wait(position.parity());
      wgmma_fence();
      for (int part = 0; part < 4; ++part) wgmma<float16>(sums, a + 2 * part, b + 2 * part);
      wgmma_commit();
      wgmma_wait<0>();
      if (thread < kCluster) empty[position.stage()].arrive_in(thread);
    }
    for (int i = 0; i < kColumns / 2; ++i) {
      const int row = row0 + thread / 32 * 16 + i / 2 % 2 * 8 + thread % 32 / 4;
      out[row * n + column0 + i / 4 * 8 + thread % 4 * 2 + i % 2] = sums[i];
    }
  }
}

// Copies a matrix tile by tile into a larger one, 3 rows and 8 columns further on.
__global__ void move_tiles(const __grid_constant__ Maps maps, int rows, int columns) {
  extern __shared__ __align__(1024) char shared[];
  __shared__ MBarrier barrier;
  if (threadIdx.x > 0) return;
  barrier.init(1);
  fence_mbarrier_init();
  const int row0 = int(blockIdx.x) * kBox, column0 = int(blockIdx.y) * kBox;
  barrier.arrive_expecting(kBox * kSwizzleRow);
  tma_load(shared, maps.a, row0 - 3, column0 - 8, barrier);
  barrier.wait(0);
  tma_store(maps.out, shared, row0, column0);
  tma_store_commit();
  tma_store_wait_read<0>();
}

// A producer warpgroup hands numbers to a consumer through two buffers.
__global__ void hand_over(const float* in, float* out, int turns) {
  __shared__ float buffer[2][kWarpgroup];
  const int thread = threadIdx.x % kWarpgroup;
  constexpr int kFull = 1, kEmpty = 3, kBoth = 2 * kWarpgroup;
  for (int turn = 0; turn < turns; ++turn) {
    const int slot = turn % 2, i = turn * kWarpgroup + thread;
    if (threadIdx.x < kWarpgroup) {
      if (turn >= 2) named_barrier_sync(kEmpty + slot, kBoth);
      buffer[slot][thread ^ 33] = in[i];
      named_barrier_arrive(kFull + slot, kBoth);
    } else {
      named_barrier_sync(kFull + slot, kBoth);
      out[i] = buffer[slot][thread ^ 33];
      if (turn + 2 < turns) named_barrier_arrive(kEmpty + slot, kBoth);
    }
  }
}

template <typename Kernel, typename... Arguments>
cudaError_t launch_cluster(
    Kernel kernel, dim3 blocks, int threads, size_t shared, unsigned cluster, Arguments... arguments) {
  if (const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared))) {
    return error;
  }
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace

extern "C" {

cudaError_t vectors(const float* in, const float* absent, float* out, int64_t n) {
  if (!vector_aligned(in, out) || vector_aligned(in + 1)) return cudaErrorInvalidValue;
  copy_vectors<<<(n / 4 + 31) / 32, 32>>>(in, absent, out, n / 4);
  return cudaGetLastError();
}

cudaError_t vectors_evict_last(const float* in, float* out, int64_t groups, int64_t all) {
  copy_evict_last<4><<<1, all>>>(in, out, groups);
  return cudaGetLastError();
}

cudaError_t elements_evict_last(const float* in, float* out, int64_t groups, int64_t all) {
  copy_evict_last<1><<<1, all>>>(in, out, groups);
  return cudaGetLastError();
}

cudaError_t packs(const float* in, uint32_t* float16s, uint32_t* bfloat16s) {
  pack_pairs<<<1, 64>>>(in, float16s, bfloat16s);
  return cudaGetLastError();
}

// The swizzled offsets of 16-byte chunks.
cudaError_t swizzles(int64_t* places, int64_t rows) {
  for (int64_t i = 0; i < 8 * rows; ++i) places[i] = swizzled(int(i / 8), int(i % 8));
  return cudaSuccess;
}

cudaError_t groups_of_8(const float* in, float* out) {
  sum_groups<8><<<1, 64>>>(in, out);
  return cudaGetLastError();
}

cudaError_t argmax_of_8(const float* in, float* values, int* places) {
  argmax_of_groups<8><<<1, 64>>>(in, values, places);
  return cudaGetLastError();
}

cudaError_t order_float32(const float* in, uint32_t* keys, float* again, int n) {
  order<<<(n + 63) / 64, 64>>>(in, keys, again, n);
  return cudaGetLastError();
}

cudaError_t order_float64(const double* in, uint64_t* keys, double* again, int n) {
  order<<<(n + 63) / 64, 64>>>(in, keys, again, n);
  return cudaGetLastError();
}

cudaError_t order_float16(const float16* in, uint16_t* keys, float16* again, int n) {
  order<<<(n + 63) / 64, 64>>>(in, keys, again, n);
  return cudaGetLastError();
}

cudaError_t order_bfloat16(const bfloat16* in, uint16_t* keys, bfloat16* again, int n) {
  order<<<(n + 63) / 64, 64>>>(in, keys, again, n);
  return cudaGetLastError();
}

cudaError_t argmax_by_key(const float* in, unsigned long long* largest, float* value, int* place, int n) {
  find_largest<<<(n + 63) / 64, 64>>>(in, largest, n);
  tell_largest<<<1, 1>>>(largest, value, place);
  return cudaGetLastError();
}

cudaError_t signed_bytes(const float* a, const float* b, int8_t* bytes, int32_t* sums) {
  multiply_bytes<<<1, 32>>>(a, b, bytes, sums);
  return cudaGetLastError();
}

cudaError_t unsigned_bytes(const float* a, const float* b, uint8_t* bytes, uint32_t* sums) {
  multiply_bytes<<<1, 32>>>(a, b, bytes, sums);
  return cudaGetLastError();
}

cudaError_t decoded(float* e4m3s, float* e5m2s) {
  decode_codes<<<1, 64>>>(e4m3s, e5m2s);
  return cudaGetLastError();
}

cudaError_t view_of_32_bits(
    const float* in, float* out, const int64_t* sizes, const int64_t* from, const int64_t* to, int dimensions, int n) {
  copy_view<int><<<2, 64>>>({in, layout(dimensions, sizes, from)}, {out, layout(dimensions, sizes, to)}, n);
  return cudaGetLastError();
}

cudaError_t view_of_64_bits(
    const float* in, float* out, const int64_t* sizes, const int64_t* from, const int64_t* to, int dimensions, int n) {
  copy_view<int64_t><<<2, 64>>>({in, layout(dimensions, sizes, from)}, {out, layout(dimensions, sizes, to)}, n);
  return cudaGetLastError();
}

cudaError_t reduced_by_lanes(const float* in, float* a, float* b, float* c, int64_t* d, int64_t rows, int64_t n) {
  reduce_rows<LaneGroup<8>><<<3, 64>>>(in, a, b, c, d, rows, n);
  return cudaGetLastError();
}

cudaError_t reduced_by_block(const float* in, float* a, float* b, float* c, int64_t* d, int64_t rows, int64_t n) {
  reduce_rows<BlockGroup><<<3, 96>>>(in, a, b, c, d, rows, n);
  return cudaGetLastError();
}

cudaError_t reduced_by_part(const float* in, float* a, float* b, float* c, int64_t* d, int64_t rows, int64_t n) {
  reduce_rows<SubBlockGroup><<<2, dim3(64, 3)>>>(in, a, b, c, d, rows, n);
  return cudaGetLastError();
}

cudaError_t reduced_by_cluster(const float* in, float* a, float* b, float* c, int64_t* d, int64_t rows, int64_t n) {
  return launch_cluster(reduce_rows<ClusterGroup>, 6, 64, 0, 3, in, a, b, c, d, rows, n);
}

cudaError_t rows_by_lanes(const float* in, float* sums, int* taken, int64_t rows, int64_t n) {
  sum_rows<LaneGroup<8>><<<3, 64>>>(in, sums, taken, rows, n);
  return cudaGetLastError();
}

cudaError_t rows_by_block(const float* in, float* sums, int* taken, int64_t rows, int64_t n) {
  sum_rows<BlockGroup><<<3, 96>>>(in, sums, taken, rows, n);
  return cudaGetLastError();
}

cudaError_t rows_by_part(const float* in, float* sums, int* taken, int64_t rows, int64_t n) {
  sum_rows<SubBlockGroup><<<2, dim3(64, 3)>>>(in, sums, taken, rows, n);
  return cudaGetLastError();
}

cudaError_t rows_by_cluster(const float* in, float* sums, int* taken, int64_t rows, int64_t n) {
  return launch_cluster(sum_rows<ClusterGroup>, 8, 64, 0, 4, in, sums, taken, rows, n);
}

cudaError_t held_by_lanes(const float* in, const float* other, float* sum, float* doubled, int64_t rows, int64_t n) {
  change_rows<LaneGroup<8>, 4, 3><<<(rows + 7) / 8, 64>>>(in, other, sum, doubled, rows, n);
  return cudaGetLastError();
}

cudaError_t held_by_block(const float* in, const float* other, float* sum, float* doubled, int64_t rows, int64_t n) {
  change_rows<BlockGroup, 1, 2><<<rows, 64>>>(in, other, sum, doubled, rows, n);
  return cudaGetLastError();
}

cudaError_t read_by_block(const float* in, const float* other, float* sum, float* doubled, int64_t rows, int64_t n) {
  change_rows<BlockGroup, 1, 0><<<rows, 32>>>(in, other, sum, doubled, rows, n);
  return cudaGetLastError();
}

cudaError_t columns_by_lanes(
    const float* in, float* out, float* partial, float* sums, int64_t rows, int64_t n, int64_t blocks) {
  return launch_sum_columns_by<LaneGroup<8>, 4, 2>(in, out, partial, sums, rows, n, blocks, 64);
}

cudaError_t columns_by_block(
    const float* in, float* out, float* partial, float* sums, int64_t rows, int64_t n, int64_t blocks) {
  return launch_sum_columns_by<BlockGroup, 1, 2>(in, out, partial, sums, rows, n, blocks, 64);
}

cudaError_t columns_by_part(
    const float* in, float* out, float* partial, float* sums, int64_t rows, int64_t n, int64_t blocks) {
  return launch_sum_columns_by<SubBlockGroup, 1, 1>(in, out, partial, sums, rows, n, blocks, dim3(64, 3));
}

// Of the tile for a row of so many accesses: the group (0: lanes of a warp, 1: a warp, 2: a block that holds the row,
// 3: a cluster, 4: a block that cannot hold it), its threads, its blocks, and the accesses that a thread holds.
cudaError_t tile_for(int64_t accesses, int64_t* result) {
  return visit_tile<4, 2, 4>(accesses, 128, [&](const auto& tile) {
    using Tile = std::decay_t<decltype(tile)>;
    using Group = typename Tile::Group;
    result[0] = std::is_same_v<Group, LaneGroup<8>>    ? 0
                : std::is_same_v<Group, LaneGroup<32>> ? 1
                : std::is_same_v<Group, ClusterGroup>  ? 3
                : Tile::kAccesses > 0                  ? 2
                                                       : 4;
    result[1] = tile.threads;
    result[2] = tile.blocks_per_group;
    result[3] = Tile::kAccesses;
    return cudaSuccess;
  });
}

// The threads and thread groups of a persistent kernel's block of up to 512 threads. 0 threads: groups of 8 lanes.
cudaError_t filled_block(int64_t threads, int64_t rows, int64_t* result) {
  const auto fill = [&](const auto& tile) {
    const auto full = fill_block<2>(tile, 512, rows);
    result[0] = full.threads;
    result[1] = full.groups_per_block;
    return cudaSuccess;
  };
  if (threads == 0) return fill(Tile<LaneGroup<8>, 4, 2>{kLaneGroupThreads, kLaneGroupThreads / 8, 1});
  return fill(Tile<BlockGroup, 4, 2>{static_cast<int>(threads), 1, 1});
}

// The blocks of a persistent kernel for so many rows, if two fit on a multiprocessor and a cluster of four takes a row.
cudaError_t resident_blocks(int64_t rows, int64_t* result) {
  const Tile<ClusterGroup, 4, 2> tile{128, 1, 4};
  *result = persistent_blocks(multiply_small, tile, rows, 2, 0);
  return cudaSuccess;
}

cudaError_t small_products(const float16* a, const float16* b, float* out, float* again, float16* copy) {
  multiply_small<<<1, 32>>>(a, b, out, again, copy);
  return cudaGetLastError();
}

cudaError_t tiled_product(const float16* a, const float16* b, float* out, int64_t m, int64_t n, int64_t k) {
  constexpr int kColumns = 32, kCluster = 2;
  Maps maps;
  if (const cudaError_t error = tma::describe(maps.a, a, m, k, kBox)) return error;
  if (const cudaError_t error = tma::describe(maps.b, b, n, k, kColumns / kCluster)) return error;
  const dim3 blocks(m / kBox, n / kColumns);
  const size_t shared = 2 * (kBox + kColumns) * kSwizzleRow;
  const auto kernel = multiply_tiles<kColumns, kCluster>;
  return launch_cluster(
      kernel, blocks, 2 * kWarpgroup, shared, kCluster, maps, out, int(n), int((k + kBox - 1) / kBox));
}

cudaError_t moved_tiles(
    const float16* in, float16* out, int64_t rows, int64_t columns, int64_t out_rows, int64_t out_columns) {
  Maps maps;
  if (const cudaError_t error = tma::describe(maps.a, in, rows, columns, kBox)) return error;
  if (const cudaError_t error = tma::describe(maps.out, out, out_rows, out_columns, kBox)) return error;
  const dim3 blocks((out_rows + kBox - 1) / kBox, (out_columns + kBox - 1) / kBox);
  move_tiles<<<blocks, 32, kBox * kSwizzleRow>>>(maps, int(rows), int(columns));
  return cudaGetLastError();
}

cudaError_t handed_over(const float* in, float* out, int64_t turns) {
  hand_over<<<1, 2 * kWarpgroup>>>(in, out, int(turns));
  return cudaGetLastError();
}

// A ring's position after so many steps at once, and after as many single steps.
cudaError_t ring_positions(int64_t* places, int64_t steps) {
  RingPosition<3> at_once, one_by_one;
  at_once.advance(2);
  one_by_one.advance(), one_by_one.advance();
  at_once.advance(static_cast<int>(steps));
  for (int64_t i = 0; i < steps; ++i) one_by_one.advance();
  const int64_t positions[] = {at_once.stage(), at_once.parity(), one_by_one.stage(), one_by_one.parity()};
  std::copy_n(positions, 4, places);
  return cudaSuccess;
}

// Replaces each number by its quotient.
cudaError_t quotients(int64_t* numbers, int64_t count, int64_t divisor) {
  const Divisor by(static_cast<int>(divisor));
  std::transform(numbers, numbers + count, numbers, [&](int64_t n) { return by.divide(static_cast<int>(n)); });
  return cudaSuccess;
}

// The blocks that have a group for each of `rows` rows.
cudaError_t blocks_for_many_rows(int64_t* blocks, int64_t rows) {
  *blocks = blocks_for_rows(Tile<LaneGroup<8>, 1, 1>{kLaneGroupThreads, kLaneGroupThreads / 8, 1}, rows);
  return cudaSuccess;
}
}
