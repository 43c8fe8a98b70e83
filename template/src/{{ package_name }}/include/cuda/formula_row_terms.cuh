// What passes over a row have in common: a term of each element, which is computed again or held in registers.

#pragma once

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
