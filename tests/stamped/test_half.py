"""include/cpu/half.h: the conversions are exact in every case, and loops of them are vectorised."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from .conftest import REPOSITORY

(HEADER,) = (REPOSITORY / "template").glob("src/*/include/cpu/half.h")

LOOPS = """
#include "half.h"
using dtypes::Half;
extern "C" void widen(const Half* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = x[i]; }
extern "C" void narrow(const float* x, Half* y, long n) { for (long i = 0; i < n; ++i) y[i] = x[i]; }
"""

EVERY_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


@pytest.fixture
def compile_loops(tmp_path):
    for header in ("half.h", "float_bits.h"):
        shutil.copy(HEADER.with_name(header), tmp_path)
    (tmp_path / "loops.cpp").write_text(LOOPS)

    def compile_loops(*flags: str) -> str:
        # The flags of a release build.
        command = ["g++", "-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared", *flags]
        command += ["loops.cpp", "-o", "loops.so"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr

    return compile_loops


@pytest.fixture
def convert(compile_loops, tmp_path):
    compile_loops()
    loops = ctypes.CDLL(str(tmp_path / "loops.so"))

    def convert(name: str, values: np.ndarray, dtype: type) -> np.ndarray:
        result = np.empty(len(values), dtype)
        source, target = (ctypes.c_void_p(array.ctypes.data) for array in (values, result))
        getattr(loops, name)(source, target, ctypes.c_long(len(values)))
        return result

    return convert


def boundaries() -> np.ndarray:
    """Every float16, the midpoints between neighbours, which are ties, and the floats next to these, of both signs."""
    exact = EVERY_HALF[:0x7C01].astype(np.float32)
    # The largest has a midpoint too, with the number that would follow: from there on, numbers become infinity.
    following = np.append(exact[1:-1], np.float32(65536))
    values = np.concatenate([exact, exact[:-1] / 2 + following / 2])
    up, down = (np.nextafter(values, np.float32(towards), dtype=np.float32) for towards in (np.inf, -np.inf))
    values = np.concatenate([values, up, down])
    return np.concatenate([values, -values])


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    """The same bits, but for those of NaN."""
    bits = {2: np.uint16, 4: np.uint32}[actual.itemsize]
    same = actual.view(bits) == expected.view(bits)
    assert (same | np.isnan(actual) & np.isnan(expected)).all()


def test_every_float16_becomes_its_float32(convert):
    assert_same(convert("widen", EVERY_HALF, np.float32), EVERY_HALF.astype(np.float32))


def test_every_float16_comes_back(convert):
    assert_same(convert("narrow", convert("widen", EVERY_HALF, np.float32), np.float16), EVERY_HALF)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize(
    "values",
    [boundaries(), np.arange(0, 1 << 32, 997, dtype=np.int64).astype(np.uint32).view(np.float32)],
    ids=["boundaries", "all over"],
)
def test_a_float32_becomes_the_nearest_float16(convert, values):
    assert_same(convert("narrow", values, np.float16), values.astype(np.float16))


def test_loops_are_vectorised(compile_loops):
    if "Free Software" not in subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout:
        pytest.skip("this is no GCC")
    vectorised = compile_loops("-fopt-info-vec").splitlines()
    assert {4, 5} == {int(line.split(":")[1]) for line in vectorised if "loop vectorized using 16 byte" in line}
