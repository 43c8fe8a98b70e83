// The activation silu(x) = x / (1 + exp(-x)), and its derivative.

#pragma once

#include "accumulate.cuh"

// Of elements of type T.
template <typename T>
struct Silu {
  using Number = accumulate_t<T>;
  Number sigmoid, value;

  __device__ explicit Silu(Number x) : sigmoid(sigmoid_of(x)), value(x * sigmoid) {}

  __device__ Number derivative() const { return sigmoid + value * (1 - sigmoid); }

 private:
  __device__ static Number sigmoid_of(Number x) {
    if constexpr (sizeof(T) < 4) {
      // The hardware's approximations lose a few bits of float32, far fewer than a 16-bit result does.
      return __fdividef(1, 1 + __expf(-x));
    } else {
      return 1 / (1 + exp(-x));
    }
  }
};
