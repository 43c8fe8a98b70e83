// Conversions between floating-point numbers and integers, by the direction of rounding.

#pragma once

#include "rounding.h"

// ---- From and to float ---------------------------------------------------------------------------------------

inline int __float2int_rn(float x) {
  return int(emulator::rounded_integer(x, 32, true, false, emulator::Rounding::kNearest));
}
inline int __float2int_rz(float x) {
  return int(emulator::rounded_integer(x, 32, true, false, emulator::Rounding::kZero));
}
inline int __float2int_ru(float x) {
  return int(emulator::rounded_integer(x, 32, true, false, emulator::Rounding::kUp));
}
inline int __float2int_rd(float x) {
  return int(emulator::rounded_integer(x, 32, true, false, emulator::Rounding::kDown));
}
inline float __int2float_rn(int x) {
  return emulator::rounded_float(int64_t(x), emulator::Rounding::kNearest);
}
inline float __int2float_rz(int x) {
  return emulator::rounded_float(int64_t(x), emulator::Rounding::kZero);
}
inline float __int2float_ru(int x) {
  return emulator::rounded_float(int64_t(x), emulator::Rounding::kUp);
}
inline float __int2float_rd(int x) {
  return emulator::rounded_float(int64_t(x), emulator::Rounding::kDown);
}
inline unsigned __float2uint_rn(float x) {
  return unsigned(emulator::rounded_integer(x, 32, false, false, emulator::Rounding::kNearest));
}
inline unsigned __float2uint_rz(float x) {
  return unsigned(emulator::rounded_integer(x, 32, false, false, emulator::Rounding::kZero));
}
inline unsigned __float2uint_ru(float x) {
  return unsigned(emulator::rounded_integer(x, 32, false, false, emulator::Rounding::kUp));
}
inline unsigned __float2uint_rd(float x) {
  return unsigned(emulator::rounded_integer(x, 32, false, false, emulator::Rounding::kDown));
}
inline float __uint2float_rn(unsigned x) {
  return emulator::rounded_float(uint64_t(x), emulator::Rounding::kNearest);
}
inline float __uint2float_rz(unsigned x) {
  return emulator::rounded_float(uint64_t(x), emulator::Rounding::kZero);
}
inline float __uint2float_ru(unsigned x) {
  return emulator::rounded_float(uint64_t(x), emulator::Rounding::kUp);
}
inline float __uint2float_rd(unsigned x) {
  return emulator::rounded_float(uint64_t(x), emulator::Rounding::kDown);
}
inline long long __float2ll_rn(float x) {
  return static_cast<long long>(emulator::rounded_integer(x, 64, true, false, emulator::Rounding::kNearest));
}
inline long long __float2ll_rz(float x) {
  return static_cast<long long>(emulator::rounded_integer(x, 64, true, false, emulator::Rounding::kZero));
}
inline long long __float2ll_ru(float x) {
  return static_cast<long long>(emulator::rounded_integer(x, 64, true, false, emulator::Rounding::kUp));
}
inline long long __float2ll_rd(float x) {
  return static_cast<long long>(emulator::rounded_integer(x, 64, true, false, emulator::Rounding::kDown));
}
inline float __ll2float_rn(long long x) {
  return emulator::rounded_float(int64_t(x), emulator::Rounding::kNearest);
}
inline float __ll2float_rz(long long x) {
  return emulator::rounded_float(int64_t(x), emulator::Rounding::kZero);
}
inline float __ll2float_ru(long long x) {
  return emulator::rounded_float(int64_t(x), emulator::Rounding::kUp);
}
inline float __ll2float_rd(long long x) {
  return emulator::rounded_float(int64_t(x), emulator::Rounding::kDown);
}
inline unsigned long long __float2ull_rn(float x) {
  return static_cast<unsigned long long>(emulator::rounded_integer(x, 64, false, false, emulator::Rounding::kNearest));
}
inline unsigned long long __float2ull_rz(float x) {
  return static_cast<unsigned long long>(emulator::rounded_integer(x, 64, false, false, emulator::Rounding::kZero));
}
inline unsigned long long __float2ull_ru(float x) {
  return static_cast<unsigned long long>(emulator::rounded_integer(x, 64, false, false, emulator::Rounding::kUp));
}
inline unsigned long long __float2ull_rd(float x) {
  return static_cast<unsigned long long>(emulator::rounded_integer(x, 64, false, false, emulator::Rounding::kDown));
}
inline float __ull2float_rn(unsigned long long x) {
  return emulator::rounded_float(uint64_t(x), emulator::Rounding::kNearest);
}
inline float __ull2float_rz(unsigned long long x) {
  return emulator::rounded_float(uint64_t(x), emulator::Rounding::kZero);
}
inline float __ull2float_ru(unsigned long long x) {
  return emulator::rounded_float(uint64_t(x), emulator::Rounding::kUp);
}
inline float __ull2float_rd(unsigned long long x) {
  return emulator::rounded_float(uint64_t(x), emulator::Rounding::kDown);
}

