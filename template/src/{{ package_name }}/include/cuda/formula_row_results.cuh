// The results of a row: of its elements, of the row, and sums over all rows.

#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "cache_hints.cuh"
#include "formula_row_reductions.cuh"

template <typename Kernel, typename Tensors>
class RowResults : public RowReductions<Kernel, Tensors> {
  using Reductions = RowReductions<Kernel, Tensors>;

 public:
  using T = typename Reductions::T;
  using Number = typename Reductions::Number;
  using Group = typename Reductions::Group;
  using Held = typename Reductions::Held;
  using Sums = typename Reductions::Sums;

  __device__ RowResults(Group& group, const Tensors& tensors, int64_t row, int part, Held& held, Sums& sums)
      : Reductions(group, tensors, row, part, held, sums) {
    if constexpr (Kernel::kApart) {
      const int first = group.template first_access<kHeld>();
#pragma unroll
      for (int i = 0; i < Tensors::kResults; ++i) {
        T* const values = tensors.results[i].values;
        own_results_[i] = values ? row_of_result(values, joined_of(i)) + first : nullptr;
      }
    }
  }

  // f(inputs..., results...) for each element.
  template <typename F>
  __device__ void write(F f) {
    if (is_last_pass()) write(f, std::make_index_sequence<Tensors::kResults>());
  }

  __device__ void put(int i, Number value) {
    if (puts() && tensors_.row_results[i]) tensors_.row_results[i][row_] = static_cast<T>(value);
  }

  // Adds to sum i over all rows.
  __device__ void add(int i, Number value) {
    if (puts()) tensors_.terms[i * tensors_.rows.count + row_] = value;
  }

  __device__ void put_place(int i, int64_t place) {
    if (puts()) tensors_.place_results[i][row_] = place;
  }

  __device__ void put_wide(int i, Number value) {
    if (puts()) tensors_.wide_results[i][row_] = static_cast<float>(value);
  }

  __device__ void put_flag(int i, bool value) {
    if (puts()) tensors_.flag_results[i][row_] = value;
  }

  // For the backward.
  __device__ void save(int i, Number value) {
    if (puts()) tensors_.saved_results[i][row_] = value;
  }

 protected:
  using Index = typename Reductions::Index;
  using Reductions::each_of_last_pass;
  using Reductions::elements;
  using Reductions::index_;
  using Reductions::invoke;
  using Reductions::is_last_pass;
  using Reductions::kAligned;
  using Reductions::kHeld;
  using Reductions::kInParts;
  using Reductions::kPeeled;
  using Reductions::N;
  using Reductions::puts;
  using Reductions::row_;
  using Reductions::sums_;
  using Reductions::tensors_;

  // The results of an element, as a formula assigns them: a code is an integer already.
  struct Numbers {
    Number numbers[Tensors::kResults + 1];
    uint8_t codes[Tensors::kCodes ? Tensors::kResults : 1];

    template <size_t kPlace>
    __device__ auto& result() {
      if constexpr ((Tensors::kCodes >> kPlace & 1) != 0) {
        return codes[kPlace];
      } else {
        return numbers[kPlace];
      }
    }
  };

  struct Results {
    Vector<T, N> values[Tensors::kResults + 1];
    Vector<uint8_t, N> codes[Tensors::kCodes ? Tensors::kResults : 1];
    Vector<float, N> wide[Tensors::kWide ? Tensors::kResults : 1];
    typename Sums::Terms terms;  // of sums over the rows
  };

