// A row as a formula sees it: sums and maxima over its elements, and a pass that writes its results. cpu/formula_row.h
// offers the same to the CPU.

#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "cache_hints.cuh"
#include "dependent_launch.cuh"
#include "functions.cuh"
#include "gradient_sums.cuh"
#include "pipeline.cuh"
#include "row_tensors.h"
#include "running.cuh"
#include "thread_group.cuh"
#include "tile.cuh"
#include "widen.cuh"

// Which elements of a row an access has. Of rows that start at multiples of 16 bytes, access i has those from i * N on.
// Index: int where a block holds the row, which is short then.
template <int N, bool kAligned, typename Index>
struct RowStart {
  __device__ RowStart(int64_t, int64_t n) : accesses(static_cast<Index>(n / N)) {}

  __device__ Index first(Index access) const { return access * N; }

  Index accesses;  // of the row
};

// Rows of any size, which lie one after the other: the accesses are aligned and have elements of the row alone. At its
// ends are elements, fewer than N at each, of which a thread has one.
template <int N>
struct PeeledStart {
  __device__ PeeledStart(int64_t row, int n)
      : head(min(n, static_cast<int>((N - row * n % N) % N))), accesses((n - head) / N), edges(n - accesses * N) {}

  __device__ int first(int access) const { return head + access * N; }

  __device__ int edge(int i) const { return i < head ? i : i + accesses * N; }

  int head;
  int accesses;
  int edges;
};

// Others lie each as it likes, or are too long for a block: the accesses are aligned, so a row's first and last one may
// have elements of the rows before and after it.
template <int N, typename Index>
struct RowStart<N, false, Index> {
  __device__ RowStart(int64_t row, int64_t n)
      : shift(static_cast<int>(row * n % N)), accesses(n == 0 ? 0 : static_cast<Index>((n + shift + N - 1) / N)) {}

  __device__ Index first(Index access) const { return access * N - shift; }

  int shift;
  Index accesses;
};

// N elements of an input's row from `first` on; zeros where they are not the row's. Nothing waits for a load here:
// there are predicates, but no branches. kInParts: a row may have two dimensions.
template <int N, bool kAligned, bool kInParts, typename Index, typename T>
__device__ Vector<T, N> read_row(
    const Operand<T>& input, const Rows& rows, const T* row, Index first, Index n, int64_t end) {
  if constexpr (kAligned) {
    return load_evict_last<N>(row + first, 0, first < n);
  } else {
    // `end` is the number of elements from the row's first one to the last one of the tensor.
    const bool is_aligned = reinterpret_cast<uintptr_t>(input.data) % sizeof(Vector<T, N>) == 0;
    const bool is_vector = input.flat && is_aligned && first + N <= end && first < n;
    Vector<T, N> values = load_evict_last<N>(row + first, 0, is_vector);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const bool is_inside = first + k >= 0 && first + k < n;
      const T value =
          !is_vector && is_inside ? row[kInParts ? input.offset(rows, first + k) : (first + k) * input.step] : T();
      if (!is_vector) values[k] = value;
    }
    return values;
  }
}

// The place of a row. Where rows lie evenly for sure, a kernel has no code for others: what few rows cost most is their
// latency, and a part of it is that of instructions which no cache has.
template <typename Kernel>
__device__ RowIndex row_index(const Rows& rows, int64_t row) {
  if constexpr (Kernel::kEven) return RowIndex(row);
  return RowIndex(rows, row);
}

// Whether an input's accesses of a row that is peeled are vectors: those of a weight that rows have in common are not.
template <int N, typename T>
__device__ bool has_peeled_vectors(const Operand<T>& input) {
  return input.flat && reinterpret_cast<uintptr_t>(input.data) % sizeof(Vector<T, N>) == 0;
}

// The elements of an access that has those of the row alone, or none, one by one.
template <int N, typename T>
__device__ Vector<T, N> read_apart(const Operand<T>& input, const T* row, int first, bool is_valid) {
  Vector<T, N> values = {};
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (is_valid) values[k] = row[(first + k) * input.step];
  }
  // Packed here, in the branch: unpacked where branches meet, vectors that are being loaded would be waited for.
  forget_conversions(values);
  return values;
}

// What a row has one of. Groups that stay load that of the next row ahead of time too.
template <typename Tensors>
struct RowNumbers {
  using Number = accumulate_t<typename Tensors::Element>;

  // Past the last row they are 0.
  __device__ void load(const Tensors& tensors, int64_t row) {
    const bool is_valid = row < tensors.rows.count;
#pragma unroll
    for (int i = 0; i < Tensors::kNumbers; ++i) numbers[i] = is_valid ? widen(tensors.numbers[i][row]) : Number(0);
#pragma unroll
    for (int i = 0; i < Tensors::kWideNumbers; ++i) wide[i] = is_valid ? tensors.wide_numbers[i][row] : 0;
#pragma unroll
    for (int i = 0; i < Tensors::kSaved; ++i) saved[i] = is_valid ? tensors.saved[i][row] : 0;
#pragma unroll
    for (int i = 0; i < Tensors::kFlags; ++i) flags[i] = is_valid && tensors.flags[i][row];
#pragma unroll
    for (int i = 0; i < Tensors::kPlaces; ++i) places[i] = is_valid ? tensors.places[i][row] : 0;
  }

  Number numbers[Tensors::kNumbers + 1];
  float wide[Tensors::kWideNumbers + 1];
  Number saved[Tensors::kSaved + 1];
  bool flags[Tensors::kFlags + 1];
  int64_t places[Tensors::kPlaces + 1];
};

// A warp that takes part number blockIdx.y of each of its rows: for formulas that reduce nothing, whose threads need
// not know of each other.
struct PartGroup : LaneGroup<kWarp> {
  static constexpr int kThreads = 256;  // of a block, which leaves a row of partial sums

  template <int kAccesses>
  __device__ int first_access() const {
    return blockIdx.y * kWarp * kAccesses + threadIdx.x % kWarp;
  }

  __device__ int rank() const { return blockIdx.y * kWarp + threadIdx.x % kWarp; }
  __device__ int size() const { return gridDim.y * kWarp; }
};

// A thread's part of a row of every input but the late ones, in registers: kHeld accesses of N elements.
template <typename Kernel, typename Tensors>
struct HeldRow {
  using T = typename Tensors::Element;
  static constexpr int N = Kernel::kN, kHeld = Kernel::kHeld;
  // Late inputs are loaded with the others where the time of a row is that of its loads, and registers are free.
  static constexpr bool kIsShort =
      Kernel::Group::kOfOneWarp && Kernel::Group::kStep < kWarp && kHeld <= 2 && Kernel::kSummed == 0;
  static constexpr bool kIsPart = std::is_same_v<typename Kernel::Group, PartGroup>;
  static constexpr bool kLoadsLate = kIsPart || (Kernel::kAligned && (kHeld == 1 || kIsShort) && Kernel::kSummed == 0);

  Vector<T, N> accesses[kHeld + 1][Tensors::kInputs + 1];
  T edges[Tensors::kInputs + 1];  // of a row that is peeled
  RowNumbers<Tensors> numbers;    // of groups that stay

  // Where a kernel reads more tensors than it writes, what it reads need not displace lines that kernels before have
  // written, which would have to go to memory; nor do short rows, of which many are read at once.
  static constexpr int kWritten = Tensors::kResults - count_bits(Kernel::kSummed);
  static constexpr bool kLeavesFirst = Tensors::kHeldInputs > kWritten || kIsShort;
  const EvictionPolicy policy{kLeavesFirst ? Eviction::kFirst : Eviction::kLast};

  // The next row of the inputs that wait: a thread copies its own accesses, and no other's.
  using Waiting = RowPipeline<T, N, kHeld, 1>;

  __host__ __device__ static constexpr bool is_held(int input) { return kLoadsLate || !(Tensors::kLate >> input & 1); }

