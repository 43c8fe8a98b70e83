// Asynchronous copies in forms that the project's own kernels do not use.

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include <thread>

namespace {

__device__ uint32_t window(const void* shared) {
  return uint32_t(__cvta_generic_to_shared(shared));
}

__device__ void start(uint64_t* barrier) {
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(window(barrier)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
}

__device__ void expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(window(barrier)), "r"(bytes) : "memory");
}

__device__ void wait(uint64_t* barrier) {
  asm volatile(
      "{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n@!p bra again;\n}" ::"r"(
          window(barrier))
      : "memory");
}

__device__ uint32_t at_rank(const void* shared, uint32_t rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(window(shared)), "r"(rank));
  return there;
}

__device__ void meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace

// Lanes whose `ignored` is not 0 get zeros.
__global__ void some_lanes(const int4* in, const int* ignored, int4* out) {
  __shared__ int4 row[32];
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, p;}" ::"r"(
          window(row + threadIdx.x)),
      "l"(in + threadIdx.x), "r"(ignored[threadIdx.x])
      : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  out[threadIdx.x] = row[threadIdx.x];
}
extern "C" cudaError_t copy_some_lanes(const int4* in, const int* ignored, int4* out) {
  some_lanes<<<1, 32>>>(in, ignored, out);
  return cudaDeviceSynchronize();
}

// Combines 512 bytes of `in` with those of `out`.
#define REDUCTION(name, operation) \
  __global__ void name##_kernel(const uint64_t* in, uint64_t* out) { \
    __shared__ alignas(128) uint64_t values[64]; \
    values[threadIdx.x] = in[threadIdx.x]; \
    asm volatile("fence.proxy.async;" ::: "memory"); \
    __syncthreads(); \
    if (threadIdx.x == 0) { \
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." operation " [%0], [%1], 512;" ::"l"(out), \
                   "r"(window(values)) \
                   : "memory"); \
      asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory"); \
    } \
  } \
  extern "C" cudaError_t name(const uint64_t* in, uint64_t* out) { \
    name##_kernel<<<1, 64>>>(in, out); \
    return cudaDeviceSynchronize(); \
  }
REDUCTION(add_f32, "add.f32")
REDUCTION(add_f64, "add.f64")
REDUCTION(add_f16, "add.noftz.f16")
REDUCTION(add_s32, "add.s32")
REDUCTION(add_u64, "add.u64")
REDUCTION(min_bf16, "min.bf16")
REDUCTION(max_s32, "max.s32")
REDUCTION(xor_b64, "xor.b64")

// Bulk stores of a row in shared memory: after a cp.async, which a fence may precede, and plain stores; and after atomic
// operations that follow the first store's fence.
__global__ void stored_after_fences(const int4* in, int4* out) {
  __shared__ alignas(128) int4 row[32];
  __shared__ uint64_t barrier;
  start(&barrier);
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(window(row)), "l"(in) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(window(&barrier)) : "memory");
  } else {
    row[threadIdx.x] = in[threadIdx.x];
  }
  asm volatile("fence.proxy.async;" ::: "memory");
  wait(&barrier);
  for (int store = 0; store < 2; ++store) {
    if (store > 0) atomicAdd(&row[threadIdx.x].x, 1);
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;" ::"l"(out + 32 * store),
                   "r"(window(row))
                   : "memory");
      asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
    __syncthreads();
  }
}
extern "C" cudaError_t store_after_fences(const int4* in, int4* out) {
  stored_after_fences<<<1, 32>>>(in, out);
  return cudaDeviceSynchronize();
}

// A block sends its values to the other one of the cluster; and each loads half of `in` for both.
__global__ void __cluster_dims__(2) exchanged(const uint64_t* in, uint64_t* sent, uint64_t* cast) {
  __shared__ alignas(128) uint64_t values[64], received[64], loaded[128];
  __shared__ uint64_t barriers[2];
  const uint32_t rank = blockIdx.x, other = rank ^ 1;
  start(barriers);
  start(barriers + 1);
  values[threadIdx.x] = in[64 * rank + threadIdx.x];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  meet();
  if (threadIdx.x == 0) {
    expect(barriers, sizeof(values));
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::"r"(
            at_rank(received, other)),
        "r"(window(values)), "r"(at_rank(barriers, other))
        : "memory");
    expect(barriers + 1, sizeof(loaded));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 512, [%2], "
        "%3;" ::"r"(window(loaded + 64 * rank)),
        "l"(in + 64 * rank), "r"(window(barriers + 1)), "h"(uint16_t(3))
        : "memory");
  }
  wait(barriers);
  wait(barriers + 1);
  sent[64 * rank + threadIdx.x] = received[threadIdx.x];
  cast[128 * rank + threadIdx.x] = loaded[threadIdx.x];
  cast[128 * rank + 64 + threadIdx.x] = loaded[64 + threadIdx.x];
  meet();
}
extern "C" cudaError_t exchange(const uint64_t* in, uint64_t* sent, uint64_t* cast) {
  exchanged<<<2, 64>>>(in, sent, cast);
  return cudaDeviceSynchronize();
}

