// Arithmetic on floating-point numbers, by the direction of rounding.

#pragma once

#include "rounding.h"

inline float __fadd_rn(float a, float b) {
  return emulator::rounded_add(a, b, emulator::Rounding::kNearest);
}
inline float __fsub_rn(float a, float b) {
  return emulator::rounded_subtract(a, b, emulator::Rounding::kNearest);
}
inline float __fmul_rn(float a, float b) {
  return emulator::rounded_multiply(a, b, emulator::Rounding::kNearest);
}
inline float __fdiv_rn(float a, float b) {
  return emulator::rounded_divide(a, b, emulator::Rounding::kNearest);
}
inline float __frcp_rn(float x) {
  return emulator::rounded_divide(float(1), x, emulator::Rounding::kNearest);
}
inline float __fsqrt_rn(float x) {
  return emulator::rounded_root(x, emulator::Rounding::kNearest);
}
inline float __fmaf_rn(float a, float b, float c) {
  return emulator::rounded_multiply_add(a, b, c, emulator::Rounding::kNearest);
}
inline float __fmaf_ieee_rn(float a, float b, float c) {
  return emulator::rounded_multiply_add(a, b, c, emulator::Rounding::kNearest);
}
inline float __fadd_rz(float a, float b) {
  return emulator::rounded_add(a, b, emulator::Rounding::kZero);
}
inline float __fsub_rz(float a, float b) {
  return emulator::rounded_subtract(a, b, emulator::Rounding::kZero);
}
inline float __fmul_rz(float a, float b) {
  return emulator::rounded_multiply(a, b, emulator::Rounding::kZero);
}
inline float __fdiv_rz(float a, float b) {
  return emulator::rounded_divide(a, b, emulator::Rounding::kZero);
}
inline float __frcp_rz(float x) {
  return emulator::rounded_divide(float(1), x, emulator::Rounding::kZero);
}
inline float __fsqrt_rz(float x) {
  return emulator::rounded_root(x, emulator::Rounding::kZero);
}
inline float __fmaf_rz(float a, float b, float c) {
  return emulator::rounded_multiply_add(a, b, c, emulator::Rounding::kZero);
}
inline float __fmaf_ieee_rz(float a, float b, float c) {
  return emulator::rounded_multiply_add(a, b, c, emulator::Rounding::kZero);
}
inline float __fadd_ru(float a, float b) {
  return emulator::rounded_add(a, b, emulator::Rounding::kUp);
}
inline float __fsub_ru(float a, float b) {
  return emulator::rounded_subtract(a, b, emulator::Rounding::kUp);
}
inline float __fmul_ru(float a, float b) {
  return emulator::rounded_multiply(a, b, emulator::Rounding::kUp);
}
inline float __fdiv_ru(float a, float b) {
  return emulator::rounded_divide(a, b, emulator::Rounding::kUp);
}
inline float __frcp_ru(float x) {
  return emulator::rounded_divide(float(1), x, emulator::Rounding::kUp);
}
inline float __fsqrt_ru(float x) {
  return emulator::rounded_root(x, emulator::Rounding::kUp);
}
inline float __fmaf_ru(float a, float b, float c) {
  return emulator::rounded_multiply_add(a, b, c, emulator::Rounding::kUp);
}
inline float __fmaf_ieee_ru(float a, float b, float c) {
  return emulator::rounded_multiply_add(a, b, c, emulator::Rounding::kUp);
}
inline float __fadd_rd(float a, float b) {
  return emulator::rounded_add(a, b, emulator::Rounding::kDown);
}
inline float __fsub_rd(float a, float b) {
  return emulator::rounded_subtract(a, b, emulator::Rounding::kDown);
}
inline float __fmul_rd(float a, float b) {
  return emulator::rounded_multiply(a, b, emulator::Rounding::kDown);
}
inline float __fdiv_rd(float a, float b) {
  return emulator::rounded_divide(a, b, emulator::Rounding::kDown);
}
inline float __frcp_rd(float x) {
  return emulator::rounded_divide(float(1), x, emulator::Rounding::kDown);
}
inline float __fsqrt_rd(float x) {
  return emulator::rounded_root(x, emulator::Rounding::kDown);
}
inline float __fmaf_rd(float a, float b, float c) {
  return emulator::rounded_multiply_add(a, b, c, emulator::Rounding::kDown);
}
inline float __fmaf_ieee_rd(float a, float b, float c) {
  return emulator::rounded_multiply_add(a, b, c, emulator::Rounding::kDown);
}
inline double __dadd_rn(double a, double b) {
  return emulator::rounded_add(a, b, emulator::Rounding::kNearest);
}
inline double __dsub_rn(double a, double b) {
  return emulator::rounded_subtract(a, b, emulator::Rounding::kNearest);
}
inline double __dmul_rn(double a, double b) {
  return emulator::rounded_multiply(a, b, emulator::Rounding::kNearest);
}
inline double __ddiv_rn(double a, double b) {
  return emulator::rounded_divide(a, b, emulator::Rounding::kNearest);
}
inline double __drcp_rn(double x) {
  return emulator::rounded_divide(double(1), x, emulator::Rounding::kNearest);
}
inline double __dsqrt_rn(double x) {
  return emulator::rounded_root(x, emulator::Rounding::kNearest);
}
inline double __fma_rn(double a, double b, double c) {
  return emulator::rounded_multiply_add(a, b, c, emulator::Rounding::kNearest);
}
inline double __dadd_rz(double a, double b) {
  return emulator::rounded_add(a, b, emulator::Rounding::kZero);
}
inline double __dsub_rz(double a, double b) {
  return emulator::rounded_subtract(a, b, emulator::Rounding::kZero);
}
inline double __dmul_rz(double a, double b) {
  return emulator::rounded_multiply(a, b, emulator::Rounding::kZero);
}
inline double __ddiv_rz(double a, double b) {
  return emulator::rounded_divide(a, b, emulator::Rounding::kZero);
}
inline double __drcp_rz(double x) {
  return emulator::rounded_divide(double(1), x, emulator::Rounding::kZero);
}
inline double __dsqrt_rz(double x) {
  return emulator::rounded_root(x, emulator::Rounding::kZero);
}
inline double __fma_rz(double a, double b, double c) {
  return emulator::rounded_multiply_add(a, b, c, emulator::Rounding::kZero);
}
inline double __dadd_ru(double a, double b) {
  return emulator::rounded_add(a, b, emulator::Rounding::kUp);
}
inline double __dsub_ru(double a, double b) {
  return emulator::rounded_subtract(a, b, emulator::Rounding::kUp);
}
inline double __dmul_ru(double a, double b) {
  return emulator::rounded_multiply(a, b, emulator::Rounding::kUp);
}
inline double __ddiv_ru(double a, double b) {
  return emulator::rounded_divide(a, b, emulator::Rounding::kUp);
}
inline double __drcp_ru(double x) {
  return emulator::rounded_divide(double(1), x, emulator::Rounding::kUp);
}
inline double __dsqrt_ru(double x) {
  return emulator::rounded_root(x, emulator::Rounding::kUp);
}
inline double __fma_ru(double a, double b, double c) {
  return emulator::rounded_multiply_add(a, b, c, emulator::Rounding::kUp);
}
inline double __dadd_rd(double a, double b) {
  return emulator::rounded_add(a, b, emulator::Rounding::kDown);
}
inline double __dsub_rd(double a, double b) {
  return emulator::rounded_subtract(a, b, emulator::Rounding::kDown);
}
inline double __dmul_rd(double a, double b) {
  return emulator::rounded_multiply(a, b, emulator::Rounding::kDown);
}
inline double __ddiv_rd(double a, double b) {
  return emulator::rounded_divide(a, b, emulator::Rounding::kDown);
}
inline double __drcp_rd(double x) {
  return emulator::rounded_divide(double(1), x, emulator::Rounding::kDown);
}
inline double __dsqrt_rd(double x) {
  return emulator::rounded_root(x, emulator::Rounding::kDown);
}
inline double __fma_rd(double a, double b, double c) {
  return emulator::rounded_multiply_add(a, b, c, emulator::Rounding::kDown);
}
// The exact square root's reciprocal lies so close to the double's that one more rounding does not change it.
inline float __frsqrt_rn(float x) {
  return emulator::canonical(float(1 / sqrt(double(x))));
}
inline float __saturatef(float x) {
  return x > 0 ? (x < 1 ? x : 1) : 0;
}