  // Loads row number `row`, all of it at once; past the last row there is nothing.
  template <typename Group>
  __device__ void load(const Group& group, const Tensors& tensors, int64_t row) {
    const int64_t count = tensors.rows.count;
    const int n = row < count ? static_cast<int>(tensors.rows.n) : 0;
    const RowIndex index = row_index<Kernel>(tensors.rows, row < count ? row : 0);
    const typename Kernel::Start start(row, n);
    // Vectors first, without a branch between them: all are in flight then.
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) {
      if (!is_held(i)) continue;
      const Operand<T>& input = tensors.inputs[i];
      const T* const elements = input.row(index);
      if constexpr (Kernel::kApart) {
        const int first = group.template first_access<kHeld>();
        const T* const own = elements + first;
#pragma unroll
        for (int access = 0; access < kHeld; ++access) {
          accesses[access][i][0] = first + access * Group::kStep < n ? own[access * Group::kStep] : T();
        }
        continue;
      }
      const bool has_vectors = !Kernel::kPeeled || has_peeled_vectors<N>(input);
#pragma unroll
      for (int access = 0; access < kHeld; ++access) {
        const int number = group.template first_access<kHeld>() + access * Group::kStep;
        const bool is_vector = has_vectors && number < start.accesses;
        accesses[access][i] = policy.load<N>(elements + start.first(number), 0, is_vector);
      }
    }
    if constexpr (Kernel::kPeeled && !Kernel::kApart) load_rest(group, tensors, index, start);
  }

  // Loads the inputs of a row of which `chosen` has a bit.
  template <typename Group>
  __device__ void load_some(const Group& group, const Tensors& tensors, int64_t row, int chosen) {
    if (!chosen) return;
    const bool is_valid = row < tensors.rows.count;
    const RowIndex index = row_index<Kernel>(tensors.rows, is_valid ? row : 0);
    const typename Kernel::Start start(row, is_valid ? tensors.rows.n : 0);
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) {
      if (!is_held(i) || !(chosen >> i & 1)) continue;
      const T* const elements = tensors.inputs[i].row(index) + start.first(group.template first_access<kHeld>());
#pragma unroll
      for (int access = 0; access < kHeld; ++access) {
        const int number = group.template first_access<kHeld>() + access * Group::kStep;
        accesses[access][i] = policy.load<N>(elements, access * Group::kStep, number < start.accesses);
      }
    }
  }

  // Starts the copies of a row's inputs that wait; past the last row there are none.
  template <typename Group>
  __device__ void fetch(Waiting& waiting, const Group& group, const Tensors& tensors, int64_t row) const {
    if (tensors.waiting && row < tensors.rows.count) {
      const RowIndex index = row_index<Kernel>(tensors.rows, row);
      const typename Kernel::Start start(row, tensors.rows.n);
      int slot = 0;
#pragma unroll
      for (int i = 0; i < Tensors::kInputs; ++i) {
        if (!is_held(i) || !(tensors.waiting >> i & 1)) continue;
        const T* const elements = tensors.inputs[i].row(index) + start.first(group.template first_access<kHeld>());
#pragma unroll
        for (int access = 0; access < kHeld; ++access) {
          const int number = group.template first_access<kHeld>() + access * Group::kStep;
          const auto* const from = reinterpret_cast<const Vector<T, N>*>(elements) + access * Group::kStep;
          if (number < start.accesses) waiting.fetch(slot, access, from, policy);
        }
        ++slot;
      }
    }
    waiting.commit();
  }

  // Takes over what has waited.
  __device__ void take(Waiting& waiting, const Tensors& tensors) {
    waiting.wait();
    int slot = 0;
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) {
      if (!is_held(i) || !(tensors.waiting >> i & 1)) continue;
#pragma unroll
      for (int access = 0; access < kHeld; ++access) accesses[access][i] = waiting.access(slot, access);
      ++slot;
    }
    waiting.release();
  }

 private:
  // Of a row that is peeled: its edges, and what is read one by one.
  template <typename Group>
  __device__ void load_rest(
      const Group& group, const Tensors& tensors, const RowIndex& index, const typename Kernel::Start& start) {
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) {
      if (!is_held(i)) continue;
      const Operand<T>& input = tensors.inputs[i];
      if (group.rank() < start.edges) edges[i] = input.row(index)[start.edge(group.rank()) * input.step];
    }
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) {
      const Operand<T>& input = tensors.inputs[i];
      if (!is_held(i) || has_peeled_vectors<N>(input)) continue;
#pragma unroll
      for (int access = 0; access < kHeld; ++access) {
        const int number = group.template first_access<kHeld>() + access * Group::kStep;
        accesses[access][i] = read_apart<N>(input, input.row(index), start.first(number), number < start.accesses);
      }
    }
  }
};

// The sums over the rows of each result of which Kernel::kSummed has a bit, in shared memory: a thread has those of its
// own accesses, and no other thread touches them before the end. Registers would hold twice as few accesses.
template <typename Kernel, typename Tensors>
class RowSums {
 public:
  using Sum = accumulate_t<typename Tensors::Element>;
  static constexpr int N = Kernel::kN, kHeld = Kernel::kHeld;
  static constexpr int kCount = count_bits(Kernel::kSummed);
  using Terms = Vector<Sum, N>[kCount + 1];

  // The number of a result among those that may be summed.
  __host__ __device__ static constexpr int number_of(int result) {
    return count_bits(Kernel::kSummed & ((1 << result) - 1));
  }

  // The dynamic shared memory of a block with so many sums, in bytes.
  __host__ __device__ static constexpr int64_t bytes(int threads, int sums) {
    return int64_t(sizeof(Sum)) * N * kHeld * sums * threads;
  }

  __device__ RowSums(void* shared, int sums) : own_(static_cast<Part*>(shared) + threadIdx.x) {
    if constexpr (kCount > 0) {
      for (int i = 0; i < sums * kHeld * kParts; ++i) own_[i * blockDim.x] = Part();
    }
  }

  // Adds the terms of an access of the results that are summed.
  __device__ void add(const Tensors& tensors, int access, const Terms& terms) {
#pragma unroll
    for (int i = 0; i < Tensors::kResults; ++i) {
      if (!is_summed(tensors, i)) continue;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        Part& sum = own_[place(tensors, i, access, part)];
        Part total = sum;
#pragma unroll
        for (int k = 0; k < kLength; ++k) total[k] += terms[number_of(i)][part * kLength + k];
        sum = total;
      }
    }
  }

  // Adds a term of an element at a peeled row's ends.
  __device__ void add_edge(int i, Sum term) { edges_[i] += term; }

  // Writes the block's row of partial sums.
  template <typename Group>
  __device__ void write(const Group& group, const Tensors& tensors) {
    if (Group::kSharesBlock) __syncthreads();
#pragma unroll
    for (int i = 0; i < Tensors::kResults; ++i) {
      if (!is_summed(tensors, i)) continue;
      const auto& gradient = tensors.results[i];
      const int block = blockIdx.x / (std::is_same_v<Group, ClusterGroup> ? cluster::size() : 1);
      Sum* const row = gradient.partial + block * gradient.partial_stride;
      write_row(group, tensors, i, row);
    }
  }

 private:
  static constexpr int kLength = kVectorLength<Sum>, kParts = N / kLength;
  using Part = Vector<Sum, kLength>;

  __device__ static bool is_summed(const Tensors& tensors, int i) {
    return (Kernel::kSummed >> i & 1) && tensors.results[i].is_summed_by_kernel();
  }

  // Where a part of an access of a result's sums lies.
  __device__ static int place(const Tensors& tensors, int result, int access, int part) {
    int slot = 0;
#pragma unroll
    for (int i = 0; i < result; ++i) slot += is_summed(tensors, i);
    return ((slot * kHeld + access) * kParts + part) * blockDim.x;
  }

  template <typename Group>
  __device__ void write_row(const Group& group, const Tensors& tensors, int i, Sum* row) const {
    if constexpr (Group::kSharesBlock) return write_sums_of_groups(group, tensors, i, row);
    // All rows of a peeled block begin alike: there are a multiple of N blocks.
    const typename Kernel::Start start(group.first(), static_cast<int>(tensors.rows.n));
#pragma unroll
    for (int access = 0; access < kHeld; ++access) {
      const int number = group.template first_access<kHeld>() + access * Group::kStep;
      if (number >= start.accesses) continue;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const Part sum = own_[place(tensors, i, access, part)];
        Sum* const out = row + start.first(number) + part * kLength;
        if constexpr (Kernel::kPeeled) {
#pragma unroll
          for (int k = 0; k < kLength; ++k) out[k] = sum[k];
        } else {
          store(out, 0, sum);
        }
      }
    }
    if constexpr (Kernel::kPeeled) {
      if (group.rank() < start.edges) row[start.edge(group.rank())] = edges_[i];
    }
  }

  // Of groups that share a block: the sums of all of them, in their order.
  template <typename Group>
  __device__ void write_sums_of_groups(const Group& group, const Tensors& tensors, int i, Sum* row) const {
    constexpr int kLanes = Group::kStep, kAll = kHeld * kParts * kLanes;
    const Part* const first = own_ - threadIdx.x;
    const int first_access = group.template first_access<kHeld>() - threadIdx.x % kLanes;
    for (int number = threadIdx.x; number < kAll; number += blockDim.x) {
      const int lane = number % kLanes, part = number / kLanes % kParts, access = number / kLanes / kParts;
      const int column = (first_access + access * kLanes + lane) * N + part * kLength;
      if (column >= tensors.rows.n) continue;
      const Part* const sums = first + place(tensors, i, access, part) + lane;
      Part total = sums[0];
      for (unsigned other = kLanes; other < blockDim.x; other += kLanes) total += sums[other];
      store(row + column, 0, total);
    }
  }

  Part* own_;
  Sum edges_[Tensors::kResults + 1] = {};  // of a row that is peeled
};

// What a part of a row leaves of a reduction: up to four numbers, or a number and a place.
template <typename Number>
struct PartialResult {
  Number first;
  Number second;
  int64_t place;
  Number third;
  Number fourth;
};

// Of kept_row.h, which formulas include that keep something.
template <int... kNumbers>
struct Inputs;
template <typename Row, typename Kept>
class KeptRow;

// Value number kPlace of several.
template <int kPlace, typename First, typename... Others>
__device__ __forceinline__ decltype(auto) value_at(First& first, Others&... others) {
  if constexpr (kPlace == 0) {
    return (first);
  } else {
    return value_at<kPlace - 1>(others...);
  }
}

// What is computed again of each element: term(those of the inputs that have these numbers).
template <typename Term, int... kOfInputs>
struct KeptTerm {
  Term term;

  // f(kept, values...) as a formula of the values, of which the inputs are the first.
  template <typename F>
  struct With {
    Term term;
    F f;

    template <typename... Values>
    __device__ auto operator()(Values&&... values) const
        -> decltype(f(term(value_at<kOfInputs>(values...)...), values...)) {
      return f(term(value_at<kOfInputs>(values...)...), values...);
    }
  };

  template <typename F>
  __device__ With<F> with(const F& f) const {
    return {term, f};
  }
};

// What registers hold of each element, and the element that a pass is at.
template <typename Number>
struct HeldTerm {
  const Number* numbers;
  const int* element;

