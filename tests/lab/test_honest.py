"""Each way for an op to look faster than it is, and honest ops that look like one."""

import dataclasses
import threading
import time

import pytest
import torch

from kernelgen.lab import honest
from kernelgen.lab.results import OP
from kernelgen.lab.subject import Subject

from .bench_ops import described, double_plus_one

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def faults(function, device="cpu", times=4, *, backward=False, reference=double_plus_one) -> str:
    """What is found over a few blocks."""
    torch.manual_seed(0)
    op = dataclasses.replace(described(function), reference=reference)
    subject = Subject(op, {"n": 1000}, torch.float32, device, {OP: function}, backward=backward)
    subject.plan(subject.warm_up(OP))
    for _ in range(times):
        subject.fresh()
        if found := honest.watched(subject, OP):
            return found
    return honest.afterwards(subject, OP) or ""


@pytest.mark.parametrize("backward", [False, True])
def test_an_honest_op_passes(backward):
    assert faults(double_plus_one, backward=backward) == ""


def test_a_reference_that_does_not_fit_the_memory_is_no_fault():
    """What needs no reference is still seen."""

    def too_large(x):
        if x.dtype == torch.float64:
            raise torch.OutOfMemoryError("tried to allocate 512 GiB")
        return double_plus_one(x)

    assert faults(double_plus_one, reference=too_large) == ""
    assert "wrote to its inputs" in faults(lambda x: x.mul_(2).add_(1), reference=too_large)


def test_outputs_cached_by_input_address():
    kept = {}

    def cached(x):
        if x.data_ptr() not in kept:
            kept[x.data_ptr()] = double_plus_one(x)
        return kept[x.data_ptr()]

    assert "earlier values at the same addresses" in faults(cached)


def test_outputs_cached_by_address_and_version():
    """Autograd's version counters do not give the new values away."""
    kept = {}

    def cached(x):
        key = x.data_ptr(), x._version
        if key not in kept:
            kept[key] = double_plus_one(x)
        return kept[key].clone()

    assert "earlier values at the same addresses" in faults(cached)


def test_inputs_overwritten():
    def overwrites(x):
        return x.mul_(2).add_(1)

    assert "wrote to its inputs" in faults(overwrites)


def test_work_skipped_after_the_first_calls():
    calls = []

    def lazy(x):
        calls.append(1)
        return double_plus_one(x) if len(calls) < 50 else torch.zeros_like(x)

    assert "output 0" in faults(lazy)


def test_every_other_call_returns_a_stale_buffer():
    last = []

    def stale(x):
        last.append(0)
        if len(last) % 2 and len(last) > 1:
            return buffer.clone()
        buffer.copy_(double_plus_one(x))
        return buffer.clone()

    buffer = torch.empty(1000)
    assert faults(stale) != ""


def test_a_part_of_the_work_skipped():
    def partial(x):
        out = torch.zeros_like(x)
        out[:-1] = double_plus_one(x[:-1])
        return out

    assert "output 0" in faults(partial)


def test_one_buffer_for_every_call():
    buffer = torch.empty(1000)

    def reuses(x):
        return torch.add(x * 2, 1, out=buffer)

    # With several calls a sample the last one's values are in every result; with one, a later call spoils it.
    assert faults(reuses) != ""


def test_work_left_on_a_thread():
    def later(x):
        out = torch.zeros_like(x)

        def fill():
            time.sleep(0.001)
            out.copy_(double_plus_one(x))

        threading.Thread(target=fill).start()
        return out

    assert "another stream or thread" in faults(later)


def test_a_wrong_gradient():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return double_plus_one(x)

        @staticmethod
        def backward(ctx, grad):
            return grad

    assert "grad 0" in faults(Wrong.apply, backward=True)


def test_a_cheat_in_cpp(tmp_path, monkeypatch):
    """A compiled op that keeps its first result, which no look at its Python would show."""
    ctypes = pytest.importorskip("ctypes")
    import shutil
    import subprocess

    if not (compiler := shutil.which("g++")):
        pytest.skip("needs g++")
    (tmp_path / "cheat.cpp").write_text(
        "#include <map>\nstatic std::map<const float*, int> seen;\n"
        'extern "C" void run(const float* x, float* y, long n) {\n'
        "  static std::map<const float*, float> first;\n"
        "  if (!first.count(x)) first[x] = x[0];\n"
        "  for (long i = 0; i < n; ++i) y[i] = (i ? x[i] : first[x]) * 2 + 1;\n}\n"
    )
    library = tmp_path / "cheat.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "cheat.cpp"], check=True)
    compiled = ctypes.CDLL(str(library)).run

    def cheat(x):
        y = torch.empty_like(x)
        compiled(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
        return y

    assert "output 0" in faults(cheat)


@CUDA
@pytest.mark.parametrize("n", [1000, 10_000_000])
def test_work_left_on_a_side_stream(n):
    stream = torch.cuda.Stream()

    def elsewhere(x):
        out = torch.zeros_like(x)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000)
            out.copy_(double_plus_one(x))
        return out

    assert faults(elsewhere, "cuda") != ""


@CUDA
def test_a_side_stream_that_is_joined_is_fine():
    def joined(x):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            out = double_plus_one(x)
        torch.cuda.current_stream().wait_stream(stream)
        return out

    assert faults(joined, "cuda") == ""
