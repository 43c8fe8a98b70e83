"""The compilers' errors, as `kernelgen build --json` lists them."""

import shutil
import subprocess

import pytest
from build_tools.diagnostics import errors, refusal_of_the_machine

OUTPUT = """[1/4] c++  src/demo/ops/op/cpu.cpp
FAILED: [code=1] build/release/op/cpu.cpp.o
g++ -std=c++17 -c src/demo/ops/op/cpu.cpp
In file included from src/demo/ops/op/cpu.cpp:3:
src/demo/include/cpu/rows.h:12:5: error: 'rows' was not declared in this scope
src/demo/ops/op/cpu.cpp:40:11: warning: unused variable 'x' [-Wunused-variable]
src/demo/ops/op/cpu.cpp:41:10: fatal error: nothing.h: No such file or directory
FAILED: build/release/op/kernel.cu.90a.o
src/demo/ops/op/kernel.cu(17): error: identifier "blockDimm" is undefined
src/demo/ops/op/kernel.cu(19): error #20014-D: calling a host function is not allowed
src/demo/ops/op/kernel.cu(20): warning #177-D: variable "y" was declared but never referenced
ptxas fatal   : (C7600) Register allocation failed with register count of '24'
ptxas build/x.ptx, line 26; error   : Feature 'wgmma' requires .target sm_90a
FAILED: src/demo/_cpu.so
/usr/bin/ld: build/release/op/cpu.cpp.o: in function `f': undefined reference to `g()'
ninja: build stopped: subcommand failed.
"""


def test_the_errors_of_each_compiler_are_read():
    listed = [(e["object"].rpartition("/")[2], e["file"], e["line"], e["column"], e["message"]) for e in lines(OUTPUT)]
    folder = "src/demo/ops/op"
    assert listed == [
        ("cpu.cpp.o", "src/demo/include/cpu/rows.h", 12, 5, "'rows' was not declared in this scope"),
        ("cpu.cpp.o", f"{folder}/cpu.cpp", 41, 10, "nothing.h: No such file or directory"),
        ("kernel.cu.90a.o", f"{folder}/kernel.cu", 17, None, 'identifier "blockDimm" is undefined'),
        ("kernel.cu.90a.o", f"{folder}/kernel.cu", 19, None, "calling a host function is not allowed"),
        ("kernel.cu.90a.o", None, None, None, "ptxas fatal   : (C7600) Register allocation failed with register count "
         "of '24'"),
        ("kernel.cu.90a.o", None, None, None, "error   : Feature 'wgmma' requires .target sm_90a"),
        ("_cpu.so", None, None, None, "undefined reference to `g()'"),
    ]  # fmt: skip


def lines(text: str) -> list[dict]:
    return errors(text.splitlines(keepends=True))


@pytest.mark.parametrize(
    "line",
    (
        "/tmp/x.s: Fatal error: can't write 49 bytes to section .text of x.o: 'No space left on device'",
        "g++: fatal error: Killed signal terminated program cc1plus",
        "/usr/bin/ld: cannot open output file _cpu.so: Permission denied",
    ),
)
def test_what_the_machine_refused_is_no_error_of_a_source(line):
    assert refusal_of_the_machine(["[1/2] c++  cpu.cpp\n", f"\x1b[31m{line}\x1b[0m\n", "ninja: stopped\n"]) == line
    assert refusal_of_the_machine(OUTPUT.splitlines(keepends=True)) is None


def test_an_error_that_is_printed_twice_is_listed_once():
    line = 'kernel.cu(3): error: expected a ";"\n'
    assert len(lines(line + line)) == 1


@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc here")
def test_nvcc_writes_its_errors_in_this_form(tmp_path):
    (tmp_path / "kernel.cu").write_text("__global__ void kernel(float* x) {\n  *x = y;\n}\n")
    command = ["nvcc", "-c", "kernel.cu", "-o", "kernel.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (error,) = lines(done.stdout + done.stderr)
    assert (error["file"], error["line"]) == ("kernel.cu", 2)
    assert error["message"] == 'identifier "y" is undefined'
