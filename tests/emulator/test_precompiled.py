"""The prelude is compiled once, and a kernel that cannot use it is compiled all the same."""

import json

import pytest

from kernelgen.emulator import compiler
from kernelgen.emulator.compile import compile_kernel
from kernelgen.emulator.compiler import DEVICE, EmulatorError
from kernelgen.emulator.precompiled import _Macros, _stamps, split

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
    monkeypatch.setattr(_Macros, "_make", classmethod(lambda cls, *arguments: made.append(arguments)))
    folder = tmp_path / "kernelgen" / "emulator"
    _Macros.of(compiler.find(), [])
    (macros,) = folder.glob("macros-*[!k]")
    header, changed = tmp_path / "header.gch", tmp_path / "changed.h"
    header.touch()
    changed.write_text("1")
    facts = {"header": str(header), "toolkit": None, "inputs": _stamps([str(changed)])}
    (macros / "facts.json").write_text(json.dumps(facts))
    assert _Macros.of(compiler.find(), []).header == header
    changed.write_text("12")
    _Macros.of(compiler.find(), [])
    assert len(made) == 2
