// Blocks of elements converted to the type to compute in, and back.
//
// Compilers often fail to vectorise a loop that converts 16-bit elements and computes as well, above all one with a
// branch. The loops here only convert, so that a kernel's loops only compute.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "clones.h"
#include "pairwise.h"

// Memory for numbers. CPUs tell addresses apart by their place in a page first: a load soon after a store to the same
// place of another page waits for it. So what is read lies behind what is written, and both lie apart from the place
// where PyTorch's tensors begin.
template <typename Number>
class Room {
 public:
  static constexpr size_t kPage = 4096, kLine = 64;
  enum Place : size_t { kWritten = 2048, kRead = 3072 };

  // Uninitialised; valid until the next call for more.
  Number* reserve(int64_t count, Place place) {
    if (count > count_) {
      memory_.reset(new char[static_cast<size_t>(count) * sizeof(Number) + kPage]);
      // Neighbours lie some lines apart: they share no set of the cache.
      const uintptr_t line = reinterpret_cast<uintptr_t>(this) / sizeof(*this) % 4;
      const uintptr_t begin = place + line * kLine - reinterpret_cast<uintptr_t>(memory_.get());
      numbers_ = reinterpret_cast<Number*>(memory_.get() + begin % kPage);
      count_ = count;
    }
    return numbers_;
  }

  Number* numbers() const { return numbers_; }

 private:
  std::unique_ptr<char[]> memory_;
  Number* numbers_ = nullptr;
  int64_t count_ = 0;
};

// A buffer for one block at a time, of one thread. Where T is the type to compute in already, nothing is copied.
template <typename T>
class Numbers {
 public:
  // Integers are read as they are.
  using Number = std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, T, accumulate_t<T>>;

  Numbers() = default;

  // A copy, as each thread has of a function with buffers, has memory of its own.
  Numbers(const Numbers&) {}

  // `count` elements as numbers, valid until the next call.
  const Number* load(const T* elements, int64_t count) {
    if constexpr (kAreNumbers) {
      return elements;
    } else {
      Number* const numbers = read_room(count);
      CPU_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) numbers[i] = static_cast<Number>(elements[i]);
      return numbers;
    }
  }

  // As load, or `count` times `number` where `elements` is null (an optional argument).
  const Number* load_or(Number number, const T* elements, int64_t count) {
    if (elements) return load(elements, count);
    Number* const numbers = read_room(count);
    std::fill_n(numbers, count, number);
    return numbers;
  }

  // The same of elements that lie `step` apart; with 0, one number `count` times.
  const Number* load(const T* elements, int64_t step, int64_t count) {
    if (step == 1) return load(elements, count);
    Number* const numbers = read_room(count);
    if (step == 0) {
      std::fill_n(numbers, count, static_cast<Number>(*elements));
    } else {
      for (int64_t i = 0; i < count; ++i) numbers[i] = static_cast<Number>(elements[i * step]);
    }
    return numbers;
  }

  // The same, unless the last call was for these very elements, which nobody writes meanwhile: those of a vector that
  // rows have in common are converted once.
  const Number* load_once(const T* elements, int64_t step, int64_t count) {
    if constexpr (kAreNumbers) {
      if (step == 1) return elements;
    }
    if (elements != loaded_ || count != loaded_count_) {
      load(elements, step, count);
      loaded_ = elements;
      loaded_count_ = count;
    }
    return room_.numbers();
  }

  // The same as load in parts of `inner` elements that lie outer_step apart.
  CPU_APART const Number* load_parts(
      const T* elements, int64_t step, int64_t inner, int64_t outer_step, int64_t count) {
    Number* const numbers = read_room(count);
    for (int64_t i = 0; i < count; i += inner, elements += outer_step) {
      for (int64_t k = 0; k < inner; ++k) numbers[i + k] = static_cast<Number>(elements[k * step]);
    }
    return numbers;
  }

  // `count` numbers, each by its place.
  template <typename F>
  const Number* load_each(int64_t count, const F& number) {
    Number* const numbers = read_room(count);
    for (int64_t i = 0; i < count; ++i) numbers[i] = number(i);
    return numbers;
  }

  // Where to write the numbers that `store` converts to these elements. Null: numbers that nobody needs.
  Number* room(T* elements, int64_t count) {
    if constexpr (kAreNumbers) {
      if (elements) return elements;
    }
    return room_.reserve(count, Room<Number>::kWritten);
  }

  // The numbers of the last room that was not in `elements`.
  const Number* data() const { return room_.numbers(); }

  void store(T* elements, int64_t count) const {
    if constexpr (!kAreNumbers) {
      if (!elements) return;
      const Number* const numbers = room_.numbers();
      CPU_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) elements[i] = static_cast<T>(numbers[i]);
    }
  }

  // The same to elements that lie as those of load_parts, where the room was not theirs.
  CPU_APART void store_parts(T* elements, int64_t step, int64_t inner, int64_t outer_step, int64_t count) const {
    const Number* const numbers = room_.numbers();
    for (int64_t i = 0; elements && i < count; i += inner, elements += outer_step) {
      for (int64_t k = 0; k < inner; ++k) elements[k * step] = static_cast<T>(numbers[i + k]);
    }
  }

 private:
  static constexpr bool kAreNumbers = std::is_same_v<T, Number>;

  Number* read_room(int64_t count) { return room_.reserve(count, Room<Number>::kRead); }

  Room<Number> room_;
  const T* loaded_ = nullptr;
  int64_t loaded_count_ = 0;
};
