// Arithmetic on the two halves or four bytes of a word, which video instructions do.

#pragma once

namespace emulator {

// Applies f to each pair of parts, taken as T; what f returns is cut to the size of T.
template <typename T, typename F>
unsigned by_part(unsigned a, unsigned b, const F& f) {
  constexpr int kBits = 8 * sizeof(T);
  unsigned result = 0;
  for (int shift = 0; shift < 32; shift += kBits) {
    result |= (unsigned(f(int(T(a >> shift)), int(T(b >> shift)))) & ((1u << kBits) - 1)) << shift;
  }
  return result;
}

template <typename T, typename F>
unsigned by_part(unsigned a, unsigned b, unsigned c, const F& f) {
  constexpr int kBits = 8 * sizeof(T);
  unsigned result = 0;
  for (int shift = 0; shift < 32; shift += kBits) {
    const int value = f(int(T(a >> shift)), int(T(b >> shift)), int(T(c >> shift)));
    result |= (unsigned(value) & ((1u << kBits) - 1)) << shift;
  }
  return result;
}

template <typename T>
int saturated(int x) {
  constexpr int kLeast = std::is_signed_v<T> ? -(1 << (8 * sizeof(T) - 1)) : 0;
  constexpr int kMost = kLeast + (1 << (8 * sizeof(T))) - 1;
  return x < kLeast ? kLeast : x > kMost ? kMost : x;
}

template <typename T>
unsigned sum_of_differences(unsigned a, unsigned b) {
  unsigned sum = 0;
  for (int shift = 0; shift < 32; shift += 8 * int(sizeof(T))) {
    const int difference = int(T(a >> shift)) - int(T(b >> shift));
    sum += unsigned(difference < 0 ? -difference : difference);
  }
  return sum;
}

}  // namespace emulator

// ---- Halves --------------------------------------------------------------------------------

inline unsigned __vabs2(unsigned a) {
  return emulator::by_part<int16_t>(a, a, [](int x, int) { return x < 0 ? -x : x; });
}
inline unsigned __vabsss2(unsigned a) {
  return emulator::by_part<int16_t>(a, a, [](int x, int) { return emulator::saturated<int16_t>(x < 0 ? -x : x); });
}
inline unsigned __vneg2(unsigned a) {
  return emulator::by_part<int16_t>(a, a, [](int x, int) { return -x; });
}
inline unsigned __vnegss2(unsigned a) {
  return emulator::by_part<int16_t>(a, a, [](int x, int) { return emulator::saturated<int16_t>(-x); });
}
inline unsigned __vadd2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x + y; });
}
inline unsigned __vsub2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x - y; });
}
inline unsigned __vaddss2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return emulator::saturated<int16_t>(x + y); });
}
inline unsigned __vaddus2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return emulator::saturated<uint16_t>(x + y); });
}
inline unsigned __vsubss2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return emulator::saturated<int16_t>(x - y); });
}
inline unsigned __vsubus2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return emulator::saturated<uint16_t>(x - y); });
}
inline unsigned __vavgs2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return (x + y + (x + y >= 0)) >> 1; });
}
inline unsigned __vavgu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return (x + y + 1) >> 1; });
}
inline unsigned __vhaddu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return (x + y) >> 1; });
}
inline unsigned __vabsdiffs2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return x < y ? y - x : x - y; });
}
inline unsigned __vmaxs2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return x < y ? y : x; });
}
inline unsigned __vmins2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return x < y ? x : y; });
}
inline unsigned __vsads2(unsigned a, unsigned b) {
  return emulator::sum_of_differences<int16_t>(a, b);
}
inline unsigned __vabsdiffu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x < y ? y - x : x - y; });
}
inline unsigned __vmaxu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x < y ? y : x; });
}
inline unsigned __vminu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x < y ? x : y; });
}
inline unsigned __vsadu2(unsigned a, unsigned b) {
  return emulator::sum_of_differences<uint16_t>(a, b);
}
inline unsigned __vcmpeq2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x == y ? -1 : 0; });
}
inline unsigned __vseteq2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x == y; });
}
inline unsigned __vcmpne2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x != y ? -1 : 0; });
}
inline unsigned __vsetne2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x != y; });
}
inline unsigned __vcmpges2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return x >= y ? -1 : 0; });
}
inline unsigned __vsetges2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return x >= y; });
}
inline unsigned __vcmpgeu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x >= y ? -1 : 0; });
}
inline unsigned __vsetgeu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x >= y; });
}
inline unsigned __vcmpgts2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return x > y ? -1 : 0; });
}
inline unsigned __vsetgts2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return x > y; });
}
inline unsigned __vcmpgtu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x > y ? -1 : 0; });
}
inline unsigned __vsetgtu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x > y; });
}
inline unsigned __vcmples2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return x <= y ? -1 : 0; });
}
inline unsigned __vsetles2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return x <= y; });
}
inline unsigned __vcmpleu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x <= y ? -1 : 0; });
}
inline unsigned __vsetleu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x <= y; });
}
inline unsigned __vcmplts2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return x < y ? -1 : 0; });
}
inline unsigned __vsetlts2(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return x < y; });
}
inline unsigned __vcmpltu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x < y ? -1 : 0; });
}
inline unsigned __vsetltu2(unsigned a, unsigned b) {
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return x < y; });
}
// ---- Bytes --------------------------------------------------------------------------------

