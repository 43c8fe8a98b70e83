"""Small generated kernels, a few instructions each, whose results a GPU and the emulated GPU must agree on.

A case's kernel reads some 64-bit words of `in` for each thread and writes some of `out`. Its text is CUDA C++ in which
`x` points to the thread's words of `in`, and `y` to those of `out`, which are zero at first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

import torch

from .agreement import Agreement, same_bits


@dataclass(frozen=True)
class Case:
    family: str
    instruction: str  # What is compared, for people.
    body: str
    words: list[int]  # Those of `in`.
    results: int = 1  # Words of `out`, for a thread.
    threads: int = 32  # Of a block.
    blocks: int = 1
    agreement: Agreement = field(default_factory=same_bits)
    capability: int = 75
    launch: str = ""  # How the host launches KERNEL, where it takes more than two lines.
    parameters: str = ""  # Of the kernel, before the usual ones.
    attributes: str = ""  # Such as __cluster_dims__(2, 1, 1).
    name: str = ""

    @property
    def inputs(self) -> torch.Tensor:
        return torch.tensor([word - 2**64 if word >= 2**63 else word for word in self.words], dtype=torch.int64)

    @property
    def size(self) -> int:
        """The words of `out`."""
        return self.results * self.threads * self.blocks

    @property
    def source(self) -> str:
        count = self.threads * self.blocks
        launch = self.launch or f"KERNEL<<<{self.blocks}, {self.threads}>>>(in, out);"
        return f"""
// {" ".join(self.instruction.split())}
{self.attributes} __global__ void kernel_{self.name}({self.parameters}const uint64_t* in, uint64_t* out) {{
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  const uint64_t* const x = in + {len(self.words) // count} * thread;
  uint64_t* const y = out + {self.results} * thread;
  {self.body}
}}
extern "C" int run_{self.name}(const uint64_t* words, uint64_t* results) {{
  const Memory memory(words, {len(self.words)}, {self.size});
  const uint64_t* const in = memory.in;
  uint64_t* const out = memory.out;
  {launch.replace("KERNEL", f"kernel_{self.name}")}
  return memory.finish(results);
}}
"""


PRELUDE = r"""
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <mma.h>
#include <stdint.h>

namespace {

// Copies of a case's words on the GPU.
struct Memory {
  uint64_t *in = nullptr, *out = nullptr;
  size_t results;
  Memory(const uint64_t* words, size_t count, size_t results) : results(results) {
    cudaMalloc(&in, 8 * count);
    cudaMalloc(&out, 8 * results);
    cudaMemcpy(in, words, 8 * count, cudaMemcpyHostToDevice);
    cudaMemset(out, 0, 8 * results);
  }
  int finish(uint64_t* host) const {
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess) error = cudaMemcpy(host, out, 8 * results, cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    return error;
  }
};

__device__ inline uint32_t window(const void* shared) { return uint32_t(__cvta_generic_to_shared(shared)); }
__device__ inline float as_float(uint64_t bits) { return __uint_as_float(uint32_t(bits)); }
__device__ inline double as_double(uint64_t bits) { return __longlong_as_double((long long)bits); }
__device__ inline __half as_half(uint64_t bits) { return __ushort_as_half((unsigned short)bits); }
__device__ inline __nv_bfloat16 as_bfloat(uint64_t bits) { return __ushort_as_bfloat16((unsigned short)bits); }
__device__ inline __half2 as_half2(uint64_t bits) { return __halves2half2(as_half(bits), as_half(bits >> 16)); }
__device__ inline __nv_bfloat162 as_bfloat2(uint64_t bits) {
  return __halves2bfloat162(as_bfloat(bits), as_bfloat(bits >> 16));
}
__device__ inline uint64_t bits_of(float x) { return __float_as_uint(x); }
__device__ inline uint64_t bits_of(double x) { return (uint64_t)__double_as_longlong(x); }
__device__ inline uint64_t bits_of(__half x) { return __half_as_ushort(x); }
__device__ inline uint64_t bits_of(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }
__device__ inline uint64_t bits_of(__half2 x) { return bits_of(__low2half(x)) | bits_of(__high2half(x)) << 16; }
__device__ inline uint64_t bits_of(__nv_bfloat162 x) {
  return bits_of(__low2bfloat16(x)) | bits_of(__high2bfloat16(x)) << 16;
}
template <typename T>
__device__ uint64_t bits_of(T x) { return (uint64_t)x; }

inline CUtensorMap tensor_map(
    const void* data, CUtensorMapDataType type, int bytes, int rank, const cuuint64_t* sizes, const cuuint32_t* box,
    CUtensorMapSwizzle swizzle) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &status);
  cuuint64_t strides[5] = {};
  cuuint64_t stride = bytes;
  for (int i = 0; i + 1 < rank; ++i) strides[i] = stride = (stride * sizes[i] + 15) / 16 * 16;
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
      &map, type, rank, const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

// Waits for the phase of an mbarrier.
__device__ inline void wait_for(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}"
      ::"r"(barrier), "r"(parity) : "memory");
}

}  // namespace
"""

Family = Callable[[Random], Iterator[Case]]


def cases(seed: int, families: list[Family]) -> list[Case]:
    """Every family's cases, with operands that the seed chooses."""
    listed = []
    for family in families:
        for index, case in enumerate(family(Random(f"{seed} {family.__name__}"))):
            listed.append(replace(case, name=f"{family.__name__}_{index}"))
    return listed