  // f(held, values...) as a formula of the values.
  template <typename F>
  struct With {
    HeldTerm held;
    F f;

    template <typename... Values>
    __device__ auto operator()(Values&&... values) const -> decltype(f(*held.numbers, values...)) {
      return f(held.numbers[*held.element], values...);
    }
  };

  template <typename F>
  __device__ With<F> with(const F& f) const {
    return {*this, f};
  }
};

// A row, or a part of one. Its reductions are numbered in the order in which the formula calls them. Of rows in parts,
// a launch is a pass: in pass i, reduction i is computed of each part alone, those before it are known of all parts,
// and those after it do not matter; the last pass writes the results.
template <typename Kernel, typename Tensors>
class FormulaRow {
 public:
  using T = typename Tensors::Element;
  using Number = accumulate_t<T>;
  using Group = typename Kernel::Group;
  using Held = HeldRow<Kernel, Tensors>;
  using Sums = RowSums<Kernel, Tensors>;
  using Partial = PartialResult<Number>;

  // Past the last row it has no elements.
  __device__ FormulaRow(Group& group, const Tensors& tensors, int64_t row, int part, Held& held, Sums& sums)
      : group_(group),
        tensors_(tensors),
        held_(held),
        sums_(sums),
        row_(row),
        part_(part),
        valid_(row < tensors.rows.count),
        index_(row_index<Kernel>(tensors.rows, valid_ ? row : 0)),
        start_(row, valid_ ? tensors.rows.n : 0) {
    if constexpr (Kernel::kApart) {
      // Each element is an access of its own: addresses that are computed once are most of what there is to save.
      const int first = group_.template first_access<kHeld>();
#pragma unroll
      for (int i = 0; i < Tensors::kInputs; ++i) own_inputs_[i] = tensors_.inputs[i].row(index_) + first;
#pragma unroll
      for (int i = 0; i < Tensors::kResults; ++i) {
        T* const values = tensors_.results[i].values;
        own_results_[i] = values ? row_of_result(values, joined_of(i)) + first : nullptr;
      }
    }
  }

  __device__ Number size() const { return static_cast<Number>(tensors_.rows.n); }

  __device__ Number count() const { return static_cast<Number>(tensors_.rows.count); }

  __device__ Number batch() const { return static_cast<Number>(tensors_.rows.batch); }

  // The place of the row along the dimension before the last, where rows are the last one.
  __device__ Number line() const { return static_cast<Number>(row_ % tensors_.rows.lines); }

  __device__ Number number(int i) const {
    if constexpr (Kernel::kStays) return held_.numbers.numbers[i];
    return valid_ ? widen(tensors_.numbers[i][row_]) : Number(0);
  }

  __device__ Number wide_number(int i) const {
    if constexpr (Kernel::kStays) return held_.numbers.wide[i];
    return valid_ ? tensors_.wide_numbers[i][row_] : 0;
  }

  // What the forward saved of the row, and of all rows.
  __device__ Number saved(int i) const {
    if constexpr (Kernel::kStays) return held_.numbers.saved[i];
    return valid_ ? tensors_.saved[i][row_] : 0;
  }

  __device__ Number saved_total(int i) const { return *tensors_.saved_given[i]; }

  __device__ bool flag(int i) const {
    if constexpr (Kernel::kStays) return held_.numbers.flags[i];
    return valid_ && tensors_.flags[i][row_];
  }

  __device__ int64_t place(int i) const {
    if constexpr (Kernel::kStays) return held_.numbers.places[i];
    return valid_ ? tensors_.places[i][row_] : 0;
  }

  // 0; NaN for a place that the row does not have, which makes what is computed of its element NaN: the host learns of
  // no error without waiting for the kernel.
  __device__ Number checked_zero(int64_t place) const {
    return place >= 0 && place < tensors_.rows.n ? Number(0) : math::kNaN<Number>;
  }

  // A number that all rows have in common, and a sum over all rows.
  __device__ Number given(int i) const { return widen(*tensors_.given[i]); }

  __device__ Number wide_given(int i) const { return *tensors_.wide_given[i]; }

  __device__ Number total(int i) const { return tensors_.totals[i]; }

  // The row with term(those of the inputs that have these numbers) of each element.
  template <int... kOfInputs, typename F>
  __device__ auto keep(Inputs<kOfInputs...>, F term) {
    using Kept = KeptTerm<F, kOfInputs...>;
    return KeptRow<FormulaRow, Kept>(*this, Kept{term});
  }

  // The same of a term of the inputs alone.
  template <int... kOfInputs, typename F>
  __device__ auto keep_for_rows(Inputs<kOfInputs...> inputs, F term) {
    return keep(inputs, term);
  }

  // The row with such a term in registers, which are worth it where the term is a long one; computed again where no
  // inputs are held.
  template <int... kOfInputs, typename F>
  __device__ auto hold(Inputs<kOfInputs...> inputs, F term) {
    if constexpr (kHeld == 0) {
      return keep(inputs, term);
    } else {
      each<false>([&](int access, int k, Index, auto... values) {
        terms_[access * N + k] = term(value_at<kOfInputs>(values...)...);
      });
      return KeptRow<FormulaRow, HeldTerm<Number>>(*this, HeldTerm<Number>{terms_, &element_});
    }
  }

  template <int... kOfInputs, typename F>
  __device__ auto hold_for_rows(Inputs<kOfInputs...> inputs, F term) {
    return hold(inputs, term);
  }

  // The term of the element at a place, which is read alone; `otherwise` where the row has none there.
  template <typename F>
  __device__ Number at(int64_t place, Number otherwise, F term) const {
    if (!valid_ || place < 0 || place >= tensors_.rows.n) return otherwise;
    return term_at(place, term, std::make_index_sequence<Tensors::kInputs>());
  }

  template <typename F>
  __device__ Number sum(F term) {
    const auto of_elements = [&] {
      Number total = 0;
      each<false>([&](int, int, Index place, auto... values) { total += invoke(term, place, values...); });
      return Partial{total, 0, 0};
    };
    return reduced(
               Partial{},
               of_elements,
               join_sums,
               [&](const Partial& own) { return Partial{group_.sum(own.first), 0, 0}; })
        .first;
  }

  // Several sums by one pass: term(inputs..., first term, second term, ...).
  template <typename F>
  __device__ void sums(Number& first, Number& second, F term) {
    const Partial all = several_sums<2>(term);
    first = all.first;
    second = all.second;
  }

  template <typename F>
  __device__ void sums(Number& first, Number& second, Number& third, F term) {
    const Partial all = several_sums<3>(term);
    first = all.first;
    second = all.second;
    third = all.third;
  }

  template <typename F>
  __device__ void sums(Number& first, Number& second, Number& third, Number& fourth, F term) {
    const Partial all = several_sums<4>(term);
    first = all.first;
    second = all.second;
    third = all.third;
    fourth = all.fourth;
  }

  template <typename F>
  __device__ Number max(F term) {
    const auto of_elements = [&] {
      Number largest = -math::kInfinity<Number>;
      each<false>([&](int, int, Index place, auto... values) {
        largest = math::maximum(largest, invoke(term, place, values...));
      });
      return Partial{largest, 0, 0};
    };
    const auto larger = [](Partial& left, const Partial& right) {
      left.first = math::maximum(left.first, right.first);
    };
    return reduced(
               Partial{-math::kInfinity<Number>, 0, 0},
               of_elements,
               larger,
               [&](const Partial& own) { return Partial{group_.max(own.first), 0, 0}; })
        .first;
  }

  template <typename F>
  __device__ Number min(F term) {
    return -max([&](auto... values) -> decltype(-term(values...)) { return -term(values...); });
  }

  template <typename F>
  __device__ Number product(F term) {
    const auto of_elements = [&] {
      Number product = 1;
      each<false>([&](int, int, Index place, auto... values) { product *= invoke(term, place, values...); });
      return Partial{product, 0, 0};
    };
    const auto times = [](Partial& left, const Partial& right) { left.first *= right.first; };
    return reduced(
               Partial{1, 0, 0},
               of_elements,
               times,
               [&](const Partial& own) { return Partial{group_.product(own.first), 0, 0}; })
        .first;
  }

  // The first place of the largest term; a NaN is the largest of all.
  template <typename F>
  __device__ int64_t argmax(F term) {
    const auto keep_first = [](Partial& left, const Partial& right) {
      const Ranked<Number> other{right.first, right.place};
      if (other.is_before(Ranked<Number>{left.first, left.place})) left = right;
    };
    const Partial none{-math::kInfinity<Number>, 0, INT64_MAX};
    const auto of_elements = [&] {
      Partial first = none;
      each<false>([&](int, int, Index place, auto... values) {
        keep_first(first, {invoke(term, place, values...), 0, place});
      });
      return first;
    };
    return reduced(
               none,
               of_elements,
               keep_first,
               [&](const Partial& own) {
                 const Ranked<Number> first = group_.argmax(Ranked<Number>{own.first, own.place});
                 return Partial{first.value, 0, first.place};
               })
        .place;
  }

  template <typename F>
  __device__ int64_t argmin(F term) {
    return argmax([&](auto... values) -> decltype(-term(values...)) { return -term(values...); });
  }

  // f(inputs..., results...) for each element.
  template <typename F>
  __device__ void write(F f) {
    if (is_last_pass()) write(f, std::make_index_sequence<Tensors::kResults>());
  }

