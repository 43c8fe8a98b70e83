// What every op of attention takes: heads, and the arguments that are not tensors.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "checks.h"
#include "contiguous.h"

namespace attention {

using torch::stable::Tensor;

// The limit of queries and of keys: positions plus windows still fit an int.
constexpr int64_t kMaxRows = int64_t(1) << 29;
constexpr int64_t kMaxDims = 128, kDimStep = 8;  // Of a head; an op may take more.

// The arguments that are not tensors.
struct Options {
  bool causal;
  std::optional<double> scale;
  const std::optional<std::vector<int64_t>>& window;
  std::optional<double> softcap;
};

[[noreturn]] inline void refuse(const char* op, const std::string& sentence) {
  throw std::runtime_error(std::string(op) + ": " + sentence);
}

inline void check_options(const char* op, const Options& options) {
  if (options.scale && !(*options.scale > 0 && std::isfinite(*options.scale))) {
    refuse(op, "scale is " + std::to_string(*options.scale) + "; it takes a positive number");
  }
  if (options.softcap && !(*options.softcap > 0 && std::isfinite(*options.softcap))) {
    refuse(op, "softcap is " + std::to_string(*options.softcap) + "; it takes a positive number, or None for none");
  }
  checks::has_length(op, "window", options.window, 2);
  for (const int64_t side : options.window.value_or(std::vector<int64_t>())) {
    if (side < -1) {
      refuse(op, "window holds " + std::to_string(side) + "; it takes 0 or more keys on a side, or -1 for all");
    }
  }
}

// Of heads, which are the last dimension of a tensor.
inline void check_dimension(const checks::Argument& argument, int64_t most = kMaxDims) {
  const int64_t dims = argument.tensor.size(argument.tensor.dim() - 1);
  if (dims < kDimStep || dims > most || dims % kDimStep != 0) {
    checks::refuse(
        argument,
        "has heads of " + std::to_string(dims) + " dimensions",
        "8, 16, 24 and so on up to " + std::to_string(most));
  }
}

// Each head of keys serves as many heads of queries.
inline void check_heads(const checks::Argument& q, int64_t heads, const char* keys, int64_t kv_heads) {
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    checks::refuse(
        q,
        "has " + std::to_string(heads) + " heads",
        "a multiple of the " + std::to_string(kv_heads) + " heads of " + keys);
  }
}

// A sink for each head of q.
inline void check_sinks(const checks::Argument& q, int64_t heads, const std::optional<Tensor>& sinks) {
  if (!sinks) return;
  const checks::Argument argument{q.op, "sinks", *sinks};
  checks::same_device(argument, q);
  if (q.tensor.scalar_type() == torch::headeronly::ScalarType::Float) {
    checks::same_dtype(argument, q);
  } else {
    checks::dtype_is_one_of(argument, {torch::headeronly::ScalarType::Float, q.tensor.scalar_type()});
  }
  checks::shape_is(argument, {heads});
}

// The sinks as kernels read them: contiguous, in the dtype of LSEs.
inline std::optional<Tensor> readable_sinks(const std::optional<Tensor>& sinks, const Tensor& q) {
  using torch::headeronly::ScalarType;
  if (!sinks) return std::nullopt;
  const ScalarType dtype = q.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
  return as_contiguous(sinks->scalar_type() == dtype ? *sinks : torch::stable::to(*sinks, dtype));
}

// The gradient in the dtype of the sinks; without sinks, none of them.
inline Tensor gradient_of_sinks(const Tensor& gradient, const std::optional<Tensor>& sinks) {
  if (!sinks || sinks->scalar_type() == gradient.scalar_type()) return gradient;
  return torch::stable::to(gradient, sinks->scalar_type());
}

inline double scale_of(const Tensor& q, const Options& options) {
  return options.scale.value_or(1 / std::sqrt(double(q.size(q.dim() - 1))));
}

// How many keys a query attends to before and after its position, `all` for all of them: see mask.h.
struct Sides {
  int left, right;

  Sides(const Options& options, int64_t all) {
    const auto bound = [&](size_t side) {
      const int64_t keys_on_side = options.window ? (*options.window)[side] : -1;
      return static_cast<int>(keys_on_side < 0 ? all : std::min(keys_on_side, all));
    };
    left = bound(0);
    right = options.causal ? 0 : bound(1);
  }
};

}  // namespace attention
