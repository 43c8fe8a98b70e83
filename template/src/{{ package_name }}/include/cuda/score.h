// From the product of a query and a key to their score. To score otherwise, change this file and reference.py.

#pragma once

#ifdef __CUDACC__
#include "exponential.cuh"
#endif

namespace attention {

// score = scale * transform(q . k), where transform is the softcap, if there is one.
struct Score {
  float scale, scale_log2;         // scale_log2 = scale * log2(e), for powers of two.
  float softcap, softcap_inverse;  // Divided by the scale, so that it caps products; 0: none.

  Score() = default;
  Score(double scale, double softcap)
      : scale(scale),
        scale_log2(scale * 1.4426950408889634),
        softcap(softcap / scale),
        softcap_inverse(softcap == 0 ? 0 : scale / softcap) {}

#ifdef __CUDACC__
  __device__ bool transforms() const { return softcap != 0; }
  __device__ float transform(float product) const { return softcap * tanh_fast(product * softcap_inverse); }
  // The derivative of transform, from its result.
  __device__ float derivative(float transformed) const {
    const float ratio = transformed * softcap_inverse;
    return 1 - ratio * ratio;
  }
  // The derivative of transform, from the softmax weight exp(score - lse).
  __device__ float derivative_at(float weight, float lse) const {
    return weight == 0 ? 0 : derivative((__logf(weight) + lse) / scale);
  }
#endif
};

}  // namespace attention
