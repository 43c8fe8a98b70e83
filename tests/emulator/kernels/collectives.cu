// CUB's collectives of a block and of a warp: the toolkit's own headers.

#include <stdint.h>
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_shuffle.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_exchange.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

namespace {

constexpr int kThreads = 128, kWarpThreads = 96, kItems = 4;

struct Differs {
  __device__ bool operator()(int a, int b) const { return a != b; }
};

struct Minus {
  __device__ int operator()(int a, int b) const { return a - b; }
};

struct Larger {
  __device__ int operator()(int a, int b) const { return a < b ? b : a; }
};

template <cub::BlockReduceAlgorithm kAlgorithm>
__global__ void reduce(const int* in, const float* real, int* out, float* sums) {
  using Reduce = cub::BlockReduce<int, kThreads, kAlgorithm>;
  using RealReduce = cub::BlockReduce<float, kThreads>;
  __shared__ union {
    typename Reduce::TempStorage whole;
    typename RealReduce::TempStorage real;
  } storage;
  const int i = threadIdx.x;
  const int sum = Reduce(storage.whole).Sum(in[i]);
  __syncthreads();
  const int largest = Reduce(storage.whole).Reduce(in[i], Larger());
  __syncthreads();
  const int some = Reduce(storage.whole).Sum(in[i], 50);
  __syncthreads();
  const float total = RealReduce(storage.real).Sum(real[i]);
  if (i == 0) {
    out[0] = sum;
    out[1] = largest;
    out[2] = some;
    sums[0] = total;
  }
}

template <cub::BlockScanAlgorithm kAlgorithm>
__global__ void scan(const int* in, int* out) {
  using Load = cub::BlockLoad<int, kThreads, kItems, cub::BLOCK_LOAD_TRANSPOSE>;
  using Store = cub::BlockStore<int, kThreads, kItems, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<int, kThreads, kAlgorithm>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Scan::TempStorage scan;
  } storage;
  int items[kItems], total;
  Load(storage.load).Load(in, items);
  __syncthreads();
  Scan(storage.scan).ExclusiveSum(items, items, total);
  __syncthreads();
  Store(storage.store).Store(out, items);
  if (threadIdx.x == 0) out[kThreads * kItems] = total;
}

__global__ void sort(const unsigned* keys, const int* values, unsigned* sorted, int* moved, float* reals) {
  using Sort = cub::BlockRadixSort<unsigned, kThreads, kItems, int>;
  using RealSort = cub::BlockRadixSort<float, kThreads, kItems>;
  __shared__ union {
    typename Sort::TempStorage sort;
    typename RealSort::TempStorage real;
  } storage;
  const int first = threadIdx.x * kItems;
  unsigned own[kItems];
  int payload[kItems];
  float real[kItems];
  for (int k = 0; k < kItems; ++k) {
    own[k] = keys[first + k], payload[k] = values[first + k], real[k] = reals[first + k];
  }
  Sort(storage.sort).Sort(own, payload);
  __syncthreads();
  RealSort(storage.real).SortDescending(real);
  for (int k = 0; k < kItems; ++k) {
    sorted[first + k] = own[k], moved[first + k] = payload[k], reals[first + k] = real[k];
  }
}

struct Less {
  __device__ bool operator()(int a, int b) const { return a < b; }
};

