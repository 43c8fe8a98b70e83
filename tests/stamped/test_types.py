"""Every type of the stable ABI, from Python to C++ and back: values in, and equal values seen."""

import ast
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernelgen.scaffold.schema.errors import SchemaError
from kernelgen.scaffold.schema.parser import parse
from kernelgen.scaffold.schema.types import BASES

from .conftest import blank, build, edit, quickly, stamp, write_cpu

# The forms that a type can take.
FORMS = ("{}", "{}?", "{}[]", "{}?[]", "{}[]?", "{}?[]?")
SIZES = ("{}[2]", "{}[2]?")
# An argument of every type: its name, its base and its form.
ARGUMENTS = [(f"{base.lower()}{i}", base, form) for base in BASES for i, form in enumerate(FORMS)]
SIZED = [(f"{base.lower()}{i}", base, form) for base in BASES for i, form in enumerate(SIZES)]
# The types that PyTorch returns to Python unchanged.
RETURNS = [
    (name, base, form)
    for name, base, form in ARGUMENTS
    if base not in ("ScalarType", "Layout", "MemoryFormat")
    and (base != "bool" or "{}[" not in form)
    and (base != "Tensor" or "{}?[" not in form)
]


def declared(arguments: list[tuple[str, str, str]]) -> str:
    return ", ".join(f"{form.format(base)} {name}" for name, base, form in arguments)


SCHEMAS = {
    "received": f"(Tensor x, {declared(ARGUMENTS)}) -> Tensor",
    "sized": f"(Tensor x, {declared(SIZED)}) -> Tensor",
    "keywords": "(Tensor self, Tensor template, int xor, float double, int await=1, str? torch=None) -> Tensor",
    "glue": "(Tensor x, Tensor scale, float eps, str mode) -> Tensor",
    "returned": f"(Tensor x, {declared(RETURNS)}) -> ({', '.join(form.format(base) for _, base, form in RETURNS)})",
}

# Copies a tensor of some dtypes element by element, where it lies, with the checks of numbers and of ranks.
GLUE = r"""
  const checks::Argument argument{"glue", "x", x};
  checks::is_scalar({"glue", "scale", scale});
  checks::is_positive("glue", "eps", eps);
  checks::is_finite("glue", "eps", eps);
  checks::is_between("glue", "eps", eps, 1e-9, 0.5);
  checks::is_one_of("glue", "mode", mode, {"narrow", "wide"});
  const Tensor out = torch::stable::new_empty(x, {x.numel()});
  using dtypes::ScalarType;
  const ScalarType dtype = x.scalar_type();
  dtypes::visit<ScalarType::Float, ScalarType::Int, ScalarType::Bool, ScalarType::Half>(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T* const elements = dtypes::mutable_data<T>(out);
    const auto copy = [&](auto index) {
      using Index = typename decltype(index)::type;
      const auto view = strided::view<const T, Index>(argument);
      for (Index i = 0; i < Index(x.numel()); ++i) elements[i] = view[i];
    };
    if (mode == "wide") return copy(dtypes::Type<int64_t>());
    strided::visit_index({argument, {"glue", "out", out}}, copy);
  });
  return out;
"""

# Writes C++ values as Python literals.
SHOW = r"""
#include <cstdio>
#include <cstring>

namespace {

template <typename T>
std::string show(const std::optional<T>& value);
template <typename T>
std::string show(const std::vector<T>& values);

std::string show(bool value) { return value ? "True" : "False"; }
std::string show(int64_t value) { return std::to_string(value); }
std::string show(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17e", value);
  return text;
}
std::string show(const std::string& value) {
  std::string text = "b'";
  char code[5];
  for (const unsigned char c : value) text += (std::snprintf(code, sizeof code, "\\x%02x", c), code);
  return text + "'";
}
std::string show(torch::headeronly::ScalarType value) { return std::to_string(int(value)); }
std::string show(torch::headeronly::Layout value) { return std::to_string(int(value)); }
std::string show(torch::headeronly::MemoryFormat value) { return std::to_string(int(value)); }
std::string show(torch::stable::Device value) {
  return "(" + std::to_string(int(value.type())) + ", " + std::to_string(value.index()) + ")";
}
std::string show(const Tensor& value) {
  const double* data = static_cast<const double*>(value.const_data_ptr());
  return show(std::vector<double>(data, data + value.numel()));
}
template <typename T>
std::string show(const std::optional<T>& value) {
  return value ? show(*value) : "None";
}
template <typename T>
std::string show(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) text += show(value) + ", ";
  return text + "]";
}

template <typename... Values>
Tensor shown(const Tensor& like, const Values&... values) {
  const std::string text = "[" + ((show(values) + ", ") + ...) + "]";
  const Tensor result = torch::stable::new_empty(like, {int64_t(text.size())}, torch::headeronly::ScalarType::Byte);
  std::memcpy(result.mutable_data_ptr(), text.data(), text.size());
  return result;
}

}  // namespace
"""