inline unsigned __vabs4(unsigned a) {
  return emulator::by_part<int8_t>(a, a, [](int x, int) { return x < 0 ? -x : x; });
}
inline unsigned __vabsss4(unsigned a) {
  return emulator::by_part<int8_t>(a, a, [](int x, int) { return emulator::saturated<int8_t>(x < 0 ? -x : x); });
}
inline unsigned __vneg4(unsigned a) {
  return emulator::by_part<int8_t>(a, a, [](int x, int) { return -x; });
}
inline unsigned __vnegss4(unsigned a) {
  return emulator::by_part<int8_t>(a, a, [](int x, int) { return emulator::saturated<int8_t>(-x); });
}
inline unsigned __vadd4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x + y; });
}
inline unsigned __vsub4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x - y; });
}
inline unsigned __vaddss4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return emulator::saturated<int8_t>(x + y); });
}
inline unsigned __vaddus4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return emulator::saturated<uint8_t>(x + y); });
}
inline unsigned __vsubss4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return emulator::saturated<int8_t>(x - y); });
}
inline unsigned __vsubus4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return emulator::saturated<uint8_t>(x - y); });
}
inline unsigned __vavgs4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return (x + y + (x + y >= 0)) >> 1; });
}
inline unsigned __vavgu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return (x + y + 1) >> 1; });
}
inline unsigned __vhaddu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return (x + y) >> 1; });
}
inline unsigned __vabsdiffs4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return x < y ? y - x : x - y; });
}
inline unsigned __vmaxs4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return x < y ? y : x; });
}
inline unsigned __vmins4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return x < y ? x : y; });
}
inline unsigned __vsads4(unsigned a, unsigned b) {
  return emulator::sum_of_differences<int8_t>(a, b);
}
inline unsigned __vabsdiffu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x < y ? y - x : x - y; });
}
inline unsigned __vmaxu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x < y ? y : x; });
}
inline unsigned __vminu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x < y ? x : y; });
}
inline unsigned __vsadu4(unsigned a, unsigned b) {
  return emulator::sum_of_differences<uint8_t>(a, b);
}
inline unsigned __vcmpeq4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x == y ? -1 : 0; });
}
inline unsigned __vseteq4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x == y; });
}
inline unsigned __vcmpne4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x != y ? -1 : 0; });
}
inline unsigned __vsetne4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x != y; });
}
inline unsigned __vcmpges4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return x >= y ? -1 : 0; });
}
inline unsigned __vsetges4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return x >= y; });
}
inline unsigned __vcmpgeu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x >= y ? -1 : 0; });
}
inline unsigned __vsetgeu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x >= y; });
}
inline unsigned __vcmpgts4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return x > y ? -1 : 0; });
}
inline unsigned __vsetgts4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return x > y; });
}
inline unsigned __vcmpgtu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x > y ? -1 : 0; });
}
inline unsigned __vsetgtu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x > y; });
}
inline unsigned __vcmples4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return x <= y ? -1 : 0; });
}
inline unsigned __vsetles4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return x <= y; });
}
inline unsigned __vcmpleu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x <= y ? -1 : 0; });
}
inline unsigned __vsetleu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x <= y; });
}
inline unsigned __vcmplts4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return x < y ? -1 : 0; });
}
inline unsigned __vsetlts4(unsigned a, unsigned b) {
  return emulator::by_part<int8_t>(a, b, [](int x, int y) { return x < y; });
}
inline unsigned __vcmpltu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x < y ? -1 : 0; });
}
inline unsigned __vsetltu4(unsigned a, unsigned b) {
  return emulator::by_part<uint8_t>(a, b, [](int x, int y) { return x < y; });
}
// ---- Least and most of two, three, of a sum, and of zero ------------------------------------------------------------