  // f(inputs..., running, results...) for each element: `running` is the sum of term(inputs...) of the row's elements
  // up to this one.
  template <typename Term, typename F>
  __device__ void write_running_sums(Term term, F f) {
    run<false, Sum>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  // From this one on.
  template <typename Term, typename F>
  __device__ void write_running_sums_back(Term term, F f) {
    run<true, Sum>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  template <typename Term, typename F>
  __device__ void write_running_products(Term term, F f) {
    run<false, Product>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  template <typename Term, typename F>
  __device__ void write_running_products_back(Term term, F f) {
    run<true, Product>(term, f, std::make_index_sequence<Tensors::kInputs>());
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

 private:
  static constexpr int N = Kernel::kN, kHeld = Kernel::kHeld;
  static constexpr bool kAligned = Kernel::kAligned, kPeeled = Kernel::kPeeled;
  static constexpr bool kHasEdges = kPeeled && !Kernel::kApart;
  static constexpr bool kInParts = kHeld == 0;
  // The accesses to each input that are in flight where none are held.
  static constexpr int kAhead = kAligned && Tensors::kInputs < 3 ? 2 : 1;
  // Those whose late inputs are loaded at once where they are held.
  static constexpr int kTogether = Kernel::kApart ? 4 : 1;
  using Access = Vector<T, N>[Tensors::kInputs + 1];
  using Index = typename Kernel::Index;

  __device__ static void join_sums(Partial& left, const Partial& right) {
    left.first += right.first;
    left.second += right.second;
    left.third += right.third;
    left.fourth += right.fourth;
  }

  template <int kSums, typename F>
  __device__ Partial several_sums(F& term) {
    // As many as a vector may have.
    constexpr int kLength = kSums == 2 ? 2 : 4;
    using Totals = Vector<Number, kLength>;
    const auto partial_of = [](const Totals& totals) {
      Partial all{totals[0], totals[1], 0};
      if constexpr (kLength == 4) {
        all.third = totals[2];
        all.fourth = totals[3];
      }
      return all;
    };
    const auto of_elements = [&] {
      Totals totals{};
      each<false>([&](int, int, Index place, auto... values) {
        Number terms[kSums];
        call_sums(term, place, terms, std::make_index_sequence<kSums>(), values...);
#pragma unroll
        for (int k = 0; k < kSums; ++k) totals[k] += terms[k];
      });
      return partial_of(totals);
    };
    return reduced(Partial{}, of_elements, join_sums, [&](const Partial& own) {
      Totals totals{};
      totals[0] = own.first;
      totals[1] = own.second;
      if constexpr (kLength == 4) {
        totals[2] = own.third;
        totals[3] = own.fourth;
      }
      return partial_of(group_.sum(totals));
    });
  }

  template <int kSums, typename F, size_t... kTerms, typename... Values>
  __device__ static void call_sums(
      F& term, Index place, Number (&terms)[kSums], std::index_sequence<kTerms...>, Values... values) {
    invoke(term, place, values..., terms[kTerms]...);
  }

  template <typename F, size_t... kPlaces>
  __device__ Number term_at(int64_t place, F& term, std::index_sequence<kPlaces...>) const {
    const auto element = [&](const Operand<T>& input) { return input.row(index_)[input.offset(tensors_.rows, place)]; };
    return invoke(term, place, widen(element(tensors_.inputs[kPlaces]))...);
  }

  // A formula that needs an element's place in the row takes it first.
  template <typename F, typename... Values>
  __device__ static decltype(auto) invoke(F& f, int64_t place, Values&&... values) {
    if constexpr (std::is_invocable_v<F&, int64_t, Values&&...>) {
      return f(place, values...);
    } else {
      return f(values...);
    }
  }

  // A reduction of the row: of_elements() is a thread's own result, join() adds another to it, and across() is the
  // group's.
  template <typename F, typename Join, typename Across>
  __device__ Partial reduced(Partial none, const F& of_elements, const Join& join, const Across& across) {
    if constexpr (kInParts) {
      if (tensors_.parts > 1) {
        const int64_t first = (int64_t(reductions_) * tensors_.rows.count + (valid_ ? row_ : 0)) * tensors_.parts;
        Partial* const of_parts = static_cast<Partial*>(tensors_.partial) + first;
        const int reduction = reductions_++;
        if (reduction > tensors_.pass) return none;
        if (reduction == tensors_.pass) {
          const Partial own = across(of_elements());
          if (valid_ && group_.rank() == 0) of_parts[part_] = own;
          return own;
        }
        for (int part = group_.rank(); part < tensors_.parts; part += group_.size()) join(none, of_parts[part]);
        return across(none);
      }
    }
    return across(of_elements());
  }

  __device__ bool is_last_pass() const { return !kInParts || tensors_.parts == 1 || reductions_ == tensors_.pass; }

  __device__ bool puts() const { return valid_ && group_.rank() == 0 && part_ == 0 && is_last_pass(); }

  // Where a part of the row ends, in accesses.
  __device__ Index end_of_part(int part) const {
    return static_cast<Index>(int64_t(start_.accesses) * part / tensors_.parts);
  }

  __device__ Index elements() const { return valid_ ? static_cast<Index>(tensors_.rows.n) : 0; }

  __device__ Vector<T, N> read(int i, Index first) const {
    const Operand<T>& input = tensors_.inputs[i];
    const int64_t end = (tensors_.rows.count - row_) * tensors_.rows.n;
    return read_row<N, kAligned, kInParts>(input, tensors_.rows, input.row(index_), first, elements(), end);
  }

  // Calls f(access, k, place, inputs...) for each element: number k of an access, at its place in the row. Calls
  // finish(access, first, size) after each access, which has `size` elements from number `first` of the row on. kLast:
  // the pass that reads the late inputs.
  template <bool kLast, typename F, typename G>
  __device__ void each(F f, G finish) {
    const auto visit = [&](int access, Index first, const Access& vectors) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (is_inside(first, k)) {
          call(f, access, k, first + k, vectors, std::make_index_sequence<Tensors::kInputs>());
        }
      }
      finish(access, first, std::integral_constant<int, N>());
    };
    if constexpr (kHeld > 0) {
      const auto index_of = [&](int access) { return group_.template first_access<kHeld>() + access * Group::kStep; };
#pragma unroll
      for (int first = 0; first < kHeld; first += kTogether) {
#pragma unroll
        for (int access = first; access < first + kTogether; ++access) prepare<kLast>(access, index_of(access));
#pragma unroll
        for (int access = first; access < first + kTogether; ++access) {
          const Index index = index_of(access);
          if (index < start_.accesses) visit(access, start_.first(index), held_.accesses[access]);
        }
      }
      if constexpr (kHasEdges) visit_edge<kLast>(f, finish, std::make_index_sequence<Tensors::kInputs>());
    } else {
      const Index end = end_of_part(part_ + 1), step = group_.size();
      const Index begin = end_of_part(part_) + group_.rank();
      for (Index index = begin; index < end; index += kAhead * step) {
        Access vectors[kAhead];
#pragma unroll
        for (int ahead = 0; ahead < kAhead; ++ahead) {
#pragma unroll
          for (int i = 0; i < Tensors::kInputs; ++i) {
            const Index first = start_.first(index + ahead * step);
            if (kLast || !(Tensors::kLate >> i & 1)) vectors[ahead][i] = read(i, first);
          }
        }
#pragma unroll
        for (int ahead = 0; ahead < kAhead; ++ahead) {
          if (index + ahead * step < end) visit(0, start_.first(index + ahead * step), vectors[ahead]);
        }
      }
    }
  }

  // The element of a peeled row's ends that the thread has.
  template <bool kLast, typename F, typename G, size_t... kPlaces>
  __device__ void visit_edge(F& f, G& finish, std::index_sequence<kPlaces...>) {
    if (group_.rank() >= start_.edges) return;
    const int place = start_.edge(group_.rank());
    element_ = kHeld * N;
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) {
      const Operand<T>& input = tensors_.inputs[i];
      if (kLast && (Tensors::kLate >> i & 1)) held_.edges[i] = input.row(index_)[place * input.step];
    }
    f(kHeld, 0, place, widen(held_.edges[kPlaces])...);
    finish(kHeld, place, std::integral_constant<int, 1>());
  }

  // Before a pass over an access that is held. kLast: as of `each`.
  template <bool kLast>
  __device__ void prepare(int access, Index index) {
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) {
      // Elements of 16 bits are widened again in each pass: kept as float32, they would take twice the registers.
      if (!(Tensors::kLate >> i & 1)) forget_conversions(held_.accesses[access][i]);
      if (kLast && !Held::is_held(i)) held_.accesses[access][i] = read_late(i, access, index);
    }
  }

  __device__ Vector<T, N> read_late(int i, int access, Index index) const {
    if constexpr (Kernel::kApart) {
      return {index < start_.accesses ? own_inputs_[i][access * Group::kStep] : T()};
    } else if constexpr (kPeeled) {
      const Operand<T>& input = tensors_.inputs[i];
      const T* const row = input.row(index_);
      const bool is_valid = index < start_.accesses, has_vectors = has_peeled_vectors<N>(input);
      const auto values = load_evict_last<N>(row + start_.first(index), 0, is_valid && has_vectors);
      return has_vectors ? values : read_apart<N>(input, row, start_.first(index), is_valid);
    } else {
      return read(i, start_.first(index));
    }
  }

  template <bool kLast, typename F>
  __device__ void each(F f) {
    each<kLast>(f, [](int, Index, auto) {});
  }

  template <typename F, size_t... kPlaces>
  __device__ void call(F& f, int access, int k, Index place, const Access& vectors, std::index_sequence<kPlaces...>) {
    element_ = access * N + k;
    f(access, k, place, widen_at(vectors[kPlaces], k)...);
  }

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

