// Exponents that are the same for all elements of a loop.

#pragma once

// The exponent 2, known when compiled: a power is a product then.
struct Square {
  constexpr operator double() const { return 2; }
};

// Calls f(exponent). f is compiled for squares as well, which are what most who choose an exponent choose.
template <typename Exponent, typename F>
void with_exponent(Exponent exponent, const F& f) {
  if (exponent == 2) {
    f(Square());
  } else {
    f(exponent);
  }
}
