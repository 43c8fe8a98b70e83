"""include/cpu/integers.h and float8.h: arithmetic of integers, and numbers of 8 bits, are PyTorch's to the last bit."""

import subprocess

import pytest

from .test_functions import FOLDER, compiled

torch = pytest.importorskip("torch")

# All pairs of int8 but divisors of 0; then the codes of floats, and the floats of codes, in both formats.
PROGRAM = r"""
#include "functions.h"
#include "float8.h"
#include "integers.h"
#include <cstdio>

template <typename T>
void put(T x) {
  std::fwrite(&x, sizeof(x), 1, stdout);
}

int main() {
  for (int i = -128; i < 128; ++i) {
    for (int k = -128; k < 128; ++k) {
      const int8_t x = static_cast<int8_t>(i), y = static_cast<int8_t>(k);
      put(integers::add<int8_t>(x, y));
      put(integers::sub<int8_t>(x, y));
      put(integers::mul<int8_t>(x, y));
      put(y ? integers::floor_divide<int8_t>(x, y) : x);
      put(y ? integers::trunc_divide<int8_t>(x, y) : x);
      put(y ? integers::remainder<int8_t>(x, y) : x);
      put(y ? integers::remainder_of_truncated<int8_t>(x, y) : x);
      put(integers::shift_left<int8_t>(x, 3));
      put(integers::abs<int8_t>(x));
      put(integers::invert<int8_t>(x));
    }
  }
  for (uint32_t bits = 0; bits < 0xffff; ++bits) {
    put(float8::to_e4m3(float_of(static_cast<int32_t>(bits << 16 | 0x8000))));
    put(float8::to_e5m2(float_of(static_cast<int32_t>(bits << 16))));
  }
  for (int code = 0; code < 256; ++code) {
    put(float8::of_e4m3(static_cast<uint8_t>(code)));
    put(float8::of_e5m2(static_cast<uint8_t>(code)));
  }
}
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> bytes:
    folder = tmp_path_factory.mktemp("codes")
    for name in ("float8.h", "integers.h"):
        (folder / name).write_text((FOLDER / name).read_text())
    compiled(folder, PROGRAM)
    return subprocess.check_output(folder / "program")


def test_integers_wrap_around_and_are_divided_as_pytorch_does(printed):
    every = torch.arange(-128, 128).to(torch.int8)
    x, y = every.repeat_interleave(256), every.repeat(256)
    divisor = torch.where(y == 0, 1, y)
    quotients = [torch.div(x, divisor, rounding_mode=mode) for mode in ("floor", "trunc")]
    divided = [torch.where(y == 0, x, value) for value in (*quotients, x % divisor, torch.fmod(x, divisor))]
    expected = torch.stack([x + y, x - y, x * y, *divided, x << 3, x.abs(), ~x], -1)
    ours = torch.frombuffer(bytearray(printed[: expected.numel()]), dtype=torch.int8).view(expected.shape)
    assert torch.equal(ours, expected)


def test_codes_of_8_bits_are_those_of_pytorch(printed):
    codes = torch.frombuffer(bytearray(printed[655360 : 655360 + 2 * 0xFFFF]), dtype=torch.uint8).view(-1, 2)
    bits = torch.arange(0xFFFF, dtype=torch.int64) << 16
    for i, (dtype, low) in enumerate(((torch.float8_e4m3fn, 0x8000), (torch.float8_e5m2, 0))):
        numbers = (bits | low).to(torch.int32).view(torch.float32)
        expected, ours = numbers.to(dtype).view(torch.uint8), codes[:, i]
        # Beyond the largest number of E4M3, older versions of PyTorch have NaN.
        known = (numbers.abs() <= 448) | numbers.isnan() if low else torch.ones_like(bits, dtype=torch.bool)
        assert torch.equal(ours[known], expected[known])


def test_numbers_of_codes_are_those_of_pytorch(printed):
    ours = torch.frombuffer(bytearray(printed[-2048:]), dtype=torch.float32).view(-1, 2)
    codes = torch.arange(256, dtype=torch.uint8)
    for i, dtype in enumerate((torch.float8_e4m3fn, torch.float8_e5m2)):
        assert torch.equal(ours[:, i].nan_to_num(777, 888, 999), codes.view(dtype).float().nan_to_num(777, 888, 999))