  template <typename F, size_t... kPlaces>
  __device__ void write(F f, std::index_sequence<kPlaces...>) {
    Results results;
    const auto compute = [&](int access, int k, Index place, auto... values) {
      Numbers numbers;
      invoke(f, place, values..., numbers.template result<kPlaces>()...);
      keep(access, k, numbers, results);
    };
    each<true>(compute, [&](int access, Index first, auto size) {
      if constexpr (Kernel::kSummed != 0 && size == N) sums_.add(tensors_, access, results.terms);
      if constexpr (Kernel::kApart) {
        store_own(access, results);
      } else {
        store_results<size>(first, results);
      }
    });
  }

  // Results of element k of an access, rounded, and as terms of sums over the rows.
  __device__ void keep(int access, int k, const Numbers& numbers, Results& results) {
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

  // ---- Running totals

  template <bool kBack, typename Join, typename Term, typename F, size_t... kPlaces>
  __device__ void run(Term term, F f, std::index_sequence<kPlaces...> places) {
    const Number none = Join::template none<Number>();
    Number all, carry = none;
    const auto total_of_elements = [&] {
      Number own = none;
      each<false>(
          [&](int, int, Index place, auto... values) { own = Join::join(own, invoke(term, place, values...)); });
      return own;
    };
    if constexpr (kHeld > 0) {
      static_assert(kAligned, "running totals take the elements in their order");
      lanes_before<kBack, Join>(total_of_elements(), &all);
      carry = warps_before<kBack, Join>(group_, all, &all);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const int access = kBack ? kHeld - 1 - i : i;
        const Index index = group_.template first_access<kHeld>() + access * Group::kStep;
        prepare<true>(access, index);
        const Index first = start_.first(index);
        const bool is_valid = index < start_.accesses;
        Number running[N];
        const Number own = run_access<kBack, Join>(term, first, is_valid, held_.accesses[access], running, places);
        const Number before = Join::join(carry, lanes_before<kBack, Join>(own, &all));
        carry = Join::join(carry, all);
        if (is_valid) write_run<Join>(f, access, first, held_.accesses[access], running, before, places);
      }
    } else {
      const Index accesses = start_.accesses, parts = tensors_.parts;
      Index begin = accesses * part_ / parts, end = parts == 1 ? accesses : accesses * (part_ + 1) / parts;
      if (parts > 1 && !carry_of_parts<kBack, Join>(total_of_elements, &carry)) return;
      if constexpr (std::is_same_v<Group, ColumnGroup>) {
        // Each warp has a part of the row.
        const Index n = end - begin;
        end = begin + n * (group_.rank() + 1) / group_.size();
        begin += n * group_.rank() / group_.size();
        Number own = none;
        for (Index index = begin; index < end; ++index) {
          Access vectors;
          read_all(vectors, index);
          Number running[N];
          own = Join::join(own, run_access<kBack, Join>(term, start_.first(index), true, vectors, running, places));
        }
        carry = Join::join(carry, warps_before<kBack, Join>(group_, own, &all));
        for (Index i = begin; i < end; ++i) {
          const Index index = kBack ? begin + end - 1 - i : i;
          Access vectors;
          read_all(vectors, index);
          Number running[N];
          const Number total = run_access<kBack, Join>(term, start_.first(index), true, vectors, running, places);
          write_run<Join>(f, 0, start_.first(index), vectors, running, carry, places);
          carry = Join::join(carry, total);
        }
      } else {
        for (Index tile = begin; tile < end; tile += group_.size()) {
          // The threads take the accesses of a tile in their order; against it, the last tile comes first.
          const Index index = kBack ? end - (tile - begin) - group_.size() + group_.rank() : tile + group_.rank();
          const bool is_valid = index >= begin && index < end;
          Access vectors = {};
          if (is_valid) read_all(vectors, index);
          Number running[N];
          const Index first = start_.first(index);
          const Number own = run_access<kBack, Join>(term, first, is_valid, vectors, running, places);
          Number of_warp;
          const Number in_warp = lanes_before<kBack, Join>(own, &of_warp);
          const Number before = Join::join(warps_before<kBack, Join>(group_, of_warp, &all), in_warp);
          if (is_valid) write_run<Join>(f, 0, first, vectors, running, Join::join(carry, before), places);
          carry = Join::join(carry, all);
        }
      }
    }
  }

  // Of a row in parts: in the pass of this reduction, leaves what the part has and returns false; in the last pass,
  // sets what the parts before it have.
  template <bool kBack, typename Join, typename F>
  __device__ bool carry_of_parts(const F& total_of_elements, Number* carry) {
    const int64_t first = (int64_t(reductions_) * tensors_.rows.count + (valid_ ? row_ : 0)) * tensors_.parts;
    Partial* const of_parts = static_cast<Partial*>(tensors_.partial) + first;
    const int reduction = reductions_++;
    const auto across = [&](Number value) {
      return std::is_same_v<Join, Sum> ? group_.sum(value) : group_.product(value);
    };
    if (reduction == tensors_.pass) {
      const Number own = across(total_of_elements());
      if (valid_ && group_.rank() == 0) of_parts[part_].first = own;
    }
    if (reduction >= tensors_.pass) return false;
    const int begin = kBack ? part_ + 1 : 0, end = kBack ? tensors_.parts : part_;
    for (int part = begin + group_.rank(); part < end; part += group_.size()) {
      *carry = Join::join(*carry, of_parts[part].first);
    }
    *carry = across(*carry);
    return true;
  }

  __device__ void read_all(Access& vectors, Index index) const {
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) vectors[i] = read(i, start_.first(index));
  }

  __device__ bool is_inside(Index first, int k) const {
    return kAligned || kPeeled || (first + k >= 0 && first + k < elements());
  }

  // The running totals of an access alone, and its total.
  template <bool kBack, typename Join, typename Term, size_t... kPlaces>
  __device__ Number run_access(
      Term& term,
      Index first,
      bool is_valid,
      const Access& vectors,
      Number (&running)[N],
      std::index_sequence<kPlaces...>) const {
    Number total = Join::template none<Number>();
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int k = kBack ? N - 1 - i : i;
      if (is_valid && is_inside(first, k)) {
        total = Join::join(total, invoke(term, first + k, widen_at(vectors[kPlaces], k)...));
      }
      running[k] = total;
    }
    return total;
  }

  // Writes the results of an access, before which the row has `before`.
  template <typename Join, typename F, size_t... kPlaces>
  __device__ void write_run(
      F& f,
      int access,
      Index first,
      const Access& vectors,
      const Number (&running)[N],
      Number before,
      std::index_sequence<kPlaces...>) {
    Results results;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (!is_inside(first, k)) continue;
      Numbers numbers;
      call_running(
          f,
          first + k,
          Join::join(before, running[k]),
          numbers,
          std::make_index_sequence<Tensors::kResults>(),
          widen_at(vectors[kPlaces], k)...);
      keep(access, k, numbers, results);
    }
    if constexpr (Kernel::kSummed != 0) sums_.add(tensors_, access, results.terms);
    store_results<N>(first, results);
  }

  template <typename F, size_t... kOutputs, typename... Values>
  __device__ static void call_running(
      F& f, Index place, Number running, Numbers& numbers, std::index_sequence<kOutputs...>, Values... values) {
    invoke(f, place, values..., running, numbers.template result<kOutputs>()...);
  }

  Group& group_;
  const Tensors& tensors_;
  Held& held_;
  Sums& sums_;
  const int64_t row_;
  const int part_;
  const bool valid_;
  const RowIndex index_;
  const typename Kernel::Start start_;
  const T* own_inputs_[Kernel::kApart ? Tensors::kInputs + 1 : 1];
  T* own_results_[Kernel::kApart ? Tensors::kResults + 1 : 1];
  Number terms_[kHeld * N + 1];  // that are held, of the elements of each access and of an edge
  int element_ = 0;
  int reductions_ = 0;
};

// Calls formula(row) for the rows of a group. kSummed: the results of which sums over the rows are written as well.
// Groups that stay keep what all rows have in common, and copy the next row while the formula of one is computed.
template <typename Kernel, typename Tensors, typename Formula>
__device__ void for_each_row(const Tensors& tensors, const Formula& formula) {
  using Group = typename Kernel::Group;
  using Row = FormulaRow<Kernel, Tensors>;
  extern __shared__ __align__(32) char shared[];
  Group group;
  typename Row::Held held;
  typename Row::Sums sums(shared, tensors.summed);
  const int64_t count = tensors.rows.count;
  // The kernel before may compute sums over all rows that this one reads.
  if (tensors.totals) wait_for_kernel_before();
  if constexpr (Kernel::kHeld == 0) {
    const int part = blockIdx.y;
    for (int64_t i = group.first(); group.in_turn(i, count); i += group.count()) {
      Row row(group, tensors, i, part, held, sums);
      formula(row);
    }
  } else if constexpr (Kernel::kStays) {
    typename Row::Held::Waiting waiting(shared + Row::Sums::bytes(blockDim.x, tensors.summed), __popc(tensors.waiting));
    held.fetch(waiting, group, tensors, group.first());
    held.load_some(group, tensors, group.first(), tensors.common);
    RowNumbers<Tensors> next;
    next.load(tensors, group.first());
    for (int64_t i = group.first(); group.in_turn(i, count); i += group.count()) {
      held.load_some(group, tensors, i, ~(tensors.common | tensors.waiting));
      held.take(waiting, tensors);
      held.fetch(waiting, group, tensors, i + group.count());
      held.numbers = next;
      next.load(tensors, i + group.count());
      Row row(group, tensors, i, 0, held, sums);
      formula(row);
    }
    waiting.drain();
    if constexpr (Kernel::kSummed != 0) {
      let_next_kernel_start();  // The one that adds up what the blocks leave.
      sums.write(group, tensors);
    }
  } else {
    for (int64_t i = group.first(); group.in_turn(i, count); i += group.count()) {
      held.load(group, tensors, i);
      Row row(group, tensors, i, 0, held, sums);
      formula(row);
    }
    if constexpr (Kernel::kSummed != 0) sums.write(group, tensors);
  }
}