__global__ void others(const int* in, int* out) {
  using Exchange = cub::BlockExchange<int, kThreads, kItems>;
  using Heads = cub::BlockDiscontinuity<int, kThreads>;
  using Histogram = cub::BlockHistogram<unsigned char, kThreads, kItems, 16>;
  using MergeSort = cub::BlockMergeSort<int, kThreads, kItems>;
  using Difference = cub::BlockAdjacentDifference<int, kThreads>;
  __shared__ union {
    typename Exchange::TempStorage exchange;
    typename Heads::TempStorage heads;
    typename Histogram::TempStorage histogram;
    typename MergeSort::TempStorage sort;
    typename Difference::TempStorage difference;
  } storage;
  __shared__ int counts[16];
  constexpr int kAll = kThreads * kItems;
  const int i = threadIdx.x, first = i * kItems;
  int items[kItems], result[kItems];
  for (int k = 0; k < kItems; ++k) items[k] = in[first + k];
  Exchange(storage.exchange).BlockedToStriped(items, result);
  for (int k = 0; k < kItems; ++k) out[first + k] = result[k];
  __syncthreads();
  Heads(storage.heads).FlagHeads(result, items, Differs());
  for (int k = 0; k < kItems; ++k) out[kAll + first + k] = result[k];
  __syncthreads();
  unsigned char small[kItems];
  for (int k = 0; k < kItems; ++k) small[k] = static_cast<unsigned char>(items[k] % 16);
  Histogram(storage.histogram).Histogram(small, counts);
  __syncthreads();
  if (i < 16) out[4 * kAll + i] = counts[i];
  Difference(storage.difference).SubtractLeft(items, result, Minus());
  for (int k = 0; k < kItems; ++k) out[3 * kAll + first + k] = result[k];
  __syncthreads();
  MergeSort(storage.sort).Sort(items, Less());
  for (int k = 0; k < kItems; ++k) out[2 * kAll + first + k] = items[k];
}

__global__ void warps(const int* in, const float* real, int* out, float* sums) {
  using Reduce = cub::WarpReduce<float>;
  using SmallReduce = cub::WarpReduce<int, 8>;
  using Scan = cub::WarpScan<int>;
  using Exchange = cub::WarpExchange<int, kItems, 32>;
  using MergeSort = cub::WarpMergeSort<int, kItems, 32>;
  __shared__ typename Reduce::TempStorage reduce_storage[3];
  __shared__ typename SmallReduce::TempStorage small_storage[12];
  __shared__ typename Scan::TempStorage scan_storage[3];
  __shared__ typename Exchange::TempStorage exchange_storage[3];
  __shared__ typename MergeSort::TempStorage sort_storage[3];
  const int i = threadIdx.x, warp = i / 32, first = i * kItems;
  const float sum = Reduce(reduce_storage[warp]).Sum(real[i]);
  if (i % 32 == 0) sums[warp] = sum;
  const int small = SmallReduce(small_storage[i / 8]).Reduce(in[i], Larger());
  if (i % 8 == 0) out[i / 8] = small;
  int inclusive, exclusive;
  Scan(scan_storage[warp]).Scan(in[i], inclusive, exclusive, 0, Larger());
  out[100 + i] = inclusive;
  out[200 + i] = exclusive;
  int items[kItems];
  for (int k = 0; k < kItems; ++k) items[k] = in[first + k];
  Exchange(exchange_storage[warp]).StripedToBlocked(items, items);
  for (int k = 0; k < kItems; ++k) out[300 + first + k] = items[k];
  MergeSort(sort_storage[warp]).Sort(items, Less());
  for (int k = 0; k < kItems; ++k) out[700 + first + k] = items[k];
}

}  // namespace

extern "C" {

cudaError_t reduce_block(int64_t algorithm, const int* in, const float* real, int* out, float* sums) {
  if (algorithm == 0) reduce<cub::BLOCK_REDUCE_WARP_REDUCTIONS><<<1, kThreads>>>(in, real, out, sums);
  if (algorithm == 1) reduce<cub::BLOCK_REDUCE_RAKING><<<1, kThreads>>>(in, real, out, sums);
  if (algorithm == 2) reduce<cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY><<<1, kThreads>>>(in, real, out, sums);
  return cudaGetLastError();
}
cudaError_t scan_block(int64_t algorithm, const int* in, int* out) {
  if (algorithm == 0) scan<cub::BLOCK_SCAN_WARP_SCANS><<<1, kThreads>>>(in, out);
  if (algorithm == 1) scan<cub::BLOCK_SCAN_RAKING><<<1, kThreads>>>(in, out);
  return cudaGetLastError();
}
cudaError_t sort_block(const unsigned* keys, const int* values, unsigned* sorted, int* moved, float* reals) {
  sort<<<1, kThreads>>>(keys, values, sorted, moved, reals);
  return cudaGetLastError();
}
cudaError_t other_block(const int* in, int* out) {
  others<<<1, kThreads>>>(in, out);
  return cudaGetLastError();
}
cudaError_t warp_collectives(const int* in, const float* real, int* out, float* sums) {
  warps<<<1, kWarpThreads>>>(in, real, out, sums);
  return cudaGetLastError();
}
}