// ---- From and to double --------------------------------------------------------------------------------------

inline int __double2int_rn(double x) {
  return int(emulator::rounded_integer(x, 32, true, true, emulator::Rounding::kNearest));
}
inline int __double2int_rz(double x) {
  return int(emulator::rounded_integer(x, 32, true, true, emulator::Rounding::kZero));
}
inline int __double2int_ru(double x) {
  return int(emulator::rounded_integer(x, 32, true, true, emulator::Rounding::kUp));
}
inline int __double2int_rd(double x) {
  return int(emulator::rounded_integer(x, 32, true, true, emulator::Rounding::kDown));
}
inline double __int2double_rn(int x) {
  return emulator::rounded_double(int64_t(x), emulator::Rounding::kNearest);
}
inline unsigned __double2uint_rn(double x) {
  return unsigned(emulator::rounded_integer(x, 32, false, true, emulator::Rounding::kNearest));
}
inline unsigned __double2uint_rz(double x) {
  return unsigned(emulator::rounded_integer(x, 32, false, true, emulator::Rounding::kZero));
}
inline unsigned __double2uint_ru(double x) {
  return unsigned(emulator::rounded_integer(x, 32, false, true, emulator::Rounding::kUp));
}
inline unsigned __double2uint_rd(double x) {
  return unsigned(emulator::rounded_integer(x, 32, false, true, emulator::Rounding::kDown));
}
inline double __uint2double_rn(unsigned x) {
  return emulator::rounded_double(uint64_t(x), emulator::Rounding::kNearest);
}
inline long long __double2ll_rn(double x) {
  return static_cast<long long>(emulator::rounded_integer(x, 64, true, true, emulator::Rounding::kNearest));
}
inline long long __double2ll_rz(double x) {
  return static_cast<long long>(emulator::rounded_integer(x, 64, true, true, emulator::Rounding::kZero));
}
inline long long __double2ll_ru(double x) {
  return static_cast<long long>(emulator::rounded_integer(x, 64, true, true, emulator::Rounding::kUp));
}
inline long long __double2ll_rd(double x) {
  return static_cast<long long>(emulator::rounded_integer(x, 64, true, true, emulator::Rounding::kDown));
}
inline double __ll2double_rn(long long x) {
  return emulator::rounded_double(int64_t(x), emulator::Rounding::kNearest);
}
inline double __ll2double_rz(long long x) {
  return emulator::rounded_double(int64_t(x), emulator::Rounding::kZero);
}
inline double __ll2double_ru(long long x) {
  return emulator::rounded_double(int64_t(x), emulator::Rounding::kUp);
}
inline double __ll2double_rd(long long x) {
  return emulator::rounded_double(int64_t(x), emulator::Rounding::kDown);
}
inline unsigned long long __double2ull_rn(double x) {
  return static_cast<unsigned long long>(emulator::rounded_integer(x, 64, false, true, emulator::Rounding::kNearest));
}
inline unsigned long long __double2ull_rz(double x) {
  return static_cast<unsigned long long>(emulator::rounded_integer(x, 64, false, true, emulator::Rounding::kZero));
}
inline unsigned long long __double2ull_ru(double x) {
  return static_cast<unsigned long long>(emulator::rounded_integer(x, 64, false, true, emulator::Rounding::kUp));
}
inline unsigned long long __double2ull_rd(double x) {
  return static_cast<unsigned long long>(emulator::rounded_integer(x, 64, false, true, emulator::Rounding::kDown));
}
inline double __ull2double_rn(unsigned long long x) {
  return emulator::rounded_double(uint64_t(x), emulator::Rounding::kNearest);
}
inline double __ull2double_rz(unsigned long long x) {
  return emulator::rounded_double(uint64_t(x), emulator::Rounding::kZero);
}
inline double __ull2double_ru(unsigned long long x) {
  return emulator::rounded_double(uint64_t(x), emulator::Rounding::kUp);
}
inline double __ull2double_rd(unsigned long long x) {
  return emulator::rounded_double(uint64_t(x), emulator::Rounding::kDown);
}

inline float __double2float_rn(double x) {
  return emulator::rounded_float(x, emulator::Rounding::kNearest);
}
inline float __double2float_rz(double x) {
  return emulator::rounded_float(x, emulator::Rounding::kZero);
}
inline float __double2float_ru(double x) {
  return emulator::rounded_float(x, emulator::Rounding::kUp);
}
inline float __double2float_rd(double x) {
  return emulator::rounded_float(x, emulator::Rounding::kDown);
}
