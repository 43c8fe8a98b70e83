// Integer intrinsics.

#pragma once

inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}
inline int __double2hiint(double x) {
  return int(std::bit_cast<uint64_t>(x) >> 32);
}
inline int __double2loint(double x) {
  return int(std::bit_cast<uint64_t>(x));
}
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(uint64_t(uint32_t(high)) << 32 | uint32_t(low));
}

inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(unsigned(x));
}
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
  return __builtin_ffsll(x);
}
inline unsigned long long __brevll(unsigned long long x) {
  x = __builtin_bswap64(x);
  x = (x >> 4 & 0x0f0f0f0f0f0f0f0f) | (x & 0x0f0f0f0f0f0f0f0f) << 4;
  x = (x >> 2 & 0x3333333333333333) | (x & 0x3333333333333333) << 2;
  return (x >> 1 & 0x5555555555555555) | (x & 0x5555555555555555) << 1;
}
inline unsigned __brev(unsigned x) {
  return unsigned(__brevll(x) >> 32);
}
// The position of the offset-th set bit of a mask from a base on; upwards, or downwards for a negative offset.
inline unsigned __fns(unsigned mask, unsigned base, int offset) {
  if (offset == 0) return mask >> base & 1 ? base : 0xffffffff;
  const int step = offset > 0 ? 1 : -1;
  int left = offset > 0 ? offset : -offset;
  for (int i = int(base); i >= 0 && i < 32; i += step) {
    if ((mask >> i & 1) && --left == 0) return unsigned(i);
  }
  return 0xffffffff;
}

// Of the eight bytes of b and a, those that the selector's hexadecimal digits number; bit 3 of a digit spreads the
// sign.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = uint64_t(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned byte = unsigned(bytes >> (selector >> (4 * i) & 7) * 8 & 0xff);
    result |= byte << (8 * i);
  }
  return result;
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) << (shift < 32 ? shift : 32) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) >> (shift < 32 ? shift : 32));
}

inline int __mulhi(int a, int b) {
  return int(int64_t(a) * b >> 32);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return unsigned(uint64_t(a) * b >> 32);
}
inline long long __mul64hi(long long a, long long b) {
  return (long long)(__int128(a) * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)(a)*b >> 64);
}
inline int __mul24(int a, int b) {
  return int(uint64_t(int64_t(a << 8 >> 8) * (b << 8 >> 8)));
}
inline unsigned __umul24(unsigned a, unsigned b) {
  return unsigned(uint64_t(a & 0xffffff) * (b & 0xffffff));
}
inline unsigned __sad(int a, int b, unsigned c) {
  return unsigned(a < b ? int64_t(b) - a : int64_t(a) - b) + c;
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) {
  return (a < b ? b - a : a - b) + c;
}
inline int __hadd(int a, int b) {
  return int((int64_t(a) + b) >> 1);
}
inline int __rhadd(int a, int b) {
  return int((int64_t(a) + b + 1) >> 1);
}
inline unsigned __uhadd(unsigned a, unsigned b) {
  return unsigned((uint64_t(a) + b) >> 1);
}
inline unsigned __urhadd(unsigned a, unsigned b) {
  return unsigned((uint64_t(a) + b + 1) >> 1);
}

// ---- Dot products of bytes and halves -------------------------------------------------------------------------

struct char4;
struct uchar4;

inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += int8_t(a >> i) * int8_t(b >> i);
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += uint8_t(a >> i) * uint8_t(b >> i);
  return c;
}
inline int __dp4a(char4 a, char4 b, int c) {
  return __dp4a(std::bit_cast<int>(a), std::bit_cast<int>(b), c);
}
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
  return __dp4a(std::bit_cast<unsigned>(a), std::bit_cast<unsigned>(b), c);
}
// Halves of a by the lower (or upper) bytes of b.
inline int __dp2a_lo(int a, int b, int c) {
  return c + int16_t(a) * int8_t(b) + int16_t(a >> 16) * int8_t(b >> 8);
}
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
  return c + uint16_t(a) * uint8_t(b) + uint16_t(a >> 16) * uint8_t(b >> 8);
}
inline int __dp2a_hi(int a, int b, int c) {
  return __dp2a_lo(a, b >> 16, c);
}
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) {
  return __dp2a_lo(a, b >> 16, c);
}
inline int __dp2a_lo(short2 a, char4 b, int c) {
  return __dp2a_lo(std::bit_cast<int>(a), std::bit_cast<int>(b), c);
}
inline unsigned __dp2a_lo(ushort2 a, uchar4 b, unsigned c) {
  return __dp2a_lo(std::bit_cast<unsigned>(a), std::bit_cast<unsigned>(b), c);
}
inline int __dp2a_hi(short2 a, char4 b, int c) {
  return __dp2a_hi(std::bit_cast<int>(a), std::bit_cast<int>(b), c);
}
inline unsigned __dp2a_hi(ushort2 a, uchar4 b, unsigned c) {
  return __dp2a_hi(std::bit_cast<unsigned>(a), std::bit_cast<unsigned>(b), c);
}

inline unsigned short __nv_bswap16(unsigned short x) {
  return __builtin_bswap16(x);
}
inline unsigned __nv_bswap32(unsigned x) {
  return __builtin_bswap32(x);
}
inline unsigned long long __nv_bswap64(unsigned long long x) {
  return __builtin_bswap64(x);
}
