// What a thread holds of a row of a formula in registers, and of the next row in shared memory.

#pragma once

#include <cstdint>
#include <type_traits>

#include "cache_hints.cuh"
#include "formula_row_accesses.cuh"
#include "formula_row_kernel.cuh"
#include "functions.cuh"
#include "pipeline.cuh"
#include "row_tensors.h"
#include "widen.cuh"

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