// How many accesses a thread holds beside a term of each element. Those of 16 bits have twice as many terms.
template <typename T>
constexpr int accesses_beside_terms(int accesses) {
  return sizeof(T) == 2 && accesses > 1 ? accesses / 2 : accesses;
}

// ---- Which group takes a row ------------------------------------------------------------------------------------

// What a kernel over rows is compiled for: the group that takes a row, the N elements of an access, the accesses that a
// thread holds (0: every pass reads the row again), whether rows start at multiples of 16 bytes, the results of which
// sums over the rows are written, a bit each, whether rows lie evenly, in one dimension at most, whether a block has as
// many threads as there can be, and whether groups stay for several rows.
template <
    typename Group_,
    int kN_,
    int kHeld_,
    bool kAligned_,
    int kSummed_,
    bool kEven_ = false,
    bool kLong_ = false,
    bool kStays_ = false>
struct RowKernel {
  using Group = Group_;
  static constexpr int kN = kN_;
  static constexpr int kHeld = kHeld_;
  static constexpr bool kAligned = kAligned_;
  static constexpr bool kPeeled = !kAligned && kHeld > 0;
  // Whether neighbouring threads have neighbouring elements: however tensors lie, a warp reads whole sectors.
  static constexpr bool kApart = kPeeled && kN == 1;
  static constexpr int kSummed = kSummed_;
  static constexpr bool kEven = kEven_;
  static constexpr bool kLong = kLong_;
  static constexpr bool kStays = kStays_;
  using Index = std::conditional_t<(kHeld > 0 || kLong), int, int64_t>;
  using Start = std::conditional_t<kPeeled, PeeledStart<kN>, RowStart<kN, kAligned, Index>>;

  dim3 block() const { return dim3(threads); }

  int threads;  // of a block
  int64_t groups_per_block;
  int blocks_per_group = 1;  // more than 1 for clusters
  int parts = 1;             // of a row, which blocks take apart
};

// Whether the rows can be read by vectors.
template <typename Tensors>
bool reads_vectors(const Tensors& tensors) {
  constexpr int N = kOperandVector<typename Tensors::Element>;
  const Rows& rows = tensors.rows;
  bool vectors = rows.n % N == 0 && tensors.layout.flat;
  for (int i = 0; i < Tensors::kInputs; ++i) {
    vectors = vectors && tensors.inputs[i].vectors && tensors.inputs[i].step == 1;
  }
  return vectors;
}

// Whether the elements of each input's rows lie one after the other.
template <typename Tensors>
bool are_even(const Tensors& tensors) {
  return std::all_of(
      tensors.inputs, tensors.inputs + Tensors::kInputs, [](const auto& input) { return input.step == 1; });
}

// Whether neighbouring rows lie side by side, as those of a dimension that is not the last.
template <typename Tensors>
bool are_columns(const Tensors& tensors) {
  return tensors.layout.step != 1 && tensors.rows.dimensions > 0 && tensors.layout.strides[0] == 1;
}

// The elements that a thread holds of each input where neighbouring threads have neighbouring ones; and the most inputs
// for which it has registers then. On an H100 a rotary embedding after a norm, whose halves begin at no multiples of 16
// bytes, takes 0.40 of its time in bfloat16, 0.71 in float32; its gradient, of six inputs, would take 1.1.
constexpr int kElementsApart = 16, kMostApart = 2;

// As many rows as multiprocessors have blocks of them at once.
constexpr int64_t kFewRows = 2048;

// The lanes that share a row of few accesses.
constexpr int kFewLanes = 8;

// So many short rows that a warp of several is better than several warps.
constexpr int64_t kManyRows = 2048;

// The threads of a block for long rows: all that there can be; and the blocks that share a longer one.
constexpr int kLongThreads = 1024;
constexpr int kMostBlocks = 8;

// Whether the GPU has clusters; and how many blocks share a row, of so many accesses each if that suffices.
inline bool has_clusters() {
  return attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
}

inline int blocks_of_cluster(int64_t accesses, int64_t of_block) {
  int blocks = 2;
  while (blocks < kMostBlocks && blocks * of_block < accesses) blocks *= 2;
  return blocks;
}

// Whether rows are so few that blocks which take one each would leave multiprocessors with less than they can run. Of
// more rows, blocks that write no elements read them again from a cache faster than clusters wait for each other: on an
// H100 0.85 to 0.95 of the time.
constexpr int64_t kBlocksOfLongRows = 4;  // of a multiprocessor

inline bool are_few_for_blocks(int64_t rows) {
  return 2 * rows <= kBlocksOfLongRows * attribute(cudaDevAttrMultiProcessorCount);
}

// The most inputs that are held and results that are summed for which such a block has registers.
constexpr int kLightSums = 4;

// The registers for inputs of a thread that has 64, as where 1,024 run at once; the others are for what it computes.
constexpr int kRegistersOfInputs = 32;

// Whether they suffice for so many accesses of each input.
template <typename Tensors, int kAccesses, int N>
constexpr bool kHaveRegisters =
    kAccesses * std::max(1, Tensors::kHeldInputs) * sizeof(Vector<typename Tensors::Element, N>) <=
    kRegistersOfInputs * sizeof(int);

// A bit for each input that all rows have in common.
template <typename Tensors>
int common_inputs(const Tensors& tensors) {
  int common = 0;
  for (int i = 0; i < Tensors::kInputs; ++i) {
    const auto& strides = tensors.inputs[i].strides;
    const int dimensions = std::max(1, tensors.rows.dimensions);
    common |= std::all_of(strides, strides + dimensions, [](int64_t stride) { return stride == 0; }) << i;
  }
  return common;
}

// Calls visit(kernel) with the RowKernel for rows of this length, in blocks of up to kThreads threads that hold kHeld
// accesses each. kSideBySide: rows may lie side by side. kPeels: whether the elements at a row's ends may be looked at
// last. kSummed: only for rows that a block can hold; `otherwise` is returned for others.
template <
    int kSummed,
    int kThreads,
    int kHeld,
    bool kSideBySide,
    bool kPeels,
    typename Tensors,
    typename Result,
    typename Visit>
