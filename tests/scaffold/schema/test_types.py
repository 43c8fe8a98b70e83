"""The C++ type of every schema type: compiled into operators, called, and compared with what came back."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernelgen.scaffold.schema.parser import parse

torch = pytest.importorskip("torch")

_VALUES = {
    "Tensor": "torch.ones(2)",
    "int": "-7",
    "SymInt": "5",
    "float": "0.1",
    "bool": "True",
    "str": '"aé"',
    "ScalarType": "torch.bfloat16",
    "Layout": "torch.strided",
    "MemoryFormat": "torch.channels_last",
    "Device": 'torch.device("cuda:1")',
}
_SHAPES = {  # a type and values of it, for the value `v` of its base
    "{}": ["v"],
    "{}?": ["v", "None"],
    "{}[]": ["[v, v]", "[]"],
    "{}?[]": ["[v, None]", "[]"],
    "{}[]?": ["[v]", "[]", "None"],
    "{}?[]?": ["[None, v]", "None"],
    "{}[2]": ["[v, v]"],
}
_DEFAULTS = [
    "float x=1",
    "float? x=1",
    "int[2] x=3",
    "SymInt[] x=[1, 2]",
    "float[2] x=1",
    "bool? x=False",
    'str x="é\\101"',
    "ScalarType? x=half",
    "ScalarType[2] x=half",
    "MemoryFormat x=channels_last",
    'Device x="cuda:1"',
]


def _cases() -> list[tuple[str, list[str], bool]]:
    """Argument, values as Python source (none for a default), and whether the type can also be returned."""
    cases = []
    for base, value in _VALUES.items():
        for shape, values in _SHAPES.items():
            type = shape.format(base)
            refused = type.startswith(("ScalarType", "Layout", "MemoryFormat", "bool[", "Tensor?["))
            cases.append((f"{type} x", [v.replace("v", value) for v in values], not refused))
    return cases + [(d, [], "ScalarType" not in d and "MemoryFormat" not in d) for d in _DEFAULTS]


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> str:
    """The namespace of compiled operators: `f3` gives its argument back, `g3` its text in a C++ stream."""
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    folder: Path = tmp_path_factory.mktemp("glue")
    source, registered = [_GLUE], []
    definitions = torch.library.Library("schema_glue", "FRAGMENT")
    for i, (argument, _, returned) in enumerate(_cases()):
        schema = parse(f"({argument}) -> ()")
        entry = schema.entry()["arguments"][0]
        source.append(f"std::string g{i}({entry['cpp_type']} x) {{ return show(x); }}")
        names = {f"g{i}": parse(f"({argument}) -> str")}
        if returned:
            schema = names[f"f{i}"] = parse(f"({argument}) -> {argument.split(' ')[0].replace('[2]', '[]')}")
            source.append(f"{schema.entry()['cpp_return']} f{i}({entry['cpp_type']} x) {{ return x; }}")
        for name, defined in names.items():
            definitions.define(name + defined.text)
            registered.append(f'  m.impl("{name}", TORCH_BOX(&{name}));')
    for name, text in _MUTATING.items():
        schema = parse(text)
        cpp_type = schema.entry()["arguments"][0]["cpp_type"]
        source.append(f"{schema.entry()['cpp_return']} {name}({cpp_type} x) {{ {_MUTATING_BODY[name]} }}")
        definitions.define(name + schema.text)
        registered.append(f'  m.impl("{name}", TORCH_BOX(&{name}));')
    source += [
        "}",
        "STABLE_TORCH_LIBRARY_IMPL(schema_glue, CompositeExplicitAutograd, m) {",
        *registered,
        "}",
    ]
    (folder / "glue.cpp").write_text("\n".join(source), encoding="utf-8")
    root = Path(torch.__file__).parent
    command = ["g++", "-std=c++17", "-Wall", "-fPIC", "-shared", "-DTORCH_TARGET_VERSION=0x020a000000000000"]
    command += [f"-I{root}/include", "glue.cpp", "-o", "glue.so", f"-L{root}/lib", "-ltorch", "-ltorch_cpu"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[:4000]
    torch.ops.load_library(folder / "glue.so")
    yield "schema_glue"
    definitions._destroy()


_MUTATING = {
    "one": "(Tensor! x) -> ()",
    "maybe": "(Tensor(a!)? x) -> ()",
    "many": "(Tensor(a!)[] x) -> ()",
    "pair": "(Tensor! x) -> (Tensor, Tensor)",
}
_MUTATING_BODY = {
    "one": "torch::stable::zero_(x);",
    "maybe": "if (x) torch::stable::zero_(*x);",
    "many": "for (auto& t : x) torch::stable::zero_(t);",
    "pair": "torch::stable::zero_(x); return {torch::stable::clone(x), torch::stable::clone(x)};",
}
_GLUE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <sstream>
#include <string>
#include <vector>

using torch::stable::Tensor;
namespace {
std::string show(const Tensor& t) { return "tensor" + std::to_string(t.numel()); }
std::string show(int64_t x) { return "int" + std::to_string(x); }
std::string show(double x) { std::ostringstream s; s << "float" << x; return s.str(); }
std::string show(bool x) { return x ? "true" : "false"; }
std::string show(const std::string& x) { return "str" + x; }
std::string show(torch::headeronly::ScalarType x) { return torch::headeronly::toString(x); }
std::string show(torch::headeronly::Layout x) { return "layout" + std::to_string(int(x)); }
std::string show(torch::headeronly::MemoryFormat x) { return "format" + std::to_string(int(x)); }
std::string show(const torch::stable::Device& x) { return "device" + std::to_string(x.index()); }
template <class T> std::string show(const std::vector<T>& xs);
template <class T> std::string show(const std::optional<T>& x) { return x ? show(*x) : "none"; }
template <class T> std::string show(const std::vector<T>& xs) {
  std::string all = "[";
  for (const T& x : xs) all += show(x) + ",";
  return all + "]";
}
"""