inline int __vimax_s32_relu(int a, int b) {
  return max(max(a, b), 0);
}
inline unsigned __vimax_s16x2_relu(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return max(max(x, y), 0); });
}
inline int __vimax3_s32(int a, int b, int c) {
  return max(max(a, b), c);
}
inline unsigned __vimax3_s16x2(unsigned a, unsigned b, unsigned c) {
  return emulator::by_part<int16_t>(a, b, c, [](int x, int y, int z) { return max(max(x, y), z); });
}
inline int __viaddmax_s32(int a, int b, int c) {
  return max(int(unsigned(a) + unsigned(b)), c);
}
inline unsigned __viaddmax_s16x2(unsigned a, unsigned b, unsigned c) {
  return emulator::by_part<int16_t>(a, b, c, [](int x, int y, int z) { return max(int(int16_t(x + y)), z); });
}
inline unsigned __vimax3_u32(unsigned a, unsigned b, unsigned c) {
  return max(max(a, b), c);
}
inline unsigned __vimax3_u16x2(unsigned a, unsigned b, unsigned c) {
  return emulator::by_part<uint16_t>(a, b, c, [](int x, int y, int z) { return max(max(x, y), z); });
}
inline unsigned __viaddmax_u32(unsigned a, unsigned b, unsigned c) {
  return max(unsigned(unsigned(a) + unsigned(b)), c);
}
inline unsigned __viaddmax_u16x2(unsigned a, unsigned b, unsigned c) {
  return emulator::by_part<uint16_t>(a, b, c, [](int x, int y, int z) { return max(int(uint16_t(x + y)), z); });
}
inline int __vimax3_s32_relu(int a, int b, int c) {
  return max(max(max(a, b), c), 0);
}
inline unsigned __vimax3_s16x2_relu(unsigned a, unsigned b, unsigned c) {
  return emulator::by_part<int16_t>(a, b, c, [](int x, int y, int z) { return max(max(max(x, y), z), 0); });
}
inline int __viaddmax_s32_relu(int a, int b, int c) {
  return max(max(int(unsigned(a) + unsigned(b)), c), 0);
}
inline unsigned __viaddmax_s16x2_relu(unsigned a, unsigned b, unsigned c) {
  return emulator::by_part<int16_t>(a, b, c, [](int x, int y, int z) { return max(max(int(int16_t(x + y)), z), 0); });
}
inline int __vibmax_s32(int a, int b, bool* is_first) {
  *is_first = a >= b;
  return *is_first ? a : b;
}
inline unsigned __vibmax_s16x2(unsigned a, unsigned b, bool* is_high, bool* is_low) {
  *is_high = int16_t(a >> 16) >= int16_t(b >> 16);
  *is_low = int16_t(a) >= int16_t(b);
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return max(x, y); });
}
inline unsigned __vibmax_u32(unsigned a, unsigned b, bool* is_first) {
  *is_first = a >= b;
  return *is_first ? a : b;
}
inline unsigned __vibmax_u16x2(unsigned a, unsigned b, bool* is_high, bool* is_low) {
  *is_high = uint16_t(a >> 16) >= uint16_t(b >> 16);
  *is_low = uint16_t(a) >= uint16_t(b);
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return max(x, y); });
}
inline int __vimin_s32_relu(int a, int b) {
  return max(min(a, b), 0);
}
inline unsigned __vimin_s16x2_relu(unsigned a, unsigned b) {
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return max(min(x, y), 0); });
}
inline int __vimin3_s32(int a, int b, int c) {
  return min(min(a, b), c);
}
inline unsigned __vimin3_s16x2(unsigned a, unsigned b, unsigned c) {
  return emulator::by_part<int16_t>(a, b, c, [](int x, int y, int z) { return min(min(x, y), z); });
}
inline int __viaddmin_s32(int a, int b, int c) {
  return min(int(unsigned(a) + unsigned(b)), c);
}
inline unsigned __viaddmin_s16x2(unsigned a, unsigned b, unsigned c) {
  return emulator::by_part<int16_t>(a, b, c, [](int x, int y, int z) { return min(int(int16_t(x + y)), z); });
}
inline unsigned __vimin3_u32(unsigned a, unsigned b, unsigned c) {
  return min(min(a, b), c);
}
inline unsigned __vimin3_u16x2(unsigned a, unsigned b, unsigned c) {
  return emulator::by_part<uint16_t>(a, b, c, [](int x, int y, int z) { return min(min(x, y), z); });
}
inline unsigned __viaddmin_u32(unsigned a, unsigned b, unsigned c) {
  return min(unsigned(unsigned(a) + unsigned(b)), c);
}
inline unsigned __viaddmin_u16x2(unsigned a, unsigned b, unsigned c) {
  return emulator::by_part<uint16_t>(a, b, c, [](int x, int y, int z) { return min(int(uint16_t(x + y)), z); });
}
inline int __vimin3_s32_relu(int a, int b, int c) {
  return max(min(min(a, b), c), 0);
}
inline unsigned __vimin3_s16x2_relu(unsigned a, unsigned b, unsigned c) {
  return emulator::by_part<int16_t>(a, b, c, [](int x, int y, int z) { return max(min(min(x, y), z), 0); });
}
inline int __viaddmin_s32_relu(int a, int b, int c) {
  return max(min(int(unsigned(a) + unsigned(b)), c), 0);
}
inline unsigned __viaddmin_s16x2_relu(unsigned a, unsigned b, unsigned c) {
  return emulator::by_part<int16_t>(a, b, c, [](int x, int y, int z) { return max(min(int(int16_t(x + y)), z), 0); });
}
inline int __vibmin_s32(int a, int b, bool* is_first) {
  *is_first = a <= b;
  return *is_first ? a : b;
}
inline unsigned __vibmin_s16x2(unsigned a, unsigned b, bool* is_high, bool* is_low) {
  *is_high = int16_t(a >> 16) <= int16_t(b >> 16);
  *is_low = int16_t(a) <= int16_t(b);
  return emulator::by_part<int16_t>(a, b, [](int x, int y) { return min(x, y); });
}
inline unsigned __vibmin_u32(unsigned a, unsigned b, bool* is_first) {
  *is_first = a <= b;
  return *is_first ? a : b;
}
inline unsigned __vibmin_u16x2(unsigned a, unsigned b, bool* is_high, bool* is_low) {
  *is_high = uint16_t(a >> 16) <= uint16_t(b >> 16);
  *is_low = uint16_t(a) <= uint16_t(b);
  return emulator::by_part<uint16_t>(a, b, [](int x, int y) { return min(x, y); });
}