Result visit_rows(const Tensors& tensors, Result otherwise, const Visit& visit) {
  constexpr int N = kOperandVector<typename Tensors::Element>;
  constexpr bool kSums = kSummed != 0;
  // Of wide elements an access has fewer, which leaves registers for more accesses beside sums.
  constexpr int kWideHeld = kSums && N <= 4 ? 2 * kHeld : kHeld;
  // Whether a block that has all registers of a multiprocessor has enough of them.
  constexpr bool kIsLight = !kSums || Tensors::kHeldInputs + count_bits(kSummed) <= kLightSums;
  constexpr int kLongHeld = !kIsLight || kHaveRegisters<Tensors, kWideHeld, N> ? kWideHeld : kHeld;
  if (kSums && tensors.rows.dimensions > 1) return otherwise;
  const bool aligned = reads_vectors(tensors);
  const int64_t accesses = std::max<int64_t>(1, tensors.rows.n / N);
  const bool can_hold = tensors.parts == 1 && tensors.layout.flat && (aligned || kPeels);
  // Elements that lie apart are loaded one by one, which takes registers.
  constexpr bool kHasRoom = kSums || Tensors::kHeldInputs < 2;
  constexpr int kPeeled = kHasRoom ? kHeld : std::max(1, kHeld / 2);
  const int held = aligned ? kHeld : kPeeled;
  const bool is_held = can_hold && accesses <= int64_t(kThreads) * held;
  const int threads = is_held ? threads_for(accesses, held) : kThreads;
  if constexpr (kSideBySide) {
    if (are_columns(tensors)) {
      return visit(RowKernel<ColumnGroup, 1, 0, false, 0>{ColumnGroup::kThreads, ColumnGroup::kRows});
    }
  }
  if constexpr (kSummed == 0 && kHeld > 1) {
    // A thread's latency is all of the time of few rows.
    const bool is_small = tensors.rows.count <= kFewRows && accesses > kWarp && accesses <= kThreads;
    if (aligned && is_held && is_small && tensors.rows.dimensions <= 1) {
      return visit(RowKernel<BlockGroup, N, 1, true, 0, true>{threads_for(accesses, 1), 1});
    }
  }
  if constexpr (kPeels && !kSums && kHeld > 1) {
    // As few lanes as two accesses of each suffice for: instructions are most of the time of short rows.
    constexpr int kOfLane = 2;
    const bool is_short = accesses <= kFewLanes * kOfLane && tensors.rows.count >= kManyRows;
    if (aligned && is_held && is_short && tensors.rows.dimensions <= 1) {
      constexpr int kFewest = kFewLanes / 2, kThreadsOfBlock = kLaneGroupThreads;
      if (accesses <= kFewest * kOfLane) {
        using Kernel = RowKernel<LaneGroup<kFewest>, N, kOfLane, true, 0, true>;
        return visit(Kernel{kThreadsOfBlock, kThreadsOfBlock / kFewest});
      }
      using Kernel = RowKernel<LaneGroup<kFewLanes>, N, kOfLane, true, 0, true>;
      return visit(Kernel{kThreadsOfBlock, kThreadsOfBlock / kFewLanes});
    }
  }
  if constexpr (kPeels) {  // Running totals take whole warps.
    if (aligned && is_held && accesses <= kFewLanes * kWideHeld && tensors.rows.count >= kManyRows) {
      using Group = LaneGroup<kFewLanes>;
      return visit(
          RowKernel<Group, N, kWideHeld, true, kSummed, kSums, false, kSums>{
              kLaneGroupThreads, kLaneGroupThreads / kFewLanes});
    }
  }
  if (aligned && is_held && accesses <= kWarp * kWideHeld) {
    return visit(
        RowKernel<LaneGroup<kWarp>, N, kWideHeld, true, kSummed, kSums, false, kSums>{
            kLaneGroupThreads, kLaneGroupThreads / kWarp});
  }
  constexpr bool kMayBeApart = Tensors::kJoined != 0 && Tensors::kCodes == 0 && Tensors::kWide == 0;
  if constexpr (kPeels && !kSums && kMayBeApart && Tensors::kHeldInputs <= kMostApart) {
    // Of parts of results, at most one begins where vectors do.
    if (!aligned && can_hold && are_even(tensors) && tensors.rows.n <= int64_t(kThreads) * kElementsApart) {
      const int of_row = threads_for(tensors.rows.n, kElementsApart);
      return visit(RowKernel<BlockGroup, 1, kElementsApart, false, 0>{of_row, 1});
    }
  }
  if (aligned && is_held) {
    return visit(RowKernel<BlockGroup, N, kHeld, true, kSummed, kSums, false, kSums>{threads, 1});
  }
  if constexpr (kSums && kIsLight && N > 4 && kHaveRegisters<Tensors, 2 * kHeld, N>) {
    // A multiprocessor has two such blocks: one computes while the other reduces. On an H100 0.94 of the time of one
    // that has it alone.
    if (aligned && can_hold && accesses <= int64_t(kThreads) * 2 * kHeld) {
      const int of_row = threads_for(accesses, 2 * kHeld);
      return visit(RowKernel<BlockGroup, N, 2 * kHeld, true, kSummed, true, false, true>{of_row, 1});
    }
  }
  if constexpr (kThreads < kLongThreads && kIsLight) {
    if (aligned && can_hold && accesses <= int64_t(kLongThreads) * kLongHeld) {
      const int most = threads_for(accesses, kLongHeld);
      if constexpr (kSummed == 0) {
        // Such a block has a multiprocessor alone, which would load what rows have in common for each of them.
        const bool shares = (common_inputs(tensors) & ~Tensors::kLate) != 0 && tensors.rows.dimensions <= 1;
        if (shares && tensors.rows.count > attribute(cudaDevAttrMultiProcessorCount)) {
          return visit(RowKernel<BlockGroup, N, kHeld, true, 0, true, true, true>{most, 1});
        }
      }
      return visit(RowKernel<BlockGroup, N, kLongHeld, true, kSummed, kSums, true, kSums>{most, 1});
    }
  }
  if constexpr (kPeels) {
    // Likewise blocks of two clusters. On an H100 the gradient of a layer norm takes 0.95 of the time of larger blocks.
    constexpr int kOfBlock = kIsLight ? kThreads : kThreads / 2;
    const int blocks = blocks_of_cluster(accesses, kOfBlock * kLongHeld);
    const int of_cluster = threads_for(accesses, int64_t(blocks) * kLongHeld);
    const bool fits = of_cluster <= (kIsLight ? kLongThreads : kThreads);
    const bool gains = kSums || Tensors::kResults > 0 || are_few_for_blocks(tensors.rows.count);
    if (gains && aligned && can_hold && fits && tensors.rows.dimensions <= 1 && has_clusters()) {
      return visit(RowKernel<ClusterGroup, N, kLongHeld, true, kSummed, true, kIsLight, kSums>{of_cluster, 1, blocks});
    }
  }
  if constexpr (kPeels) {
    if (is_held) return visit(RowKernel<BlockGroup, N, kPeeled, false, kSummed, kSums>{threads, 1});
  }
  if constexpr (kSummed == 0 && kPeels) {
    const bool is_int = tensors.rows.n < 1 << 30;
    if (aligned && is_int) return visit(RowKernel<BlockGroup, N, 0, true, 0, false, true>{kThreads, 1});
  }
  if constexpr (kSummed == 0) return visit(RowKernel<BlockGroup, N, 0, false, 0>{threads, 1});
  return otherwise;
}

// Whether clusters hold long rows, of which there are enough for all multiprocessors.
template <typename Tensors>
bool holds_in_clusters(const Tensors& tensors) {
  constexpr int64_t kMostAccesses = 2 * kMostBlocks * kLongThreads;
  const bool is_short = tensors.rows.n <= kMostAccesses * kOperandVector<typename Tensors::Element>;
  const bool is_many = tensors.rows.count * kMostBlocks >= attribute(cudaDevAttrMultiProcessorCount);
  return is_short && is_many && reads_vectors(tensors) && tensors.rows.dimensions <= 1 && has_clusters();
}

// In how many parts few long rows are computed, so that all multiprocessors have some. kHolds: whether clusters may
// hold rows.
template <bool kSideBySide, bool kHolds, typename Tensors>
int parts_of_rows(const Tensors& tensors, int reductions) {
  // What is read once gains nothing by being held.
  const bool is_held = kHolds && reductions + (Tensors::kResults > 0) > 1;
  if (is_held && holds_in_clusters(tensors)) return 1;
  const bool columns = kSideBySide && are_columns(tensors);
  // Of a part, at least; and blocks of a multiprocessor.
  const int64_t elements = columns ? 128 : 8192, resident = columns ? 8 : kBlocksOfLongRows;
  if (!columns && tensors.rows.n < 8 * elements) return 1;
  const int64_t blocks = columns ? (tensors.rows.count + kWarp - 1) / kWarp : tensors.rows.count;
  const int64_t wanted = resident * attribute(cudaDevAttrMultiProcessorCount) / std::max<int64_t>(1, blocks);
  return static_cast<int>(std::max<int64_t>(1, std::min(wanted, tensors.rows.n / elements)));
}

template <typename Tensors>
bool sums_by_kernel(const Tensors& tensors) {
  return std::any_of(tensors.results, tensors.results + Tensors::kResults, [](const auto& result) {
    return result.is_summed_by_kernel();
  });
}

// Splits few long rows into parts. Returns the bytes that the parts leave of so many reductions.
template <bool kSideBySide, bool kHolds = true, typename Tensors>
int64_t split_rows(Tensors& tensors, int reductions) {
  using Number = std::conditional_t<std::is_same_v<typename Tensors::Element, double>, double, float>;
  tensors.parts = sums_by_kernel(tensors) ? 1 : parts_of_rows<kSideBySide, kHolds>(tensors, reductions);
  if (tensors.parts == 1) return 0;
  return reductions * tensors.rows.count * tensors.parts * static_cast<int64_t>(sizeof(PartialResult<Number>));
}

// The threads that a multiprocessor has registers for.
template <typename Kernel, int kResidentThreads>
constexpr int resident_threads_of() {
  if (Kernel::kLong) return kLongThreads;
  // A warp that holds several rows has all of their numbers too.
  const bool is_wide = Kernel::kSummed != 0 && Kernel::kN <= 4 && Kernel::Group::kOfOneWarp;
  return is_wide ? kResidentThreads / 4 * 3 : kResidentThreads;
}

// The launch bounds of a kernel for rows.
template <typename Kernel, int kMostThreads, int kResidentThreads>
struct RowBounds {
  static constexpr bool kColumns = std::is_same_v<typename Kernel::Group, ColumnGroup>;
  static constexpr bool kParts = std::is_same_v<typename Kernel::Group, PartGroup>;
  static constexpr int kThreads = kColumns                             ? ColumnGroup::kThreads
                                  : kParts                             ? PartGroup::kThreads
                                  : Kernel::kLong && Kernel::kHeld > 0 ? kLongThreads
                                  : Kernel::Group::kOfOneWarp          ? kLaneGroupThreads
                                                                       : kMostThreads;
  // Of rows that no block can hold, some blocks load while others wait for each other.
  static constexpr int kResident = resident_threads_of<Kernel, kResidentThreads>();
  static constexpr int kBlocks = kColumns || Kernel::kLong ? kLongThreads / kThreads
                                 : Kernel::kHeld == 0      ? 1
                                                           : kResident / kThreads;
};

// What a thread copies of each input that waits, in bytes.
template <typename Kernel, typename Tensors>
constexpr size_t kWaitingBytes = HeldRow<Kernel, Tensors>::Waiting::bytes(1, 1);

// The blocks that a multiprocessor has registers for.
template <int kResidentThreads, typename Kernel>
int64_t blocks_by_registers(const Kernel& kernel) {
  return std::max(1, resident_threads_of<Kernel, kResidentThreads>() / kernel.threads);
}

// The dynamic shared memory of a block, in bytes: sums over the rows, and what waits.
template <typename Kernel, typename Tensors>
int64_t shared_bytes(const Kernel& kernel, const Tensors& tensors) {
  size_t bytes = 0;
  if constexpr (Kernel::kSummed != 0) bytes += RowSums<Kernel, Tensors>::bytes(kernel.threads, tensors.summed);
  if constexpr (Kernel::kStays) bytes += kWaitingBytes<Kernel, Tensors> * kernel.threads * count_bits(tensors.waiting);
  return bytes;
}

// Static shared memory of a block, and what CUDA reserves, in bytes.
constexpr int64_t kReservedShared = 4096;

