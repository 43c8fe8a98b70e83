// The forward of a normalisation of flat rows (flat_rows.cuh). The mathematics is the op's; it gives functions of a
// single element.

#pragma once

#include "flat_rows.cuh"
#include "norm_tensors.cuh"
#include "widen.cuh"

constexpr int kFlatForwardThreads = 640;  // Of a multiprocessor, which share its registers.
constexpr int kFlatForwardBlock = 128;    // Of a block, unless a group has more.
// What a thread may have of the registers, which come in eights: with more, some of the blocks that the host launches
// would wait for the others to end.
constexpr int kFlatForwardRegisters = 65536 / kFlatForwardThreads / 8 * 8;

template <typename T>
class FlatNormRows : public FlatRows<T, 1> {
  using Base = FlatRows<T, 1>;

 public:
  using Base::N;
  using typename Base::Sum;

  // An element of the thread: its access, and whether it is in the second of the vector's rows.
  struct Place {
    int access;
    bool further;
  };

  // A number of each row, as far as the thread has elements of it.
  struct Numbers {
    Sum first[kFlatAccesses], further[kFlatAccesses];

    __device__ Sum operator[](const Place& place) const {
      return place.further ? further[place.access] : first[place.access];
    }
  };

  // Loads the parameters, which stay in registers.
  __device__ FlatNormRows(const NormTensors<T>& tensors, void* shared)
      : Base(tensors.rows, tensors.n, shared), tensors_(tensors) {
    each_flat_access([&](int access) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const int column = this->has(access) ? this->column(access, k) : 0;
        weight_[access][k] = tensors.weight.data ? tensors.weight.data[column] : T(1.0f);
        bias_[access][k] = tensors.bias.data ? tensors.bias.data[column] : T(0.0f);
      }
    });
  }

  // Calls normalise() for each of the group's periods, once it is loaded and the residual added.
  template <typename F>
  __device__ void each(const F& normalise) {
    this->each_period([&](int64_t period) {
      period_ = period;
      this->load(tensors_.input, period, held_);
      if (tensors_.residual.data) add();
      normalise();
    });
  }

  // The number finish(sum of f(element, place) over the row) of each row, which is also written to `out`.
  template <typename F, typename Finish>
  __device__ Numbers numbers(Sum* out, const F& f, const Finish& finish) {
    each_flat_access([&](int access) {
      forget_conversions(held_[access]);
      const auto values = widen(held_[access]);
      typename Base::Sums first{}, further{};
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const Place place{access, this->is_further(access, k)};
        const Sum term = f(values[k], place);
        first[0] += place.further ? Sum(0) : term;
        further[0] += place.further ? term : Sum(0);
      }
      this->leave(access, first, further);
    });
    this->add_up([&](int row, const auto& sums) -> typename Base::Sums {
      const Sum number = finish(sums[0]);
      if (period_ * N + row < tensors_.rows) out[period_ * N + row] = number;
      return {number};
    });
    Numbers result;
    each_flat_access([&](int access) {
      result.first[access] = this->total(access, false)[0];
      result.further[access] = this->total(access, true)[0];
    });
    return result;
  }

  // Writes f(element, weight, bias, place) to the output.
  template <typename F>
  __device__ void write(const F& f) {
    each_flat_access([&](int access) {
      forget_conversions(held_[access]);
      forget_conversions(weight_[access]);
      forget_conversions(bias_[access]);
      auto values = widen(held_[access]);
      const auto weight = widen(weight_[access]), bias = widen(bias_[access]);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        values[k] = f(values[k], weight[k], bias[k], Place{access, this->is_further(access, k)});
      }
      this->put(tensors_.output, period_, access, narrow<T>(values));
    });
  }

 private:
  // Adds the residual, rounds to T, and stores the result in `sum` as well.
  __device__ void add() {
    typename Base::Accesses others;
    this->load(tensors_.residual, period_, others);
    each_flat_access([&](int access) {
      auto sum = widen(held_[access]);
      sum += widen(others[access]);
      held_[access] = narrow<T>(sum);
      this->put(tensors_.sum, period_, access, held_[access]);
    });
  }

  const NormTensors<T>& tensors_;
  int64_t period_;
  typename Base::Accesses held_, weight_, bias_;
};