  // Takes the numbers of element k of an access: rounded, and as terms of sums over the rows.
  __device__ void take(int access, int k, const Numbers& numbers, Results& results) {
#pragma unroll
    for (int i = 0; i < Tensors::kResults; ++i) {
      if constexpr (Tensors::kCodes != 0) {
        if (Tensors::kCodes >> i & 1) {
          results.codes[i][k] = numbers.codes[i];
          continue;
        }
      }
      if constexpr (Tensors::kWide != 0) {
        if (Tensors::kWide >> i & 1) {
          results.wide[i][k] = static_cast<float>(numbers.numbers[i]);
          continue;
        }
      }
      results.values[i][k] = static_cast<T>(numbers.numbers[i]);
      if constexpr (Kernel::kSummed != 0) {
        if (!(Kernel::kSummed >> i & 1)) continue;
        if (access < kHeld) {
          results.terms[Sums::number_of(i)][k] = numbers.numbers[i];
        } else {
          sums_.add_edge(i, numbers.numbers[i]);
        }
      }
    }
  }

  // Writes the results of an access, which begins with element number `first` of the row; or of one element.
  template <int kSize>
  __device__ void store_results(Index first, const Results& results) const {
#pragma unroll
    for (int i = 0; i < Tensors::kResults; ++i) {
      if constexpr (Tensors::kCodes != 0) {
        if (Tensors::kCodes >> i & 1) {
          store_result<kSize>(tensors_.codes[i], 0, first, results.codes[i]);
          continue;
        }
      }
      if constexpr (Tensors::kWide != 0) {
        if (Tensors::kWide >> i & 1) {
          store_result<kSize>(tensors_.wide_rows[i], 0, first, results.wide[i]);
          continue;
        }
      }
      store_result<kSize>(tensors_.results[i].values, joined_of(i), first, results.values[i]);
    }
  }

 private:
  template <typename F, size_t... kPlaces>
  __device__ void write(F f, std::index_sequence<kPlaces...>) {
    Results results;
    const auto compute = [&](int access, int k, Index place, auto... values) {
      Numbers numbers;
      invoke(f, place, values..., numbers.template result<kPlaces>()...);
      take(access, k, numbers, results);
    };
    each_of_last_pass(compute, [&](int access, Index first, auto size) {
      this->template store_access<size>(access, first, results);
    });
  }

  // Writes the results of an access of kSize elements, and adds them to sums over the rows.
  template <int kSize>
  __device__ void store_access(int access, Index first, const Results& results) {
    if constexpr (Kernel::kSummed != 0 && kSize == N) sums_.add(tensors_, access, results.terms);
    if constexpr (Kernel::kApart) {
      store_own(access, results);
    } else {
      store_results<kSize>(first, results);
    }
  }

  // Writes the results of an element of a row that lies apart.
  __device__ void store_own(int access, const Results& results) const {
#pragma unroll
    for (int i = 0; i < Tensors::kResults; ++i) {
      if (own_results_[i]) own_results_[i][access * Group::kStep] = results.values[i][0];
    }
  }

  // Of how many parts the rows of a result are joined; 0: of none.
  __device__ int joined_of(int i) const { return Tensors::kJoined >> i & 1 ? tensors_.joined[i] : 0; }

  template <typename Element>
  __device__ Element* row_of_result(Element* values, int joined) const {
    return values + (joined ? row_ * joined : row_) * elements();
  }

  // `values`: of all rows; null: not needed. `joined`: of how many parts the result's rows are joined; 0: of none.
  template <int kSize, typename Element>
  __device__ void store_result(Element* values, int joined, Index first, const Vector<Element, N>& result) const {
    const Index n = elements();
    if (!values) return;
    const Operand<T>& layout = tensors_.layout;
    if (kInParts && !layout.flat) {
      Element* const row = values + (layout.row(index_) - layout.data);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (first + k >= 0 && first + k < n) row[layout.offset(tensors_.rows, first + k)] = result[k];
      }
      return;
    }
    Element* const row = row_of_result(values, joined);
    if constexpr (kSize == 1) {
      row[first] = result[0];
    } else if (kAligned || (!joined && (kPeeled || (first >= 0 && first + N <= n)))) {
      store_evict_last(row + first, 0, result);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (first + k >= 0 && first + k < n) row[first + k] = result[k];
      }
    }
  }

  T* own_results_[Kernel::kApart ? Tensors::kResults + 1 : 1];
};