// Chooses what the threads of a kernel keep, and what waits in shared memory, as far as that has room beside other
// blocks.
template <int kResidentThreads, typename Kernel, typename Tensors>
void keep_inputs(const Kernel& kernel, Tensors& tensors) {
  if constexpr (Kernel::kStays) {
    const int64_t memory = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    const int64_t most = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    const int64_t room = std::min(memory / blocks_by_registers<kResidentThreads>(kernel), most) - kReservedShared;
    tensors.common = common_inputs(tensors);
    tensors.waiting = 0;
#ifndef NO_WAITING
    const int64_t bytes = kWaitingBytes<Kernel, Tensors> * kernel.threads;
    for (int i = 0; i < Tensors::kInputs; ++i) {
      const bool may_wait = HeldRow<Kernel, Tensors>::is_held(i) && !(tensors.common >> i & 1);
      if (may_wait && shared_bytes(kernel, tensors) + bytes <= room) tensors.waiting |= 1 << i;
    }
#endif
  }
}

// Launches a kernel over rows; cudaGetLastError() has its error.
template <typename Kernel, typename Tensors, typename... Parameters, typename... Arguments>
void launch_row_kernel(
    void (*kernel)(Parameters...),
    const Kernel& row,
    dim3 grid,
    cudaStream_t stream,
    const Tensors& tensors,
    const Arguments&... arguments) {
  const size_t shared = shared_bytes(row, tensors);
  if constexpr (std::is_same_v<typename Kernel::Group, ClusterGroup>) {
    launch(kernel, row, grid.x, shared, stream, tensors, arguments...);
    return;
  }
  if (allow_shared(kernel, shared) != cudaSuccess) return;
  if (tensors.totals) {
    launch_dependent(kernel, grid, dim3(row.threads), shared, stream, tensors, arguments...);
  } else {
    kernel<<<grid, row.threads, shared, stream>>>(tensors, arguments...);
  }
}

// The groups that stay, or the blocks of several: as many as the multiprocessors hold at once, by registers and shared
// memory. Of clusters some fewer: a cluster's blocks share a part of the GPU, which may have multiprocessors left over.
template <int kResidentThreads, typename Kernel, typename Tensors>
int64_t staying_blocks(const Kernel& kernel, const Tensors& given) {
  Tensors tensors = given;
  keep_inputs<kResidentThreads>(kernel, tensors);
  const int64_t memory = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  const int64_t by_memory = memory / (shared_bytes(kernel, tensors) + kReservedShared);
  const int64_t by_registers = blocks_by_registers<kResidentThreads>(kernel);
  const int64_t per_multiprocessor = std::max<int64_t>(1, std::min(by_memory, by_registers));
  const int64_t blocks = per_multiprocessor * attribute(cudaDevAttrMultiProcessorCount);
  return kernel.blocks_per_group == 1 ? blocks : std::max<int64_t>(1, blocks * 15 / 16 / kernel.blocks_per_group);
}

// Calls launch(kernel, tensors, blocks) with a group for each row, or for each part of it: then once for each of the
// formula's reductions, and for its results. Groups that stay are as many as run at once.
template <
    int kThreads,
    int kHeld,
    int kResidentThreads,
    int kReductions,
    bool kSideBySide,
    bool kPeels = true,
    typename Tensors,
    typename Launch>
cudaError_t launch_rows(const Tensors& tensors, const Launch& launch) {
  const auto visit = [&](const auto& kernel) {
    using Kernel = std::decay_t<decltype(kernel)>;
    constexpr int64_t kMost = 1 << 30;
    if (tensors.rows.count == 0) return cudaSuccess;
    int64_t blocks = (tensors.rows.count + kernel.groups_per_block - 1) / kernel.groups_per_block;
    if constexpr (Kernel::kStays) blocks = std::min(blocks, staying_blocks<kResidentThreads>(kernel, tensors));
    const dim3 grid(static_cast<unsigned>(std::min(kMost, blocks * kernel.blocks_per_group)), tensors.parts);
    Tensors of_pass = tensors;
    keep_inputs<kResidentThreads>(kernel, of_pass);
    for (of_pass.pass = 0; of_pass.pass <= (tensors.parts > 1 ? kReductions : 0); ++of_pass.pass) {
      launch(kernel, of_pass, grid);
      if (const cudaError_t error = cudaGetLastError()) return error;
    }
    return cudaSuccess;
  };
  return visit_rows<0, kThreads, kHeld, kSideBySide, kPeels>(tensors, cudaErrorInvalidValue, visit);
}

// ---- Gradients that are sums over the rows ----------------------------------------------------------------------

// Calls visit(kernel) for gradients that nothing is reduced over a row for: blocks have parts of long rows. One that
// has a whole row leaves a partial sum of each column: of long rows, half as many bytes as it reads.
template <int kSummed, int kThreads, int kHeld, typename Tensors, typename Result, typename Visit>
Result visit_parts(const Tensors& tensors, Result otherwise, const Visit& visit) {
  constexpr int N = kOperandVector<typename Tensors::Element>, kPartHeld = N <= 4 ? 2 * kHeld : kHeld;
  const Rows& rows = tensors.rows;
  if (rows.dimensions > 1 || !tensors.layout.flat) return otherwise;
  const int64_t accesses = std::max<int64_t>(1, rows.n / N);
  if (!reads_vectors(tensors)) {
    if (accesses > int64_t(kThreads) * kHeld) return otherwise;
    return visit(RowKernel<BlockGroup, N, kHeld, false, kSummed, true>{threads_for(accesses, kHeld), 1});
  }
  if (accesses <= kFewLanes * kPartHeld && rows.count >= kManyRows) {
    using Kernel = RowKernel<LaneGroup<kFewLanes>, N, kPartHeld, true, kSummed, true, false, true>;
    return visit(Kernel{kLaneGroupThreads, kLaneGroupThreads / kFewLanes});
  }
  constexpr int64_t kOfPart = kWarp * kPartHeld, kMostParts = 65535;
  const int64_t parts = (accesses + kOfPart - 1) / kOfPart;
  if (parts > kMostParts) return otherwise;
  using Kernel = RowKernel<PartGroup, N, kPartHeld, true, kSummed, true, false, true>;
  return visit(Kernel{PartGroup::kThreads, PartGroup::kThreads / kWarp, 1, static_cast<int>(parts)});
}

template <int kSummed, int kThreads, int kHeld, bool kPeels, bool kReduces, typename... Arguments>
auto visit_sums(const Arguments&... arguments) {
  if constexpr (kReduces) {
    return visit_rows<kSummed, kThreads, kHeld, false, kPeels>(arguments...);
  } else {
    return visit_parts<kSummed, kThreads, kHeld>(arguments...);
  }
}

// The rows of partial sums of such gradients, one a block: as many blocks as the multiprocessors hold at once, so that
// each adds up several rows. 0 for rows that a block cannot hold, and for few rows: blocks that add up several of them
// would leave most multiprocessors idle.
template <
    int kSummed,
    int kThreads,
    int kHeld,
    int kResidentThreads,
    bool kPeels = true,
    bool kReduces = true,
    typename Tensors>
int64_t rows_of_partial_sums(const Tensors& tensors) {
  return visit_sums<kSummed, kThreads, kHeld, kPeels, kReduces>(tensors, int64_t(0), [&](const auto& kernel) {
    const int64_t multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
    const int64_t memory = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kReservedShared;
    if (shared_bytes(kernel, tensors) > memory) return int64_t(0);
    using Group = typename std::decay_t<decltype(kernel)>::Group;
    const bool is_long = !Group::kOfOneWarp || std::is_same_v<Group, PartGroup>;
    if (is_long && tensors.rows.count <= multiprocessors) return int64_t(0);
    const int64_t useful = tensors.rows.count / (kRowsPerGroup * kernel.groups_per_block);
    const int64_t most = std::max<int64_t>(1, staying_blocks<kResidentThreads>(kernel, tensors) / kernel.parts);
    const int64_t blocks = std::clamp<int64_t>(useful, 1, most);
    // Rows that are peeled begin alike where they are a multiple of N apart.
    constexpr int kMultiple = std::decay_t<decltype(kernel)>::kPeeled ? std::decay_t<decltype(kernel)>::kN : 1;
    return (blocks + kMultiple - 1) / kMultiple * kMultiple;
  });
}

// Adds up all such gradients after a kernel that has ended with `error`.
template <typename Tensors>
cudaError_t add_all_sums(const Tensors& tensors, cudaError_t error, cudaStream_t stream) {
  for (const auto& gradient : tensors.results) {
    if (error == cudaSuccess) error = add_partial_sums(gradient, tensors.rows.count, tensors.rows.n, stream);
  }
  return error;
}

// Calls launch(kernel, blocks), then adds up the partial sums.
template <
    int kSummed,
    int kThreads,
    int kHeld,
    int kResidentThreads,
    bool kPeels = true,
    bool kReduces = true,
    typename Tensors,
    typename Launch>
cudaError_t launch_sums(const Tensors& tensors, cudaStream_t stream, const Launch& launch) {
  const int64_t blocks = rows_of_partial_sums<kSummed, kThreads, kHeld, kResidentThreads, kPeels, kReduces>(tensors);
  const auto visit = [&](const auto& kernel) {
    Tensors kept = tensors;
    keep_inputs<kResidentThreads>(kernel, kept);
    launch(kernel, kept, dim3(static_cast<unsigned>(blocks * kernel.blocks_per_group), kernel.parts));
    return cudaGetLastError();
  };
  const cudaError_t error =
      visit_sums<kSummed, kThreads, kHeld, kPeels, kReduces>(tensors, cudaErrorInvalidValue, visit);
  return add_all_sums(tensors, error, stream);
}