def _shown(value) -> str:
    """What `show` in the C++ above writes for a value."""
    if value is None:
        return "none"
    if isinstance(value, (list, tuple)):
        return "[" + "".join(_shown(v) + "," for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    spelt = {
        torch.Tensor: lambda v: f"tensor{v.numel()}",
        int: lambda v: f"int{v}",
        float: lambda v: f"float{v:g}",
        str: lambda v: f"str{v}",
        torch.dtype: lambda v: {torch.bfloat16: "BFloat16", torch.float16: "Half"}[v],
        torch.layout: lambda v: "layout0",
        torch.memory_format: lambda v: {torch.channels_last: "format2"}[v],
        torch.device: lambda v: f"device{v.index}",
    }
    return spelt[type(value)](value)


@pytest.mark.slow
@pytest.mark.parametrize("i", range(len(_cases())), ids=[argument for argument, _, _ in _cases()])
def test_the_cpp_type_sees_the_value_and_gives_it_back(library: str, i: int):
    argument, values, returned = _cases()[i]
    calls = [((eval(v, {"torch": torch}),), eval(v, {"torch": torch})) for v in values]
    if not values:
        entry = parse(f"({argument}) -> ()").entry()["arguments"][0]
        calls = [((), eval(entry["default"], {"torch": torch}))]
    for given_, seen in calls:
        assert getattr(getattr(torch.ops, library), f"g{i}")(*given_) == _shown(seen)
        if returned:
            _assert_equal(getattr(getattr(torch.ops, library), f"f{i}")(*given_), seen)


def _assert_equal(got, expected):
    if isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            _assert_equal(g, e)
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(got, expected)
    else:
        assert (type(got), got) == (type(expected), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", _MUTATING)
def test_a_mutated_tensor_is_written_to(library: str, name: str):
    x = torch.ones(2)
    result = getattr(getattr(torch.ops, library), name)([x] if name == "many" else x)
    assert not x.any()
    if name == "pair":
        _assert_equal(result, (x, x))
