"""Compiling candidates: which sources are compiled, which come from the cache, and which failures there are."""

import ctypes
import errno
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
import torch

from kernelgen.errors import KernelgenError
from kernelgen.tune import candidates, gates
from kernelgen.tune.candidates import CandidateCompiler
from kernelgen.tune.device_limits import DEVICE_LIMITS
from kernelgen.tune.errors import CompileError
from tests.stamped.conftest import stamp

from .conftest import OP

# Sources of an op: the function of each, the class of shapes that it reads and the values it reads of it.
SOURCES = {
    "cpu.cpp": ("kernel", "Large", "tile"),
    "cpu_host.cpp": ("scratch", "Large", "tile * 100"),
    "cpu_small.cpp": ("small", "Small", "tile"),
    "cpu_threads.cpp": ("threads", "Large", "threads"),
}
SIZES = """#include <string_view>

#include "tuned/cpu/sized.h"

struct Small {
  static constexpr std::string_view shapes = "small";
  static constexpr int tile = 1, threads = 10;
};

struct Large : Small {
  static constexpr std::string_view shapes = "large";
};
"""
READER = """#include "sizes.h"

extern "C" __attribute__((visibility("default"))) int {name}() {{
  return tuned::sized::visit<{struct}>([](auto values) {{
    using Tuned = decltype(values);
    return Tuned::{value};
  }});
}}
"""


@pytest.fixture
def compiler(planted) -> CandidateCompiler:
    compiler = CandidateCompiler(planted, Path(sys.executable), "elementwise", "cpu", ["work", "mode"])
    compiler.prepare()
    return compiler


def test_a_candidate_is_a_library_of_its_own_and_the_projects_are_left_alone(compiler, planted):
    candidate = compiler.compile({"work": 5, "mode": 0})
    assert candidate.seconds > 0
    assert candidate.library.is_file()
    assert sorted(path.name for path in candidate.library.parent.iterdir()) == ["_cpu.so", "kernels.json"]
    assert not (planted / "build" / "release").exists()
    assert not list((planted / "src").rglob("*.so"))
    assert candidate.library.read_bytes() != compiler.default.library.read_bytes()


def test_unchanged_sources_come_from_the_cache_and_changed_ones_do_not(compiler, planted):
    cached = compiler.compile({"work": 2, "mode": 0})
    assert cached.seconds == 0  # The fixture compiled it, in another folder.
    version = compiler.sources_version
    with (planted / OP / "arguments.h").open("a") as header:
        header.write("// changed\n")
    later = CandidateCompiler(planted, Path(sys.executable), "elementwise", "cpu", ["work", "mode"])
    later.prepare()
    assert later.sources_version != version
    assert later.compile({"work": 2, "mode": 0}).seconds > 0


@pytest.fixture(scope="module")
def sized(tmp_path_factory) -> Path:
    """An op of several sources and two classes of shapes. Shared: do not change it."""
    project = stamp(tmp_path_factory.mktemp("sized") / "demo", ops=[{"name": "sized", "recipe": "blank"}])
    folder = project / "src/demo_kernels/ops/sized"
    (folder / "sizes.h").write_text(SIZES)
    for source, (name, struct, value) in SOURCES.items():
        (folder / source).write_text(READER.format(name=name, struct=struct, value=value))
    return project


def test_only_the_sources_that_read_the_tuned_values_of_a_class_are_compiled_again(sized):
    """Among them host code that reads the values: it has to agree with the kernels."""
    compiler = CandidateCompiler(sized, Path(sys.executable), "sized", "cpu", ["tile"], "large")
    default = compiler.prepare()
    assert sorted(Path(path).name for path in compiler.compiles) == ["cpu.cpp.o", "cpu_host.cpp.o"]
    names = [name for name, _, _ in SOURCES.values()]
    for library, expected in (
        (default.library, [1, 100, 1, 10]),
        (compiler.compile({"tile": 7}).library, [7, 700, 1, 10]),
    ):
        torch.ops.load_library(str(library))
        opened = ctypes.CDLL(str(library))
        assert [getattr(opened, name)() for name in names] == expected