def values(base: str) -> list[Any]:
    """Three values of a type that are easily told apart, extreme ones among them."""
    import torch

    return {
        "Tensor": [torch.tensor([1.5, -2.0], dtype=torch.float64), torch.zeros(0).double(), torch.ones(1).double()],
        "int": [2**63 - 1, -(2**63), 0],
        "SymInt": [2**63 - 1, -(2**61), 7],
        "float": [0.1, -1e300, 3.0],
        "bool": [True, False, True],
        "str": ["", 'ä "quoted"\0\n', "x" * 100],
        "ScalarType": [torch.float32, torch.bfloat16, torch.bool],
        "Layout": [torch.strided, torch.sparse_coo, torch.sparse_csr],
        "MemoryFormat": [torch.contiguous_format, torch.preserve_format, torch.channels_last],
        "Device": [torch.device("cpu"), torch.device("cuda", 3), torch.device("meta")],
    }[base]


def value_of(base: str, form: str, full: bool) -> Any:
    """A value for a form of a type; unless `full`, None or an empty list where the form allows that."""
    first, second, third = values(base)
    if not full and form.endswith("?"):
        return None
    return {
        "{}": first if full else third,
        "{}?": second,
        "{}[]": [first, second, third] if full else [],
        "{}?[]": [first, None, third] if full else [None],
        "{}[]?": [third, second],
        "{}?[]?": [None, second],
        "{}[2]": [first, second] if full else [second, first],
        "{}[2]?": [third, first],
    }[form]


def as_seen(value: Any) -> Any:
    """A value as the C++ above writes it."""
    import torch

    codes = {torch.float32: 6, torch.bfloat16: 15, torch.bool: 11}
    codes |= {torch.strided: 0, torch.sparse_coo: 1, torch.sparse_csr: 2}
    codes |= {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}
    if isinstance(value, list):
        return [as_seen(item) for item in value]
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, torch.device):
        return {"cpu": 0, "cuda": 1, "meta": 14}[value.type], -1 if value.index is None else value.index
    return value.encode() if isinstance(value, str) else codes.get(value, value)


def arguments(table: list[tuple[str, str, str]], full: bool) -> dict[str, Any]:
    return {name: value_of(base, form, full) for name, base, form in table}


@pytest.fixture(scope="session")
def package(made_once) -> ModuleType:
    """An imported project of ops whose C++ writes its arguments as text, or returns them."""

    def make(folder: Path) -> None:
        ops = [blank(name, schema) for name, schema in sorted(SCHEMAS.items())]
        project = stamp(folder / "types-kernels", project_name="types-kernels", ops=ops)
        for name, schema in SCHEMAS.items():
            names = ", ".join(argument["cpp"] for argument in parse(schema).entry()["arguments"])
            first, _, rest = names.partition(", ")
            body = f"return {{{rest}}};" if name == "returned" else f"return shown({first}, {names});"
            folder = project / "src" / "types_kernels" / "ops" / name
            write_cpu(folder, GLUE if name == "glue" else body, SHOW)
        edit(
            folder.parent / "glue" / "cpu.cpp", ('#include "dtypes.h"\n', '#include "dtypes.h"\n#include "strided.h"\n')
        )
        result = build(project, USE_CUDA="0", **quickly())
        assert result.returncode == 0, result.stdout + result.stderr

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(made_once("types", make) / "types-kernels" / "src")
        return importlib.import_module("types_kernels")


def check_seen(output: Any, values: dict[str, Any]) -> None:
    values_in_cpp = dict(zip(values, ast.literal_eval(bytes(output.tolist()).decode()), strict=True))
    # Literals are compared, since True == 1 == 1.0.
    assert {name: repr(value) for name, value in values_in_cpp.items()} == {
        n: repr(as_seen(v)) for n, v in values.items()
    }


@pytest.mark.parametrize("full", [True, False], ids=["values", "nothing"])
@pytest.mark.parametrize("op, table", [("received", ARGUMENTS), ("sized", SIZED)], ids=["received", "sized"])
def test_cpp_sees_what_python_gives(package, op, table, full):
    import torch

    arguments_by_name = {"x": torch.ones(1).double(), **arguments(table, full)}
    check_seen(getattr(package, op)(*arguments_by_name.values()), arguments_by_name)
    check_seen(getattr(package, op)(**arguments_by_name), arguments_by_name)


@pytest.mark.parametrize("full", [True, False], ids=["values", "nothing"])
def test_python_gets_what_cpp_returns(package, full):
    import torch

    arguments_by_name = arguments(RETURNS, full)
    returned = package.returned(torch.ones(1), *arguments_by_name.values())
    assert isinstance(returned, tuple)
    results = dict(zip(arguments_by_name, returned, strict=True))
    assert {name: repr(value) for name, value in results.items()} == {
        name: repr(value) for name, value in arguments_by_name.items()
    }


