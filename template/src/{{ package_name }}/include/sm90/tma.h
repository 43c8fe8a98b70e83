// TMA descriptors of tensors in global memory. Host code; the copies are in tma.cuh.

#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "float_types.cuh"
#include "swizzle.cuh"

namespace tma {

// Whether TMA takes a matrix: rows that start at multiples of 16 bytes, and coordinates that fit 31 bits.
template <typename T>
bool can_describe(const T* data, int64_t rows, int64_t columns) {
  constexpr int64_t kLimit = int64_t(1) << 31;
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && columns * sizeof(T) % 16 == 0 && rows > 0 && rows < kLimit &&
         columns > 0 && columns < kLimit;
}

// cuTensorMapEncodeTiled is a driver function, looked up at run time so that the library does not link against libcuda.
using Encode = decltype(&cuTensorMapEncodeTiled);

inline Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
#else
  cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
#endif
  return result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
}

// Describes a tensor of 16-bit or 8-bit elements that is copied in boxes. The first dimension is contiguous, and a box
// has `row` elements of it. If they are 128 or 64 bytes, they are a row of the swizzled tile (swizzle.cuh), which has a
// row for each index of the box's other dimensions; others, or those of a box that is not `swizzled`, lie one after the
// other. The strides, in elements, are those of the other dimensions: multiples of 16 bytes.
template <typename T, int kDims>
cudaError_t describe(
    CUtensorMap& map,
    const T* data,
    const int64_t (&sizes)[kDims],
    const int64_t (&strides)[kDims - 1],
    const int (&box)[kDims - 1],
    int row = kSwizzleRow / sizeof(T),
    CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    bool swizzled = true) {
  static_assert(sizeof(T) <= 2);
  static const Encode encode = find_encode();
  if (!encode) return cudaErrorNotSupported;
  constexpr auto type = sizeof(T) == 1               ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                        : std::is_same_v<T, float16> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                     : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  cuuint64_t extents[kDims], bytes[kDims - 1];
  cuuint32_t copied[kDims], steps[kDims];
  for (int i = 0; i < kDims; ++i) {
    extents[i] = static_cast<cuuint64_t>(sizes[i]);
    copied[i] = static_cast<cuuint32_t>(i == 0 ? row : box[i - 1]);
    steps[i] = 1;
    if (i > 0) bytes[i - 1] = static_cast<cuuint64_t>(strides[i - 1]) * sizeof(T);
  }
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  if (swizzled && row * sizeof(T) == 128) swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  if (swizzled && row * sizeof(T) == 64) swizzle = CU_TENSOR_MAP_SWIZZLE_64B;
  const auto encode_map = [&] {
    return encode(
        &map,
        type,
        kDims,
        const_cast<T*>(data),
        extents,
        bytes,
        copied,
        steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle,
        promotion,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult result = encode_map();
  if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_NOT_INITIALIZED) {
    // A new thread has no context before its first call of the runtime that needs it, and this may be the first.
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaSetDevice(device);
    if (error != cudaSuccess) return error;
    result = encode_map();
  }
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Describes a row-major matrix that is copied in boxes of `box_rows` rows. can_describe must hold. The L2 cache fetches
// pieces of `promotion` from memory.
template <typename T>
cudaError_t describe(
    CUtensorMap& map,
    const T* data,
    int64_t rows,
    int64_t columns,
    int box_rows,
    CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B) {
  return describe<T, 2>(map, data, {columns, rows}, {columns}, {box_rows}, kSwizzleRow / sizeof(T), promotion);
}

// The same in boxes of `box_columns` columns too, fewer than 128 bytes, which are not swizzled.
template <typename T>
cudaError_t describe_rows(
    CUtensorMap& map, const T* data, int64_t rows, int64_t columns, int box_rows, int box_columns) {
  constexpr auto kPromotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
  return describe<T, 2>(map, data, {columns, rows}, {columns}, {box_rows}, box_columns, kPromotion, false);
}

}  // namespace tma