def test_which_sources_read_the_tuned_values_is_found_out_once(sized, monkeypatch):
    def prepare() -> list[str]:
        compiler = CandidateCompiler(sized, Path(sys.executable), "sized", "cpu", ["tile"], "small")
        compiler.prepare()
        return [Path(path).name for path in compiler.compiles]

    assert prepare() == ["cpu_small.cpp.o"]
    monkeypatch.setattr(CandidateCompiler, "_call", lambda *_: pytest.fail("it was found before"))
    assert prepare() == ["cpu_small.cpp.o"]


def test_a_class_that_no_source_reads_is_refused_in_a_sentence(sized):
    compiler = CandidateCompiler(sized, Path(sys.executable), "sized", "cpu", ["tile"], "huge")
    sentence = 'No source of sized for cpu reads tile of a struct whose `shapes` is "huge": there is nothing to tune.'
    with pytest.raises(KernelgenError, match=re.escape(sentence)):
        compiler.prepare()


def test_enough_candidates_are_compiled_at_once_to_keep_every_compiler_busy(sized):
    def at_once(shapes: str) -> tuple[int, int]:
        compiler = CandidateCompiler(sized, Path(sys.executable), "sized", "cpu", ["tile"], shapes, jobs=5)
        compiler.prepare()
        return len(compiler.compiles), compiler.at_once

    assert at_once("large") == (2, 4)
    assert at_once("small") == (1, 5)


def test_cuda_candidates_are_the_kernel_alone_and_come_with_the_compilers_report(planted, monkeypatch):
    if shutil.which("nvcc") is None and not Path("/usr/local/cuda/bin/nvcc").exists():
        pytest.skip("there is no nvcc here")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    compiler = CandidateCompiler(
        planted, Path(sys.executable), "elementwise", "cuda", ["threads", "vector_bytes", "vectors"]
    )
    default = compiler.prepare()
    assert [Path(path).name for path in compiler.compiles] == ["kernel.cu.90a.o"]
    assert {kernel["architecture"] for kernel in default.kernels} == {"9.0a"}
    candidate = compiler.compile({"threads": 1024, "vector_bytes": 16, "vectors": 8})
    assert candidate.library.name == "_cuda.so"
    assert candidate.library.read_bytes() != default.library.read_bytes()
    assert len(candidate.kernels) == len(default.kernels)
    registers = max(kernel["registers"] for kernel in candidate.kernels)
    assert registers > max(kernel["registers"] for kernel in default.kernels)
    assert gates.judge_compiled(default.kernels, {"threads": 256}, 0, DEVICE_LIMITS["9.0"]) is None
    # Launch bounds of 1,024 threads leave each thread no more.
    assert registers <= 64


def test_a_candidate_that_does_not_compile_costs_itself_alone(compiler):
    with pytest.raises(CompileError, match="error: static assertion failed: mode 4 is none"):
        compiler.compile({"work": 1, "mode": 4})
    assert compiler.compile({"work": 1, "mode": 0}).library.is_file()
    assert not list((compiler.folder / "candidates").glob(".making-*"))


def test_a_compiler_that_takes_too_long_is_ended(compiler, tmp_path, monkeypatch):
    """So is what it started, which would hold its output open for longer than any machine is busy."""
    fake = tmp_path / "nice"
    fake.write_text("#!/bin/sh\nsleep 1000 &\nwait\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    compiler.limit_s = 0.3
    start = time.monotonic()
    with pytest.raises(CompileError, match=r"the compiler took longer than 0\.3 s"):
        compiler.compile({"work": 7, "mode": 0})
    assert time.monotonic() - start < 900


def test_a_full_disk_ends_the_tuning_in_a_sentence(compiler, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(candidates.Path, "write_text", full)
    with pytest.raises(KernelgenError, match="The disk is full at") as raised:
        compiler.compile({"work": 7, "mode": 0})
    assert not isinstance(raised.value, CompileError)


def test_a_compiler_that_meets_a_full_disk_says_so(compiler, tmp_path, monkeypatch):
    fake = tmp_path / "nice"
    fake.write_text("#!/bin/sh\necho 'fatal error: cannot write: No space left on device' >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert shutil.which("nice") == str(fake)
    with pytest.raises(KernelgenError, match="The disk is full at"):
        compiler.compile({"work": 7, "mode": 0})
