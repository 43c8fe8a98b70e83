// Asynchronous matrix products by a warpgroup, with operands in shared memory or registers (wgmma, sm_90a).
//
// The accumulator is 64xN in float32. Warp w of the warpgroup holds rows 16w to 16w + 15, every 8 columns in the layout
// of mma.cuh's mma_16x8x16: in lane i, sum[4j] and sum[4j + 1] are columns 8j + 2(i % 4) and the next of row i / 4, and
// sum[4j + 2] and sum[4j + 3] the same columns of row i / 4 + 8.
//
// A product takes 32 bytes of the inner dimension: 16 elements of 16 bits, or 32 of 8. The order is wgmma_fence,
// products, wgmma_commit; then wgmma_wait, before the accumulator is read or the operands are overwritten.
//
// The accumulator of 8-bit elements is kept to about 14 bits of fraction inside the tensor core: what few products add
// up to goes to a sum in float32 (promotion), or the error grows with k.

#pragma once

#include <cstdint>

#include "float_types.cuh"
#include "shared_address.cuh"
#include "swizzle.cuh"

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending of the latest groups are in flight.
template <int kPending>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving uses of the accumulator past a wgmma_fence or wgmma_wait.
template <int kSize>
__device__ void wgmma_pin(float (&sum)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(sum[i]));
}

// The same for left operands in registers.
template <int kSteps>
__device__ void wgmma_pin(uint32_t (&a)[kSteps][4]) {
#pragma unroll
  for (int i = 0; i < 4 * kSteps; ++i) asm volatile("" : "+r"(a[i / 4][i % 4]));
}

// The matrix descriptor of an operand in shared memory, in the layout of swizzle.cuh.
//
// A row of 128 bytes holds 64 elements of the inner dimension k (of 8-bit elements 128, and the operand may not be
// transposed); the next product's begin 32 bytes after those of k = 0. In a transposed operand a row of 128 bytes holds
// 64 rows of `a`, or 64 columns of b, for one k; `panel_bytes` is the distance to the next 64 of those, and k = 16
// begins 16 rows of 128 bytes after k = 0.
__device__ inline uint64_t wgmma_operand(const void* shared, int panel_bytes = 0) {
  constexpr uint64_t kEightRows = 8 * kSwizzleRow, kSwizzle128 = uint64_t(1) << 62;
  const uint64_t address = shared_address(shared) & 0x3ffff;
  return address >> 4 | uint64_t(panel_bytes >> 4) << 16 | (kEightRows >> 4) << 32 | kSwizzle128;
}

// What to add to a descriptor to advance it by so many bytes: its unit is 16 bytes.
__host__ __device__ constexpr uint64_t wgmma_bytes(int bytes) {
  return bytes / 16;
}

// Which operands are transposed in shared memory.
enum class Transposed { kNone, kB, kBoth };

namespace wgmma_shapes {

template <typename T, int N>
struct Shape;

// The names of the accumulator's registers in the instruction, and the operands that they stand for.
#define NAMES_0_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES_8_16 "%8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_16_32 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_32_40 "%32, %33, %34, %35, %36, %37, %38, %39"
#define NAMES_32_48 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_48_64 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_64_80 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define NAMES_80_96 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_96_128 \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define NAMES_8 NAMES_0_8
#define NAMES_16 NAMES_8 ", " NAMES_8_16
#define NAMES_32 NAMES_16 ", " NAMES_16_32
#define NAMES_40 NAMES_32 ", " NAMES_32_40
#define NAMES_48 NAMES_32 ", " NAMES_32_48
#define NAMES_64 NAMES_48 ", " NAMES_48_64
#define NAMES_80 NAMES_64 ", " NAMES_64_80
#define NAMES_96 NAMES_80 ", " NAMES_80_96
#define NAMES_128 NAMES_96 ", " NAMES_96_128
#define SUM_4(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SUM_8(i) SUM_4(i), SUM_4(i + 4)
#define SUM_16(i) SUM_8(i), SUM_8(i + 8)
#define SUM_32(i) SUM_16(i), SUM_16(i + 16)
#define SUM_40(i) SUM_32(i), SUM_8(i + 32)
#define SUM_48(i) SUM_32(i), SUM_16(i + 32)
#define SUM_64(i) SUM_32(i), SUM_32(i + 32)
#define SUM_80(i) SUM_64(i), SUM_16(i + 64)
#define SUM_96(i) SUM_64(i), SUM_32(i + 64)
#define SUM_128(i) SUM_64(i), SUM_64(i + 64)

// One shape and type: `size` is N / 2, the registers of the accumulator; p0 to p6 name the operands after them.
#define WGMMA(T, type, N, size, p0, p1, p2, p3, p4, p5, p6) \
  template <> \
  struct Shape<T, N> { \
    template <Transposed kTransposed> \
    static __device__ void multiply(float (&sum)[size], uint64_t a, uint64_t b, bool adds) { \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " p2 \
                   ", 0;\n" \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" NAMES_##size \
                   "}, " p0 ", " p1 ", adds, 1, 1, " p3 ", " p4 ";\n}" \
                   : SUM_##size(0) \
                   : "l"(a), \
                     "l"(b), \
                     "r"(int(adds)), \
                     "n"(int(kTransposed == Transposed::kBoth)), \
                     "n"(int(kTransposed != Transposed::kNone))); \
    } \
    template <Transposed kTransposed> \
    static __device__ void multiply(float (&sum)[size], const uint32_t (&a)[4], uint64_t b, bool adds) { \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " p5 \
                   ", 0;\n" \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" NAMES_##size \
                   "}, {" p0 ", " p1 ", " p2 ", " p3 "}, " p4 ", adds, 1, 1, " p6 ";\n}" \
                   : SUM_##size(0) \
                   : "r"(a[0]), \
                     "r"(a[1]), \
                     "r"(a[2]), \
                     "r"(a[3]), \
                     "l"(b), \
                     "r"(int(adds)), \
                     "n"(int(kTransposed == Transposed::kB))); \
    } \
  };
