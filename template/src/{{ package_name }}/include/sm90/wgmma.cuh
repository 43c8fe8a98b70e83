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
// begins 16 rows of 128 bytes after k = 0. Rows of kRow = 64 bytes hold half as many elements each.
template <int kRow = kSwizzleRow>
__device__ uint64_t wgmma_operand(const void* shared, int panel_bytes = 0) {
  static_assert(kRow == 128 || kRow == 64);
  constexpr uint64_t kEightRows = 8 * kRow, kSwizzle = uint64_t(kRow == 128 ? 1 : 2) << 62;
  const uint64_t address = shared_address(shared) & 0x3ffff;
  return address >> 4 | uint64_t(panel_bytes >> 4) << 16 | (kEightRows >> 4) << 32 | kSwizzle;
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
#define NAMES_0_4 "%0, %1, %2, %3"
#define NAMES_4_8 "%4, %5, %6, %7"
#define NAMES_8_12 "%8, %9, %10, %11"
#define NAMES_12_16 "%12, %13, %14, %15"
#define NAMES_16_20 "%16, %17, %18, %19"
#define NAMES_20_24 "%20, %21, %22, %23"
#define NAMES_24_28 "%24, %25, %26, %27"
#define NAMES_28_32 "%28, %29, %30, %31"
#define NAMES_32_36 "%32, %33, %34, %35"
#define NAMES_36_40 "%36, %37, %38, %39"
#define NAMES_40_44 "%40, %41, %42, %43"
#define NAMES_44_48 "%44, %45, %46, %47"
#define NAMES_48_52 "%48, %49, %50, %51"
#define NAMES_52_56 "%52, %53, %54, %55"
#define NAMES_56_60 "%56, %57, %58, %59"
#define NAMES_60_64 "%60, %61, %62, %63"
#define NAMES_64_68 "%64, %65, %66, %67"
#define NAMES_68_72 "%68, %69, %70, %71"
#define NAMES_72_76 "%72, %73, %74, %75"
#define NAMES_76_80 "%76, %77, %78, %79"
#define NAMES_80_84 "%80, %81, %82, %83"
#define NAMES_84_88 "%84, %85, %86, %87"
#define NAMES_88_92 "%88, %89, %90, %91"
#define NAMES_92_96 "%92, %93, %94, %95"
#define NAMES_96_100 "%96, %97, %98, %99"
#define NAMES_100_104 "%100, %101, %102, %103"
#define NAMES_104_108 "%104, %105, %106, %107"
#define NAMES_108_112 "%108, %109, %110, %111"
#define NAMES_112_116 "%112, %113, %114, %115"
#define NAMES_116_120 "%116, %117, %118, %119"
#define NAMES_120_124 "%120, %121, %122, %123"
#define NAMES_124_128 "%124, %125, %126, %127"
#define NAMES_4 NAMES_0_4
#define NAMES_8 NAMES_4 ", " NAMES_4_8
#define NAMES_12 NAMES_8 ", " NAMES_8_12
#define NAMES_16 NAMES_12 ", " NAMES_12_16
#define NAMES_20 NAMES_16 ", " NAMES_16_20
#define NAMES_24 NAMES_20 ", " NAMES_20_24
#define NAMES_28 NAMES_24 ", " NAMES_24_28
#define NAMES_32 NAMES_28 ", " NAMES_28_32
#define NAMES_36 NAMES_32 ", " NAMES_32_36
#define NAMES_40 NAMES_36 ", " NAMES_36_40
#define NAMES_44 NAMES_40 ", " NAMES_40_44
#define NAMES_48 NAMES_44 ", " NAMES_44_48
#define NAMES_52 NAMES_48 ", " NAMES_48_52
#define NAMES_56 NAMES_52 ", " NAMES_52_56
#define NAMES_60 NAMES_56 ", " NAMES_56_60
#define NAMES_64 NAMES_60 ", " NAMES_60_64
#define NAMES_68 NAMES_64 ", " NAMES_64_68
#define NAMES_72 NAMES_68 ", " NAMES_68_72
#define NAMES_76 NAMES_72 ", " NAMES_72_76
#define NAMES_80 NAMES_76 ", " NAMES_76_80
#define NAMES_84 NAMES_80 ", " NAMES_80_84
#define NAMES_88 NAMES_84 ", " NAMES_84_88
#define NAMES_92 NAMES_88 ", " NAMES_88_92
#define NAMES_96 NAMES_92 ", " NAMES_92_96
#define NAMES_100 NAMES_96 ", " NAMES_96_100
#define NAMES_104 NAMES_100 ", " NAMES_100_104
#define NAMES_108 NAMES_104 ", " NAMES_104_108
#define NAMES_112 NAMES_108 ", " NAMES_108_112
#define NAMES_116 NAMES_112 ", " NAMES_112_116
#define NAMES_120 NAMES_116 ", " NAMES_116_120
#define NAMES_124 NAMES_120 ", " NAMES_120_124
#define NAMES_128 NAMES_124 ", " NAMES_124_128
#define SUM_4(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SUM_8(i) SUM_4(i), SUM_4(i + 4)
#define SUM_12(i) SUM_8(i), SUM_4(i + 8)
#define SUM_16(i) SUM_12(i), SUM_4(i + 12)
#define SUM_20(i) SUM_16(i), SUM_4(i + 16)
#define SUM_24(i) SUM_20(i), SUM_4(i + 20)
#define SUM_28(i) SUM_24(i), SUM_4(i + 24)
#define SUM_32(i) SUM_28(i), SUM_4(i + 28)
#define SUM_36(i) SUM_32(i), SUM_4(i + 32)
#define SUM_40(i) SUM_36(i), SUM_4(i + 36)
#define SUM_44(i) SUM_40(i), SUM_4(i + 40)
#define SUM_48(i) SUM_44(i), SUM_4(i + 44)
#define SUM_52(i) SUM_48(i), SUM_4(i + 48)
#define SUM_56(i) SUM_52(i), SUM_4(i + 52)
#define SUM_60(i) SUM_56(i), SUM_4(i + 56)
#define SUM_64(i) SUM_60(i), SUM_4(i + 60)
#define SUM_68(i) SUM_64(i), SUM_4(i + 64)
#define SUM_72(i) SUM_68(i), SUM_4(i + 68)
#define SUM_76(i) SUM_72(i), SUM_4(i + 72)
#define SUM_80(i) SUM_76(i), SUM_4(i + 76)
#define SUM_84(i) SUM_80(i), SUM_4(i + 80)
#define SUM_88(i) SUM_84(i), SUM_4(i + 84)
#define SUM_92(i) SUM_88(i), SUM_4(i + 88)
#define SUM_96(i) SUM_92(i), SUM_4(i + 92)
#define SUM_100(i) SUM_96(i), SUM_4(i + 96)
#define SUM_104(i) SUM_100(i), SUM_4(i + 100)
#define SUM_108(i) SUM_104(i), SUM_4(i + 104)
#define SUM_112(i) SUM_108(i), SUM_4(i + 108)
#define SUM_116(i) SUM_112(i), SUM_4(i + 112)
#define SUM_120(i) SUM_116(i), SUM_4(i + 116)
#define SUM_124(i) SUM_120(i), SUM_4(i + 120)
#define SUM_128(i) SUM_124(i), SUM_4(i + 124)

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
WGMMA_BOTH(48, 24, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
WGMMA_BOTH(56, 28, "%28", "%29", "%30", "%31", "%32", "%33", "%34")
WGMMA_BOTH(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
WGMMA_BOTH(72, 36, "%36", "%37", "%38", "%39", "%40", "%41", "%42")
WGMMA_BOTH(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
WGMMA_BOTH(88, 44, "%44", "%45", "%46", "%47", "%48", "%49", "%50")
WGMMA_BOTH(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
WGMMA_BOTH(104, 52, "%52", "%53", "%54", "%55", "%56", "%57", "%58")
WGMMA_BOTH(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
WGMMA_BOTH(120, 60, "%60", "%61", "%62", "%63", "%64", "%65", "%66")
WGMMA_BOTH(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
WGMMA_BOTH(136, 68, "%68", "%69", "%70", "%71", "%72", "%73", "%74")
WGMMA_BOTH(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
WGMMA_BOTH(152, 76, "%76", "%77", "%78", "%79", "%80", "%81", "%82")
WGMMA_BOTH(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
WGMMA_BOTH(168, 84, "%84", "%85", "%86", "%87", "%88", "%89", "%90")
WGMMA_BOTH(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
WGMMA_BOTH(184, 92, "%92", "%93", "%94", "%95", "%96", "%97", "%98")
WGMMA_BOTH(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
WGMMA_BOTH(208, 104, "%104", "%105", "%106", "%107", "%108", "%109", "%110")
WGMMA_BOTH(224, 112, "%112", "%113", "%114", "%115", "%116", "%117", "%118")
WGMMA_BOTH(240, 120, "%120", "%121", "%122", "%123", "%124", "%125", "%126")
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
#undef SUM_124
#undef SUM_120
#undef SUM_116
#undef SUM_112
#undef SUM_108
#undef SUM_104
#undef SUM_100
#undef SUM_96
#undef SUM_92
#undef SUM_88
#undef SUM_84
#undef SUM_80
#undef SUM_76
#undef SUM_72
#undef SUM_68
#undef SUM_64
#undef SUM_60
#undef SUM_56
#undef SUM_52
#undef SUM_48
#undef SUM_44
#undef SUM_40
#undef SUM_36
#undef SUM_32
#undef SUM_28
#undef SUM_24
#undef SUM_20
#undef SUM_16
#undef SUM_12
#undef SUM_8
#undef SUM_4
#undef NAMES_128
#undef NAMES_124
#undef NAMES_120
#undef NAMES_116
#undef NAMES_112
#undef NAMES_108
#undef NAMES_104
#undef NAMES_100
#undef NAMES_96
#undef NAMES_92
#undef NAMES_88
#undef NAMES_84
#undef NAMES_80
#undef NAMES_76
#undef NAMES_72
#undef NAMES_68
#undef NAMES_64
#undef NAMES_60
#undef NAMES_56
#undef NAMES_52
#undef NAMES_48
#undef NAMES_44
#undef NAMES_40
#undef NAMES_36
#undef NAMES_32
#undef NAMES_28
#undef NAMES_24
#undef NAMES_20
#undef NAMES_16
#undef NAMES_12
#undef NAMES_8
#undef NAMES_4
#undef NAMES_124_128
#undef NAMES_120_124
#undef NAMES_116_120
#undef NAMES_112_116
#undef NAMES_108_112
#undef NAMES_104_108
#undef NAMES_100_104
#undef NAMES_96_100
#undef NAMES_92_96
#undef NAMES_88_92
#undef NAMES_84_88
#undef NAMES_80_84
#undef NAMES_76_80
#undef NAMES_72_76
#undef NAMES_68_72
#undef NAMES_64_68
#undef NAMES_60_64
#undef NAMES_56_60
#undef NAMES_52_56
#undef NAMES_48_52
#undef NAMES_44_48
#undef NAMES_40_44
#undef NAMES_36_40
#undef NAMES_32_36
#undef NAMES_28_32
#undef NAMES_24_28
#undef NAMES_20_24
#undef NAMES_16_20
#undef NAMES_12_16
#undef NAMES_8_12
#undef NAMES_4_8
#undef NAMES_0_4

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
