// Mathematical functions that CUDA has and the C library lacks.

#include <cmath>

namespace {

// Newton's method on a function that increases, from a first guess.
template <typename F, typename Slope>
double root(double guess, const F& f, const Slope& slope) {
  for (int i = 0; i < 60; ++i) {
    const double step = f(guess) / slope(guess);
    guess -= step;
    if (!(std::fabs(step) > 1e-17 * std::fabs(guess))) break;
  }
  return guess;
}

const double kSlopeAtZero = 2 / std::sqrt(M_PI);

}  // namespace

extern "C" {

double erfcx(double x) {
  if (x < 25) return std::exp(x * x) * std::erfc(x);
  // The asymptotic series of exp(x^2) erfc(x).
  const double y = 1 / (2 * x * x);
  return (1 - y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y)))) / (x * std::sqrt(M_PI));
}

double erfcinv(double y) {
  if (!(y >= 0 && y <= 2)) return NAN;
  if (y == 0 || y == 2) return y == 0 ? INFINITY : -INFINITY;
  if (y == 1) return 0;
  if (y > 1) return -erfcinv(2 - y);
  // In logarithms, so that small values converge, too: Abramowitz and Stegun, 26.2.23, begins.
  const double t = std::sqrt(-2 * std::log(y / 2));
  const double guess =
      (t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)))) / M_SQRT2;
  const double target = std::log(y);
  return root(
      guess,
      [&](double x) { return target - (std::log(erfcx(x)) - x * x); },
      [](double x) { return kSlopeAtZero / erfcx(x); });
}

double erfinv(double x) {
  if (!(x >= -1 && x <= 1)) return NAN;
  if (std::fabs(x) > 0.5) return x > 0 ? erfcinv(1 - x) : -erfcinv(1 + x);
  return root(
      x / kSlopeAtZero,
      [&](double guess) { return std::erf(guess) - x; },
      [](double guess) { return kSlopeAtZero * std::exp(-guess * guess); });
}

double normcdf(double x) {
  return std::erfc(-x / M_SQRT2) / 2;
}

double normcdfinv(double y) {
  return -M_SQRT2 * erfcinv(2 * y);
}

double cyl_bessel_i0(double x) {
  return std::cyl_bessel_i(0.0, std::fabs(x));
}

double cyl_bessel_i1(double x) {
  return std::copysign(std::cyl_bessel_i(1.0, std::fabs(x)), x);
}
}