#define WGMMA_BOTH(N, size, ...) \
  WGMMA(float16, "f16", N, size, __VA_ARGS__) WGMMA(bfloat16, "bf16", N, size, __VA_ARGS__)
WGMMA_BOTH(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
WGMMA_BOTH(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
WGMMA_BOTH(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
WGMMA_BOTH(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
WGMMA_BOTH(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
WGMMA_BOTH(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
WGMMA_BOTH(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
WGMMA_BOTH(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
WGMMA_BOTH(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
#undef WGMMA_BOTH
#undef WGMMA

// The same of 8-bit elements, which are never transposed.
#define WGMMA_FP8(T, left, right, N, size, p0, p1, p2, p3, p4, p5) \
  template <> \
  struct Shape<T, N> { \
    template <Transposed kTransposed> \
    static __device__ void multiply(float (&sum)[size], uint64_t a, uint64_t b, bool adds) { \
      static_assert(kTransposed == Transposed::kNone, "8-bit operands are not transposed"); \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " p2 \
                   ", 0;\n" \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32." left "." right " {" NAMES_##size \
                   "}, " p0 ", " p1 ", adds, 1, 1;\n}" \
                   : SUM_##size(0) \
                   : "l"(a), "l"(b), "r"(int(adds))); \
    } \
    template <Transposed kTransposed> \
    static __device__ void multiply(float (&sum)[size], const uint32_t (&a)[4], uint64_t b, bool adds) { \
      static_assert(kTransposed == Transposed::kNone, "8-bit operands are not transposed"); \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " p5 \
                   ", 0;\n" \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32." left "." right " {" NAMES_##size \
                   "}, {" p0 ", " p1 ", " p2 ", " p3 "}, " p4 ", adds, 1, 1;\n}" \
                   : SUM_##size(0) \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(adds))); \
    } \
  };
#define WGMMA_FP8_BOTH(N, size, ...) \
  WGMMA_FP8(e4m3, "e4m3", "e4m3", N, size, __VA_ARGS__) WGMMA_FP8(e5m2_by_e4m3, "e5m2", "e4m3", N, size, __VA_ARGS__)
WGMMA_FP8_BOTH(32, 16, "%16", "%17", "%18", "%19", "%20", "%21")
WGMMA_FP8_BOTH(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
WGMMA_FP8_BOTH(96, 48, "%48", "%49", "%50", "%51", "%52", "%53")
WGMMA_FP8_BOTH(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
WGMMA_FP8_BOTH(192, 96, "%96", "%97", "%98", "%99", "%100", "%101")
WGMMA_FP8_BOTH(256, 128, "%128", "%129", "%130", "%131", "%132", "%133")
#undef WGMMA_FP8_BOTH
#undef WGMMA_FP8
#undef SUM_128
#undef SUM_96
#undef SUM_80
#undef SUM_64
#undef SUM_48
#undef SUM_40
#undef SUM_32
#undef SUM_16
#undef SUM_8
#undef SUM_4
#undef NAMES_128
#undef NAMES_96
#undef NAMES_80
#undef NAMES_64
#undef NAMES_48
#undef NAMES_40
#undef NAMES_32
#undef NAMES_16
#undef NAMES_8
#undef NAMES_96_128
#undef NAMES_80_96
#undef NAMES_64_80
#undef NAMES_48_64
#undef NAMES_32_48
#undef NAMES_32_40
#undef NAMES_16_32
#undef NAMES_8_16
#undef NAMES_0_8

}  // namespace wgmma_shapes

// sum += a b, or sum = a b if not `adds`. `a` is 64x16 and b is 16xN (of 8-bit elements 64x32 and 32xN). Memory holds
// `a` by rows and b by columns, or the other way round where they are transposed.
template <typename T, Transposed kTransposed = Transposed::kNone, int kSize>
__device__ void wgmma(float (&sum)[kSize], uint64_t a, uint64_t b, bool adds = true) {
  wgmma_shapes::Shape<T, 2 * kSize>::template multiply<kTransposed>(sum, a, b, adds);
}

// The same with `a` from registers, as mma_16x8x16 takes it; they may change after wgmma_wait. Of 8-bit elements, lane
// i has k = 4(i % 4) to 4(i % 4) + 3 of row i / 4, then of row i / 4 + 8, then both with k + 16.
template <typename T, Transposed kTransposed = Transposed::kNone, int kSize>
__device__ void wgmma(float (&sum)[kSize], const uint32_t (&a)[4], uint64_t b, bool adds = true) {
  static_assert(kTransposed != Transposed::kBoth, "registers are not transposed");
  wgmma_shapes::Shape<T, 2 * kSize>::template multiply<kTransposed>(sum, a, b, adds);
}
