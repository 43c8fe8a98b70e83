// Activations of a linear layer, each one struct, for the CPU and CUDA.
//
// A struct has a name, `value(z)`, and `gradient(grad, saved)`: grad times the derivative, computed from what kSaves
// names. Float is float32 or float64.

#pragma once

#include <cmath>
#include <type_traits>

#include "exponential.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

namespace activations {

// What the gradient is computed from. The pre-activation is z = x Wᵀ + b.
enum class Saves { kNothing, kOutput, kPreactivation };

#ifdef __CUDACC__
constexpr float kLog2OfE = 1.4426950408889634f;

// One instruction of the special function unit, like the reciprocal below. Both flush denormals to 0, and have an error
// of about 2 ULP.
__device__ inline float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// By Horner's scheme; the coefficient of the highest power comes first.
template <typename... Floats>
__device__ float polynomial(float x, float first, Floats... others) {
  ((first = first * x + others), ...);
  return first;
}
#endif

template <typename Float>
HOST_DEVICE Float exponential(Float x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Float) == 4) return power_of_two(kLog2OfE * x);
  return std::exp(x);
#else
  return ::exponential(x);
#endif
}

template <typename Float>
HOST_DEVICE Float reciprocal(Float x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Float) == 4) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }
#endif
  return 1 / x;
}

template <typename Float>
HOST_DEVICE Float sigmoid(Float x) {
  return reciprocal(1 + exponential(-x));
}

struct None {
  static constexpr char kName[] = "none";
  static constexpr Saves kSaves = Saves::kNothing;

  template <typename Float>
  static HOST_DEVICE Float value(Float z) {
    return z;
  }

  template <typename Float>
  static HOST_DEVICE Float gradient(Float grad, Float) {
    return grad;
  }
};

struct Relu {
  static constexpr char kName[] = "relu";
  static constexpr Saves kSaves = Saves::kOutput;

  // NaN stays NaN.
  template <typename Float>
  static HOST_DEVICE Float value(Float z) {
    return z < 0 ? Float(0) : z;
  }

  template <typename Float>
  static HOST_DEVICE Float gradient(Float grad, Float output) {
    return output <= 0 ? Float(0) : grad;
  }
};

// z times the standard normal distribution function of z.
struct Gelu {
  static constexpr char kName[] = "gelu";
  static constexpr Saves kSaves = Saves::kPreactivation;

  template <typename Float>
  static HOST_DEVICE Float value(Float z) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(Float) == 4) {
      // Clamped, since the tail is 0 from 100 on, and infinity times 0 would be NaN. For z = -inf the first term is
      // NaN, so that the result is not finite.
      const float half = 0.5f * z, a = fminf(fabsf(z), 100.0f);
      return (half + fabsf(half)) - a * tail(a);
    }
#endif
    constexpr Float kSqrtHalf = Float(0.70710678118654752440);
    return Float(0.5) * z * (1 + std::erf(z * kSqrtHalf));
  }

  template <typename Float>
  static HOST_DEVICE Float gradient(Float grad, Float z) {
    constexpr Float kSqrtHalf = Float(0.70710678118654752440), kDensityAtZero = Float(0.39894228040143267794);
    const Float density = kDensityAtZero * exponential(Float(-0.5) * z * z);
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(Float) == 4) return grad * ((z < 0 ? tail(-z) : 1 - tail(z)) + z * density);
#endif
    return grad * (Float(0.5) * (1 + std::erf(z * kSqrtHalf)) + z * density);
  }

#ifdef __CUDACC__
  // The standard normal probability of a value above z, for z >= 0, to 1e-7, in fewer instructions than erf: Abramowitz
  // and Stegun, Handbook of Mathematical Functions, 7.1.26.
  static __device__ float tail(float z) {
    const float t = reciprocal(1 + 0.3275911f * 0.70710678f * z);
    const float sum = 0.127414796f + t * (-0.142248368f + t * (0.710706871f + t * (-0.726576014f + t * 0.530702715f)));
    return t * sum * power_of_two(-0.5f * kLog2OfE * z * z);
  }

  // The value for z = 2 half: max(z, 0) - a p(a), with a = |half| and p(a) twice the probability of a value above |z|.
  // A polynomial approximates log2 p(a); its coefficients minimise the largest error for a <= 4, in ULPs of T's result.
  // The error is less than a tenth of the rounding error: for float16 down to its smallest normal number, 2^-14, and
  // for bfloat16 to 1e-8, where float32's 1 + erf has no correct digit left. For a > 4, a p(a) is below 1e-14.
  template <typename T>
  static __device__ float value_of_half(float half) {
    const float a = fminf(fabsf(half), 4.0f);
    float exponent;
    if constexpr (std::is_same_v<T, __half>) {
      exponent = polynomial(
          a, 0.0021107287f, -0.0241594337f, 0.127556494f, -0.424923237f, -1.83642976f, -2.30212386f, -6.37e-6f);
    } else {
      exponent = polynomial(a, -0.00888355408f, 0.0860584216f, -0.372868575f, -1.86607874f, -2.29584872f, -2.4987e-4f);
    }
    return (half + fabsf(half)) - a * power_of_two(exponent);
  }
#endif
};

// The approximation 0.5 z (1 + tanh u) with u = sqrt(2 / pi) (z + 0.044715 z^3), which is z sigmoid(2u).
struct GeluTanh {
  static constexpr char kName[] = "gelu_tanh";
  static constexpr Saves kSaves = Saves::kPreactivation;
  static constexpr double kLinear = 2 * 0.79788456080286535588, kCubic = kLinear * 0.044715;

  template <typename Float>
  static HOST_DEVICE Float value(Float z) {
    return z * sigmoid(z * (Float(kLinear) + Float(kCubic) * z * z));
  }

  template <typename Float>
  static HOST_DEVICE Float gradient(Float grad, Float z) {
    const Float s = sigmoid(z * (Float(kLinear) + Float(kCubic) * z * z));
    const Float slope = Float(kLinear) + 3 * Float(kCubic) * z * z;
    return grad * (s + z * s * (1 - s) * slope);
  }
};

struct Silu {
  static constexpr char kName[] = "silu";
  static constexpr Saves kSaves = Saves::kPreactivation;

  template <typename Float>
  static HOST_DEVICE Float value(Float z) {
    return z * sigmoid(z);
  }

  template <typename Float>
  static HOST_DEVICE Float gradient(Float grad, Float z) {
    const Float s = sigmoid(z);
    return grad * s * (1 + z * (1 - s));
  }
};

#ifdef __CUDACC__
// The value of z for a result that is rounded to T, a 16-bit type: by a cheaper formula where one is accurate enough.
template <typename T, typename Activation>
__device__ float value_to_round(float z) {
  if constexpr (std::is_same_v<Activation, Gelu>) return Gelu::value_of_half<T>(0.5f * z);
  return Activation::value(z);
}

// The same for z = sum + bias, half of which is one multiply-add.
template <typename T, typename Activation>
__device__ float value_to_round(float sum, float bias) {
  if constexpr (std::is_same_v<Activation, Gelu>) return Gelu::value_of_half<T>(0.5f * sum + 0.5f * bias);
  return Activation::value(sum + bias);
}
#endif

}  // namespace activations