// A thread stores its four numbers in the other block of the cluster straight from registers.
__global__ void __cluster_dims__(2) stored_in_other(const float4* in, float4* out) {
  __shared__ alignas(16) float4 received[32];
  __shared__ uint64_t barrier;
  const uint32_t rank = blockIdx.x, other = rank ^ 1;
  start(&barrier);
  if (threadIdx.x == 0) expect(&barrier, sizeof(received));
  meet();
  const float4 values = in[32 * rank + threadIdx.x];
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   at_rank(received + threadIdx.x, other)),
               "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w), "r"(at_rank(&barrier, other))
               : "memory");
  wait(&barrier);
  out[32 * rank + threadIdx.x] = received[threadIdx.x];
}
extern "C" cudaError_t store_in_other(const float4* in, float4* out) {
  stored_in_other<<<2, 32>>>(in, out);
  return cudaDeviceSynchronize();
}

// A box of 4 x 2 x 16 bytes of a tensor of 5 x 3 x 32.
__global__ void box_of_bytes(const __grid_constant__ CUtensorMap map, int x, int y, int z, uint8_t* out) {
  __shared__ alignas(128) uint8_t box[128];
  __shared__ uint64_t barrier;
  start(&barrier);
  __syncthreads();
  if (threadIdx.x == 0) {
    expect(&barrier, sizeof(box));
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
            "r"(window(box)),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(window(&barrier))
        : "memory");
  }
  wait(&barrier);
  out[threadIdx.x] = box[threadIdx.x];
}
CUresult map_bytes(
    CUtensorMap* map, int rank, void* data, const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box) {
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult status;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &status);
  const cuuint32_t steps[] = {1, 1, 1};
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
      map, CU_TENSOR_MAP_DATA_TYPE_UINT8, rank, data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
extern "C" cudaError_t load_box(uint8_t* in, int64_t x, int64_t y, int64_t z, uint8_t* out) {
  const cuuint64_t sizes[] = {32, 3, 5}, strides[] = {32, 96};
  const cuuint32_t box[] = {16, 2, 4};
  CUtensorMap map;
  if (map_bytes(&map, 3, in, sizes, strides, box) != CUDA_SUCCESS) return cudaErrorInvalidValue;
  box_of_bytes<<<1, 128>>>(map, int(x), int(y), int(z), out);
  return cudaDeviceSynchronize();
}

// Makes a tensor map in a new thread; `binds`: once a call of the runtime has given it a context.
extern "C" cudaError_t encode_elsewhere(uint8_t* in, bool binds, int* result) {
  std::thread([&] {
    if (binds) cudaFree(nullptr);
    const cuuint64_t size = 32;
    const cuuint32_t box = 16;
    CUtensorMap map;
    *result = map_bytes(&map, 1, in, &size, nullptr, &box);
  }).join();
  return cudaSuccess;
}

// Stores a box of 2 x 32 bytes, 0 to 63, into a tensor of 15 x 24 whose rows lie 32 bytes apart.
__global__ void stored_box(const __grid_constant__ CUtensorMap map, int x, int y) {
  __shared__ alignas(128) uint8_t box[64];
  box[threadIdx.x] = threadIdx.x;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x), "r"(y),
        "r"(window(box))
        : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
extern "C" cudaError_t store_box(uint8_t* out, int64_t x, int64_t y) {
  const cuuint64_t sizes[] = {24, 15}, strides[] = {32};
  const cuuint32_t box[] = {32, 2};
  CUtensorMap map;
  if (map_bytes(&map, 2, out, sizes, strides, box) != CUDA_SUCCESS) return cudaErrorInvalidValue;
  stored_box<<<1, 64>>>(map, int(x), int(y));
  return cudaDeviceSynchronize();
}

// One thread polls for a flag that another sets once a copy has arrived.
__global__ void announced(const int4* in, int* flag, int4* out) {
  __shared__ int4 row;
  __shared__ alignas(8) uint64_t barrier;
  start(&barrier);
  __syncthreads();
  if (threadIdx.x == 0) {
    expect(&barrier, sizeof(row));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];" ::"r"(window(&row)),
        "l"(in), "r"(window(&barrier))
        : "memory");
    wait(&barrier);
    asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory");
  }
  if (threadIdx.x == 32) {
    int set = 0;
    while (!set) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(set) : "l"(flag) : "memory");
    *out = row;
  }
}
extern "C" cudaError_t poll_for_copy(const int4* in, int* flag, int4* out) {
  announced<<<1, 64>>>(in, flag, out);
  return cudaDeviceSynchronize();
}

// Sums beside 2^-140, in shared and in global memory.
__global__ void small_sums(float* global, float* shared) {
  __shared__ float sum;
  sum = ldexpf(1, -140);
  atomicAdd(&sum, ldexpf(1, -141));
  *shared = sum;
  atomicAdd(global, ldexpf(1, -141));
}
extern "C" cudaError_t sum_small(float* global, float* shared) {
  small_sums<<<1, 1>>>(global, shared);
  return cudaDeviceSynchronize();
}
