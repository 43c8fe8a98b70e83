// Cooperative groups: the toolkit's own header.

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <stdint.h>

namespace cg = cooperative_groups;

namespace {

template <int kSize>
__device__ void use_tile(cg::thread_block block, const int* in, int* row) {
  auto tile = cg::tiled_partition<kSize>(block);
  const int x = in[block.thread_rank()];
  row[0] = int(tile.thread_rank() + 1000 * tile.meta_group_rank() + 1000000 * tile.meta_group_size());
  row[1] = cg::reduce(tile, x, cg::plus<int>());
  row[2] = cg::reduce(tile, x, cg::greater<int>());
  row[3] = cg::inclusive_scan(tile, x);
  row[4] = cg::exclusive_scan(tile, x, cg::plus<int>());
  tile.sync();
}

__global__ void tiles(const int* in, int* out) {
  auto block = cg::this_thread_block();
  const int i = int(block.thread_rank());
  int* row = out + 20 * i;
  use_tile<4>(block, in, row);
  use_tile<32>(block, in, row + 5);
  auto tile = cg::tiled_partition<16>(block);
  row[10] = tile.shfl(in[i], 3);
  row[11] = tile.shfl_down(in[i], 2);
  row[12] = tile.shfl_xor(in[i], 5);
  row[13] = tile.any(in[i] > 95);
  row[14] = int(tile.ballot(in[i] & 1));
  row[15] = int(tile.match_any(in[i] % 4));
  auto dynamic = cg::tiled_partition(block, 8);
  row[16] = int(dynamic.size() * 100 + dynamic.thread_rank());
  dynamic.sync();
  auto half = cg::tiled_partition<8>(tile);
  row[17] = cg::reduce(half, in[i], cg::bit_xor<int>());
  auto parts = cg::binary_partition(tile, in[i] % 2 == 0);
  row[18] = cg::reduce(parts, in[i], cg::plus<int>());
  auto labels = cg::labeled_partition(tile, in[i] % 3);
  row[19] = int(labels.size() * 100 + labels.thread_rank());
}

__global__ void coalesced(const int* in, int* out, int* count) {
  const int i = threadIdx.x;
  out[i] = -1;
  if (in[i] % 3 == 0) {
    auto active = cg::coalesced_threads();
    int base = 0;
    if (active.thread_rank() == 0) base = atomicAdd(count, int(active.size()));
    base = active.shfl(base, 0);
    out[i] = base + int(active.thread_rank());
    active.sync();
  }
}

__global__ void large_tiles(const int* in, int* out) {
  __shared__ cg::block_tile_memory<256> memory;
  auto block = cg::this_thread_block(memory);
  auto tile = cg::tiled_partition<64>(block);
  const int i = int(block.thread_rank());
  out[2 * i] = cg::reduce(tile, in[i], cg::plus<int>());
  tile.sync();
  out[2 * i + 1] = int(tile.thread_rank() + 1000 * tile.meta_group_rank());
}

// Neighbours' sums, again and again, with a barrier of the grid between.
__global__ void relax(int* a, int* b, int n, int steps) {
  auto grid = cg::this_grid();
  for (int step = 0; step < steps; ++step) {
    for (int i = int(grid.thread_rank()); i < n; i += int(grid.size())) b[i] = a[i] + a[(i + 1) % n];
    grid.sync();
    int* t = a;
    a = b;
    b = t;
  }
}

__global__ void copies(const float* in, float* out, int n) {
  extern __shared__ float buffer[];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, buffer, in, sizeof(float) * n);
  cg::wait(block);
  for (int i = int(block.thread_rank()); i < n; i += int(block.size())) out[i] = buffer[n - 1 - i];
}

__global__ void invoked_once(int* count) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  cg::invoke_one(tile, [&] { atomicAdd(count, 1); });
  const int rank = cg::invoke_one_broadcast(tile, [&] { return atomicAdd(count + 1, 2) * 0 + 5; });
  if (rank != 5) atomicAdd(count + 2, 1);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Each block reads its neighbour's shared memory.
__global__ void __cluster_dims__(4, 1, 1) clusters(const int* in, int* out) {
  __shared__ int values[32];
  auto cluster = cg::this_cluster();
  auto block = cg::this_thread_block();
  const int i = int(block.thread_rank());
  values[i] = in[cluster.block_rank() * 32 + i];
  cluster.sync();
  const unsigned neighbour = (cluster.block_rank() + 1) % cluster.num_blocks();
  const int* other = cluster.map_shared_rank(values, neighbour);
  out[blockIdx.x * 32 + i] = other[31 - i] + 1000 * int(cluster.query_shared_rank(other));
  auto token = cluster.barrier_arrive();
  out[blockIdx.x * 32 + i] += 0;
  cluster.barrier_wait(std::move(token));
}
#endif

}  // namespace

extern "C" {

cudaError_t partition(const int* in, int* out) {
  tiles<<<1, 64>>>(in, out);
  return cudaGetLastError();
}
cudaError_t coalesce(const int* in, int* out, int* count) {
  coalesced<<<1, 64>>>(in, out, count);
  return cudaGetLastError();
}
cudaError_t partition_large(const int* in, int* out) {
  large_tiles<<<1, 256>>>(in, out);
  return cudaGetLastError();
}
cudaError_t relax_grid(int* a, int* b, int64_t n, int64_t steps) {
  int elements = int(n), count = int(steps);
  void* arguments[] = {&a, &b, &elements, &count};
  return cudaLaunchCooperativeKernel((void*)relax, dim3(4), dim3(64), arguments, 0, nullptr);
}
cudaError_t copy_async(const float* in, float* out, int64_t n) {
  copies<<<1, 64, n * sizeof(float)>>>(in, out, int(n));
  return cudaGetLastError();
}
cudaError_t invoke(int* count) {
  invoked_once<<<1, 64>>>(count);
  return cudaGetLastError();
}
cudaError_t cluster_neighbours(const int* in, int* out) {
#ifdef NO_CLUSTERS
  return cudaErrorNotSupported;
#else
  clusters<<<8, 32>>>(in, out);
  return cudaGetLastError();
#endif
}
}
