"""Structs that a call copies straight from memory: the compiler's hooks leave them out, the emulated GPU does not."""

import pytest
import torch

from kernelgen.emulator import compiler
from kernelgen.emulator.compile import compile_kernel
from kernelgen.emulator.library import EmulatorError
from kernelgen.emulator.unhooked import unhooked_calls

from . import standalone

DUMP = """
;; Function {name} (_Z1kPf, funcdef_no=1, decl_uid=2, cgraph_uid=3, symbol_order=4)

void {name} (struct Tile * p, struct Tile own)
{{
  struct Tile local;
  struct Tile D.17;
  struct Vector iftmp.416;
  float _1;

  <bb 2> [local count: 1073741824]:
  __builtin___tsan_read4 (p_2(D));
  {call}
  return;
}}
"""


@pytest.mark.parametrize(
    "call",
    [
        "_1 = sum (*p_2(D));",
        "_1 = sum (MEM[(const struct Tile &)p_2(D) + 32]);",
        "_1 = Tiles<float, 2>::sum (3, p_2(D)->tile);",
        "sum (tiles_of_the_device);",
        "D.17 = _Z3sum4Tile.localalias (MEM[(struct Shared0 &)_55].s[1], 1); [return slot optimization]",
    ],
)
def test_a_call_that_copies_memory_is_seen(call):
    assert unhooked_calls(DUMP.format(name="k", call=call)) == ["k"]


@pytest.mark.parametrize(
    "call",
    [
        "_1 = sum (local);",
        "_1 = sum (D.17, own);",
        "_1 = sum (own.values);",
        "_1 = sum<32, float, 2> (iftmp.416);",
        '_1 = 1;\n  _1 = entry_point ("name, of a function", &local, 12000);',
        "_1 = sum (&*p_2(D), 1.0e+0, _1, p_2(D));",
        'emulator::run ("k", k, *p_2(D));',
        ".UBSAN_NULL (_31, 0B, 16);",
        "if (_1 != 0)",
        "local = *p_2(D);",
    ],
)
def test_a_call_that_copies_none_is_not(call):
    assert unhooked_calls(DUMP.format(name="k", call=call)) == []


def test_an_address_of_a_function_is_no_memory():
    kernel = DUMP.format(name="n::{anonymous}::kernel<Tile<8, n::T>, float>", call="return;")
    assert unhooked_calls(kernel + DUMP.format(name="blocks", call="_1 = persistent_blocks<float> (kernel, 3);")) == []


def test_a_launch_copies_from_the_host():
    launch = DUMP.format(name="emulator::launch<k()>::_FUN", call="_6 (*p_2(D));")
    launcher = DUMP.format(name="n::forward<float>", call='emulator::run ("k", k, &D.17);\n  check (*p_2(D));')
    caller = DUMP.format(name="visit", call="_5 = n::forward<float> (*p_2(D));")
    assert unhooked_calls(launch + launcher + caller) == []


def test_a_dump_that_cannot_be_read_is_no_proof():
    assert unhooked_calls("") == []
    assert unhooked_calls(";; k (in another form)") == ["a function"]


def test_a_source_without_functions_compiles(tmp_path):
    (tmp_path / "empty.cu").write_text("constexpr int kNothing = 0;\n")
    compile_kernel(compiler.find(), tmp_path / "empty.cu", tmp_path / "empty.o", [])
    assert (tmp_path / "empty.o").exists()


def test_a_race_by_such_a_copy_is_named():
    kernels = standalone.build("by_value")
    values, out = torch.arange(64.0), torch.zeros(32)
    kernels("run_summed", values, out, 0)
    assert torch.equal(out, 8 * values[32:])
    with pytest.raises(EmulatorError, match=r"(race|uninitialised)[^$]* tiles"):
        kernels("run_summed", values, out, 1)


def test_a_function_that_cannot_be_inlined_is_named(tmp_path, capfd):
    compile_kernel(compiler.find(), standalone.KERNELS / "by_value.cu", tmp_path / "x.o", ["-DBY_POINTER"])
    assert "by_value.cu: summed<true> passes a struct from memory by value to a function that" in capfd.readouterr().err
