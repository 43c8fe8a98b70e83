// Blocks of elements converted to the type to compute in, and back.
//
// Compilers often fail to vectorise a loop that converts 16-bit elements and computes as well, above all one with a
// branch. The loops here only convert, so that a kernel's loops only compute.

#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "clones.h"
#include "pairwise.h"

// A buffer for one block at a time, of one thread. Where T is the type to compute in already, nothing is copied.
template <typename T>
class Numbers {
 public:
  using Number = accumulate_t<T>;

  // `count` elements as numbers, valid until the next call.
  const Number* load(const T* elements, int64_t count) {
    if constexpr (kAreNumbers) {
      return elements;
    } else {
      Number* const numbers = room(nullptr, count);
      CPU_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) numbers[i] = static_cast<Number>(elements[i]);
      return numbers;
    }
  }

  // As load, or `count` times `number` where `elements` is null (an optional argument).
  const Number* load_or(Number number, const T* elements, int64_t count) {
    if (elements) return load(elements, count);
    room_.assign(static_cast<size_t>(count), number);
    return room_.data();
  }

  // The same of elements that lie `step` apart; with 0, one number `count` times.
  const Number* load(const T* elements, int64_t step, int64_t count) {
    if (step == 1) return load(elements, count);
    room_.resize(static_cast<size_t>(count));
    if (step == 0) {
      room_.assign(static_cast<size_t>(count), static_cast<Number>(*elements));
    } else {
      for (int64_t i = 0; i < count; ++i) room_[static_cast<size_t>(i)] = static_cast<Number>(elements[i * step]);
    }
    return room_.data();
  }

  // The same in parts of `inner` elements that lie outer_step apart.
  CPU_APART const Number* load_parts(
      const T* elements, int64_t step, int64_t inner, int64_t outer_step, int64_t count) {
    room_.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; i += inner, elements += outer_step) {
      for (int64_t k = 0; k < inner; ++k) room_[static_cast<size_t>(i + k)] = static_cast<Number>(elements[k * step]);
    }
    return room_.data();
  }

  // Where to write the numbers that `store` converts to these elements. Null: numbers that nobody needs.
  Number* room(T* elements, int64_t count) {
    if constexpr (kAreNumbers) {
      if (elements) return elements;
    }
    room_.resize(static_cast<size_t>(count));
    return room_.data();
  }

  void store(T* elements, int64_t count) const {
    if constexpr (!kAreNumbers) {
      if (!elements) return;
      CPU_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) elements[i] = static_cast<T>(room_[static_cast<size_t>(i)]);
    }
  }

  // The same to elements that lie as those of load_parts, where the room was not theirs.
  CPU_APART void store_parts(T* elements, int64_t step, int64_t inner, int64_t outer_step, int64_t count) const {
    for (int64_t i = 0; elements && i < count; i += inner, elements += outer_step) {
      for (int64_t k = 0; k < inner; ++k) elements[k * step] = static_cast<T>(room_[static_cast<size_t>(i + k)]);
    }
  }

 private:
  static constexpr bool kAreNumbers = std::is_same_v<T, Number>;
  std::vector<Number> room_;
};
