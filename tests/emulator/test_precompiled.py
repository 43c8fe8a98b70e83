"""The prelude is compiled once, and a kernel that cannot use it is compiled all the same."""

import subprocess
from pathlib import Path

import pytest

from kernelgen.emulator import compiler, precompiled
from kernelgen.emulator.cache import states
from kernelgen.emulator.compile import compile_kernel
from kernelgen.emulator.compiler import DEVICE, EmulatorError
from kernelgen.emulator.precompiled import _Macros, glue_header, split

TEXT = """# 0 "kernel.cu"
# 1 "/a/folder//"
# 0 "<built-in>"
# 0 "<command-line>"
# 1 "prelude.h" 1
int prelude;
# 0 "<command-line>" 2
# 1 "kernel.cu"
int kernel;
"""


def test_a_prelude_names_neither_the_source_nor_its_folder():
    names, prelude, own = split(TEXT)
    assert names + prelude + own == TEXT
    assert "int prelude;" in prelude
    assert "kernel" not in prelude
    assert "/a/folder" not in prelude
    assert own.startswith('# 1 "kernel.cu"')


def test_a_prelude_that_was_loaded_is_part_of_it():
    text = TEXT.replace('# 0 "<command-line>" 2\n', '# 0 "<command-line>" 2\n#pragma GCC pch_preprocess "x.gch"\n')
    names, prelude, own = split(text)
    assert names + prelude + own == text
    assert prelude.endswith('"x.gch"\n')


def test_sources_share_a_prelude_and_do_without_a_damaged_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tools = compiler.find()
    for name in ("first", "second"):
        source = tmp_path / f"{name}.cu"
        source.write_text(f"__global__ void {name}(int* values) {{ values[threadIdx.x] = INSTANCE; }}")
        compile_kernel(tools, source, tmp_path / f"{name}.o", ["-DINSTANCE=3"])
    headers = sorted((tmp_path / "cache").rglob("*.gch"))
    assert [header.name for header in headers] == ["prelude.h.gch", "prelude.gch"]
    for number, header in enumerate(headers):
        header.write_bytes(b"damaged")
        target = tmp_path / f"{number}.o"
        compile_kernel(tools, source, target, ["-DINSTANCE=4"])
        assert target.stat().st_size > 0
        assert header.read_bytes() == b"damaged"


def test_a_macro_of_the_source_s_flags_may_change_the_prelude(tmp_path):
    source, target = tmp_path / "kernel.cu", tmp_path / "kernel.o"
    source.write_text("__device__ float twice(__half x) { return float(x + x); }\n")
    compile_kernel(compiler.find(), source, target, [])
    with pytest.raises(EmulatorError, match=r"kernel\.cu:1"):
        compile_kernel(compiler.find(), source, target, ["-D__CUDA_NO_HALF_OPERATORS__"])


def test_an_object_depends_on_the_files_of_the_prelude(tmp_path):
    source, target = tmp_path / "kernel.cu", tmp_path / "kernel.o"
    source.write_text("__global__ void kernel() {}\n")
    compile_kernel(compiler.find(), source, target, [], depends=True)
    rules = (tmp_path / "kernel.o.d").read_text()
    assert f"{target}: {DEVICE}/language/atomics.h\n" in rules
    assert "/cuda_fp16.h\n" in rules


def test_macros_of_other_files_are_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []
    header, changed = tmp_path / "header.gch", tmp_path / "changed.h"
    header.touch()
    changed.write_text("1")

    def make(*arguments):
        made.append(arguments)
        return {"header": str(header), "toolkit": None, "inputs": states([str(changed)])}

    monkeypatch.setattr(_Macros, "_make", make)
    for _ in range(2):
        assert _Macros.of(compiler.find(), []).header == header
    assert len(made) == 1
    changed.write_text("12")
    _Macros.of(compiler.find(), [])
    assert len(made) == 2


def test_glue_reads_the_compiled_header_and_with_other_flags_its_text(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(precompiled, "GLUE_HEADERS", ("a.h", "vector"))
    (tmp_path / "a.h").write_text("#pragma once\n#ifdef __OPTIMIZE__\nint is_optimised;\n#else\nint is_not;\n#endif\n")
    (tmp_path / "glue.cpp").write_text('#include "a.h"\nstd::vector<int>* values;\nint* a = &is_optimised;\n')
    command = [compiler.find().command, "-O1", f"-I{tmp_path}"]
    header = glue_header(command)
    compile_glue = [*command, "-include", str(header), "-H", "-c", "-o", str(tmp_path / "glue.o")]
    for own, mark in (("-DOP_NAMESPACE=ops", "!"), ("-O2", "!"), ("-std=c++20", "x")):
        done = subprocess.run([*compile_glue, own, str(tmp_path / "glue.cpp")], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith(f"{mark} {header}.gch\n")


def test_a_header_of_other_files_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(precompiled, "GLUE_HEADERS", ("a.h",))
    (tmp_path / "a.h").write_text("int a;\n")
    command = [compiler.find().command, f"-I{tmp_path}"]

    def state():
        return Path(f"{glue_header(command)}.gch").stat().st_mtime_ns

    before = state()
    assert state() == before
    (tmp_path / "a.h").write_text("int a, b;\n")
    assert state() > before