def test_names_that_are_keywords_in_python_or_cpp(package):
    import torch

    x, y = torch.tensor([1.0]).double(), torch.tensor([2.0]).double()
    output = package.keywords(x, template=y, xor=3, double=0.5)
    check_seen(output, {"self": x, "template": y, "xor": 3, "double": 0.5, "await": 1, "torch": None})
    output = package.keywords(self=x, template=y, xor=3, double=0.5, await_=4, torch_="t")
    check_seen(output, {"self": x, "template": y, "xor": 3, "double": 0.5, "await": 4, "torch": "t"})


def test_one_number_stands_for_a_list_of_a_given_length(package):
    import torch

    arguments_by_name = {"x": torch.ones(1).double(), **arguments(SIZED, full=True)}
    expected = {**arguments_by_name, "int0": [5, 5], "float0": [5.0, 5.0]}
    check_seen(package.sized(**{**arguments_by_name, "int0": 5, "float0": 5.0}), expected)


@pytest.mark.parametrize("name", [name for name, _, _ in SIZED])
def test_a_list_of_another_length_is_refused_by_name(package, name):
    import torch

    arguments_by_name = {"x": torch.ones(1).double(), **arguments(SIZED, full=True)}
    arguments_by_name[name] = arguments_by_name[name][:1] * 3
    with pytest.raises(RuntimeError, match=f"sized: {name} has 3 values; it takes 2"):
        package.sized(**arguments_by_name)


def test_as_many_arguments_as_pytorch_has_room_for():
    import torch

    def schema(count):
        return f"({', '.join(f'Tensor a{i}' for i in range(count))}) -> Tensor"

    assert len(parse(schema(64)).arguments) == 64
    with pytest.raises(SchemaError, match="at most 64 arguments"):
        parse(schema(65))
    library = torch.library.Library("types_kernels_limit", "FRAGMENT")
    library.define(f"most{schema(64)}")
    with pytest.raises(RuntimeError, match="65 arguments"):
        library.define(f"more{schema(65)}")


# ---- The vocabulary of the glue -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["narrow", "wide"])
@pytest.mark.parametrize("sizes", [(), (0, 3), (5,), (3, 5), (2, 3, 4, 2, 3), (2, 1, 3, 1, 4, 2, 3)], ids=str)
def test_a_strided_view_goes_over_a_tensor_where_it_lies(package, sizes, mode):
    import torch

    order = list(reversed(range(len(sizes))))
    x = torch.randn(*(sizes[d] for d in order), 2)[..., 0].permute(order)
    for dtype in (torch.float32, torch.int32, torch.bool, torch.float16):
        values = (4 * x).to(dtype)
        assert torch.equal(package.glue(values, torch.tensor(1.0), 0.25, mode), values.flatten())


def test_a_view_has_five_dimensions_that_lie_apart_and_those_that_lie_together_are_one(package):
    import torch

    scale = torch.tensor(1.0)
    apart = torch.randn(2, 2, 2, 2, 2, 2).permute(5, 4, 3, 2, 1, 0)
    with pytest.raises(RuntimeError, match="glue: x has 6 dimensions, of which more than 5 lie apart; it takes"):
        package.glue(apart, scale, 0.25, "narrow")
    together = torch.randn(2, 2, 2, 2, 2, 2, 2)
    assert torch.equal(package.glue(together, scale, 0.25, "narrow"), together.flatten())
    assert torch.equal(package.glue(together.mT, scale, 0.25, "narrow"), together.mT.flatten())
    broadcast = torch.randn(3, 1).expand(2, 3, 4)
    assert torch.equal(package.glue(broadcast, scale, 0.25, "narrow"), broadcast.flatten())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": "torch.ones(2).double()"}, "no kernel for dtype Double"),
        ({"scale": "torch.ones(1)"}, r"scale has shape \(1,\); it takes a tensor without dimensions"),
        ({"eps": "0.0"}, "eps is 0; it takes a number above 0"),
        ({"eps": "float('nan')"}, "eps is -?nan; it takes a number above 0"),
        ({"eps": "float('inf')"}, "eps is inf; it takes a finite number"),
        ({"eps": "0.75"}, "eps is 0.75; it takes a number from 1e-09 to 0.5"),
        ({"mode": "'thin'"}, 'mode is "thin"; it takes narrow, wide'),
    ],
    ids=str,
)
def test_numbers_words_and_scalars_are_refused_by_name(package, changed, message):
    import torch

    arguments = {"x": "torch.ones(2)", "scale": "torch.tensor(1.0)", "eps": "0.25", "mode": "'narrow'", **changed}
    with pytest.raises(RuntimeError, match=message):
        package.glue(*(eval(source, {"torch": torch}) for source in arguments.values()))
