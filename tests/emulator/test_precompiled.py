"""The prelude is compiled once, and a kernel that cannot use it is compiled all the same."""

from kernelgen.emulator import compiler
from kernelgen.emulator.compile import compile_kernel
from kernelgen.emulator.precompiled import split

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


def test_sources_share_a_prelude_and_do_without_a_damaged_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tools = compiler.find()
    for name in ("first", "second"):
        source = tmp_path / f"{name}.cu"
        source.write_text(f"__global__ void {name}(int* values) {{ values[threadIdx.x] = INSTANCE; }}")
        compile_kernel(tools, source, tmp_path / f"{name}.o", ["-DINSTANCE=3"])
    (header,) = (tmp_path / "cache").rglob("*.gch")
    header.write_bytes(b"damaged")
    compile_kernel(tools, source, tmp_path / "third.o", ["-DINSTANCE=4"])
    assert (tmp_path / "third.o").stat().st_size > 0
    assert header.read_bytes() == b"damaged"
