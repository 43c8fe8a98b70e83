// Mathematical functions: the C library's, and those that CUDA adds. Approximate intrinsics are exact here.

#pragma once

// ---- Least and most, of every pair of types -------------------------------------------------------------------

namespace emulator {

template <typename A, typename B>
concept AreIntegers = std::is_integral_v<A> && std::is_integral_v<B>;
template <typename A, typename B>
concept AreNumbers = std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !AreIntegers<A, B>;

}  // namespace emulator

template <typename A, typename B>
  requires emulator::AreIntegers<A, B>
constexpr auto min(A a, B b) {
  using T = decltype(a + b);
  return T(b) < T(a) ? T(b) : T(a);
}
template <typename A, typename B>
  requires emulator::AreIntegers<A, B>
constexpr auto max(A a, B b) {
  using T = decltype(a + b);
  return T(a) < T(b) ? T(b) : T(a);
}
// A NaN gives way to the other number.
template <typename A, typename B>
  requires emulator::AreNumbers<A, B>
constexpr auto min(A a, B b) {
  using T = decltype(a + b);
  if constexpr (sizeof(T) == 4) {
    return __builtin_fminf(a, b);
  } else {
    return __builtin_fmin(a, b);
  }
}
template <typename A, typename B>
  requires emulator::AreNumbers<A, B>
constexpr auto max(A a, B b) {
  using T = decltype(a + b);
  if constexpr (sizeof(T) == 4) {
    return __builtin_fmaxf(a, b);
  } else {
    return __builtin_fmax(a, b);
  }
}
inline unsigned umin(unsigned a, unsigned b) {
  return min(a, b);
}
inline unsigned umax(unsigned a, unsigned b) {
  return max(a, b);
}
inline long long llmin(long long a, long long b) {
  return min(a, b);
}
inline long long llmax(long long a, long long b) {
  return max(a, b);
}
inline unsigned long long ullmin(unsigned long long a, unsigned long long b) {
  return min(a, b);
}
inline unsigned long long ullmax(unsigned long long a, unsigned long long b) {
  return max(a, b);
}

// ---- What the C library lacks ---------------------------------------------------------------------------------

// functions.cpp has these.
extern "C" {
double erfinv(double), erfcinv(double), normcdf(double), normcdfinv(double), erfcx(double);
double cyl_bessel_i0(double), cyl_bessel_i1(double);
}

inline float rsqrtf(float x) {
  return float(1 / sqrt(double(x)));
}
inline double rsqrt(double x) {
  return 1 / sqrt(x);
}
inline float rsqrt(float x) {
  return rsqrtf(x);
}
inline double rcbrt(double x) {
  return 1 / cbrt(x);
}
inline float rcbrtf(float x) {
  return float(1 / cbrt(double(x)));
}
// The angle is reduced first, so that whole and half numbers give exact results.
inline double sinpi(double x) {
  const double r = remainder(x, 2.0);
  if (r == 0 || fabs(r) == 1) return copysign(0.0, x);
  return fabs(r) == 0.5 ? copysign(1.0, r) : sin(M_PI * r);
}
inline double cospi(double x) {
  const double r = fabs(remainder(x, 2.0));
  return r == 0.5 ? 0.0 : cos(M_PI * r);
}
inline float sinpif(float x) {
  return float(sinpi(double(x)));
}
inline float cospif(float x) {
  return float(cospi(double(x)));
}
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = sinpi(x);
  *cosine = cospi(x);
}
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = sinpif(x);
  *cosine = cospif(x);
}
inline double rhypot(double x, double y) {
  return 1 / hypot(x, y);
}
inline float rhypotf(float x, float y) {
  return float(1 / hypot(double(x), double(y)));
}
inline double norm3d(double a, double b, double c) {
  return std::hypot(a, b, c);
}
inline double norm4d(double a, double b, double c, double d) {
  return hypot(std::hypot(a, b, c), d);
}
inline double rnorm3d(double a, double b, double c) {
  return 1 / norm3d(a, b, c);
}
inline double rnorm4d(double a, double b, double c, double d) {
  return 1 / norm4d(a, b, c, d);
}
inline float norm3df(float a, float b, float c) {
  return float(norm3d(a, b, c));
}
inline float norm4df(float a, float b, float c, float d) {
  return float(norm4d(a, b, c, d));
}
inline float rnorm3df(float a, float b, float c) {
  return float(rnorm3d(a, b, c));
}
inline float rnorm4df(float a, float b, float c, float d) {
  return float(rnorm4d(a, b, c, d));
}
inline double norm(int n, const double* values) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum = hypot(sum, values[i]);
  return sum;
}
inline float normf(int n, const float* values) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum = hypot(sum, double(values[i]));
  return float(sum);
}
inline double rnorm(int n, const double* values) {
  return 1 / norm(n, values);
}
inline float rnormf(int n, const float* values) {
  return 1 / normf(n, values);
}
inline float erfinvf(float x) {
  return float(erfinv(double(x)));
}
inline float erfcinvf(float x) {
  return float(erfcinv(double(x)));
}
inline float erfcxf(float x) {
  return float(erfcx(double(x)));
}
inline float normcdff(float x) {
  return float(normcdf(double(x)));
}
inline float normcdfinvf(float x) {
  return float(normcdfinv(double(x)));
}
inline float cyl_bessel_i0f(float x) {
  return float(cyl_bessel_i0(double(x)));
}
inline float cyl_bessel_i1f(float x) {
  return float(cyl_bessel_i1(double(x)));
}

// ---- Approximate intrinsics -----------------------------------------------------------------------------------

inline float __expf(float x) {
  return expf(x);
}
inline float __exp10f(float x) {
  return float(pow(10.0, double(x)));
}
inline float __logf(float x) {
  return logf(x);
}
inline float __log2f(float x) {
  return log2f(x);
}
inline float __log10f(float x) {
  return log10f(x);
}
inline float __powf(float x, float y) {
  return exp2f(y * log2f(x));
}
inline float __sinf(float x) {
  return sinf(x);
}
inline float __cosf(float x) {
  return cosf(x);
}
inline float __tanf(float x) {
  return tanf(x);
}
inline float __tanhf(float x) {
  return tanhf(x);
}
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = sinf(x);
  *cosine = cosf(x);
}
inline float __fdividef(float a, float b) {
  // From 2^126 on the divisor's reciprocal is lost.
  return fabsf(b) > 0x1p126f && fabsf(b) <= 0x1.fffffep127f ? a * 0.0f : a / b;
}
inline float fdividef(float a, float b) {
  return a / b;
}
inline double fdivide(double a, double b) {
  return a / b;
}
