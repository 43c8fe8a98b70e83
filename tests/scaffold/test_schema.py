"""Schemas: PyTorch's own parser is the oracle for what is accepted and what it means."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgen.scaffold.schema import SchemaError, parse
from kernelgen.scaffold.schema_defaults import DTYPES
from kernelgen.scaffold.schema_tokens import quote, unquote
from kernelgen.scaffold.schema_types import BASES

torch = pytest.importorskip("torch")


def oracle(text: str):
    return torch._C.parse_schema("ns::op" + text)


def meaning(text: str) -> tuple:
    """All that PyTorch's parser makes of a schema; a fresh alias set (`Tensor!`) has no name of its own."""
    schema = oracle(text)

    def argument(a) -> tuple:
        alias = (a.alias_info.is_write, bool(a.alias_info)) if a.alias_info else None
        default = (type(a.default_value).__name__, repr(a.default_value)) if a.has_default_value() else None
        return (a.name, str(a.real_type), a.N, a.kwarg_only, default, alias)

    return [argument(a) for a in schema.arguments], [argument(r) for r in schema.returns]


# What is written, and the canonical spelling.
ACCEPTED = {
    "(Tensor x, Tensor? bias, float eps=1e-6) -> Tensor": None,
    "() -> ()": None,
    "()->Tensor": "() -> Tensor",
    "( Tensor  x )  ->  ( Tensor  y )": "(Tensor x) -> Tensor y",
    "(Tensor x) -> (Tensor y, Tensor rstd)": None,
    "(Tensor x) -> Tensor y": None,
    "(Tensor x) -> Tensor[]": None,
    "(Tensor x) -> (int, SymInt, float, bool, str, Device, Tensor?)": None,
    "(Tensor! x) -> ()": "(Tensor(a!) x) -> ()",
    "(Tensor(a!) x, Tensor! y) -> ()": "(Tensor(a!) x, Tensor(b!) y) -> ()",
    "(Tensor(a0!) x) -> Tensor": None,
    "(Tensor(a!)? x, Tensor(b!)[] y, Tensor(c!)?[] z) -> ()": None,
    "(Tensor[](a!) x, Tensor![2] y) -> ()": "(Tensor(a!)[] x, Tensor(b!)[2] y) -> ()",
    "(Tensor?[] x, Tensor[]? y, Tensor?[]? z) -> ()": None,
    "(int?? x, int??[] y, int []?? z) -> ()": "(int? x, int?[] y, int[]? z) -> ()",
    "(int x, *) -> ()": "(int x) -> ()",
    "(*, int x=1, *, int y) -> ()": "(*, int x=1, int y) -> ()",
    "(int x=1, *, int y) -> ()": None,
    "(int a=- 1, int b=007, int c=Mean) -> ()": "(int a=-1, int b=7, int c=1) -> ()",
    "(int x=-9223372036854775808) -> ()": None,
    "(float a=1, float b=.5, float c=-1.E-5, float d=1.) -> ()": None,
    "(float? x=1, float? y=None) -> ()": "(float? x=1.0, float? y=None) -> ()",
    "(bool x=True, bool? y=None) -> ()": None,
    "(int[] x=[], float[] y=[1, -2.5], bool[] z=[True,False]) -> ()": "(int[] x=[], float[] y=[1, -2.5], "
    "bool[] z=[True, False]) -> ()",
    "(int[2] x=1, bool[3] y=False, SymInt[1] z=[4], int[2] w=[]) -> ()": None,
    "(int[]? x=None, str[]? y=None) -> ()": None,
    "(str x='a', str y=\"it's\", str z='say \"hi\"') -> ()": '(str x="a", str y="it\'s", str z="say \\"hi\\"") -> ()',
    '(str x="a\\nb\\101\\\\") -> ()': '(str x="a\\nbA\\\\") -> ()',
    '(str x="""é""") -> ()': '(str x="é") -> ()',
    "(ScalarType x=float, ScalarType? y=long, ScalarType z=15) -> ()": "(ScalarType x=float32, "
    "ScalarType? y=int64, ScalarType z=bfloat16) -> ()",
    "(ScalarType[] x=[half, 6], Layout[2] y=0) -> ()": "(ScalarType[] x=[float16, float32], "
    "Layout[2] y=[strided, strided]) -> ()",
    "(Layout x=strided, MemoryFormat y=contiguous_format, MemoryFormat? z=2) -> ()": None,
    "(Device x='cuda:1', Device? y=None) -> ()": '(Device x="cuda:1", Device? y=None) -> ()',
    "(Tensor self, Tensor lambda, int from, int _x, int float) -> ()": None,
    "(Tensor x, # the input\n int \\\n n) -> ()": "(Tensor x, int n) -> ()",
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepts_what_pytorch_accepts(text: str):
    canonical = parse(text).text
    assert canonical == (ACCEPTED[text] or text)
    assert parse(canonical).text == canonical
    if "float? x=1," in text:  # PyTorch keeps the integer, which fails when it is used
        assert oracle(canonical).arguments[0].default_value == 1.0
    else:
        assert meaning(canonical) == meaning(text)


def test_named_defaults_that_pytorch_knows_by_number_only():
    schema = parse("(MemoryFormat m=channels_last, Layout l=sparse_coo, ScalarType[2] d=half) -> ()")
    assert schema.text == "(MemoryFormat m=2, Layout l=1, ScalarType[2] d=[float16, float16]) -> ()"
    assert [a["default"] for a in schema.entry()["arguments"]] == [
        "torch.channels_last",
        "torch.sparse_coo",
        "(torch.float16, torch.float16)",
    ]


def test_dtypes_are_pytorchs_own_numbers():
    for number, name in DTYPES.items():
        assert oracle(f"(ScalarType x={name}) -> ()").arguments[0].default_value == number
        assert str(getattr(torch, name)) == f"torch.{name}"


# --- random schemas ---------------------------------------------------------------------------------------


_names = st.from_regex(r"[a-z][a-z0-9]{0,3}(_[a-z])?", fullmatch=True).filter(lambda n: not _is_word(n))
_spaces = st.sampled_from(["", "", " ", "\t", "\n  "])
_integers = st.integers(-(2**63), 2**63 - 1).map(str)
_floats = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False).map(repr) | st.sampled_from(
    ["1", "-2", ".5", "-3.", "1E5", "01.5"]
)
_literals = {
    "int": _integers,
    "SymInt": _integers,
    "float": _floats,
    "bool": st.sampled_from(["True", "False"]),
    "str": st.text(max_size=6).filter(lambda s: s.isprintable()).map(quote),
    "ScalarType": st.sampled_from([*DTYPES.values(), "float", "long", "half"]),
    "Layout": st.sampled_from(["strided", "0", "7"]),
    "MemoryFormat": st.sampled_from(["contiguous_format", "1", "3"]),
    "Device": st.sampled_from(['"cpu"', "'cuda'", '"cuda:3"', '"meta"']),
}


def _is_word(name: str) -> bool:
    try:
        oracle(f"(int {name}) -> ()")
        return name in ("torch", "lambda", "from", "async", "await", "try", "except", "finally", "yield")
    except RuntimeError:
        return True


@st.composite
def _argument(draw, name: str, alias: str, must_default: bool, mutable: bool) -> str:
    base = draw(st.sampled_from(list(BASES)))
    optional = draw(st.booleans())
    shape = draw(st.sampled_from(["", "", "[]", "[2]", "[]?", "[2]?"]))
    literal = _literals.get(base)
    takes_none = shape.endswith("?") or (optional and not shape)
    default = ""
    if takes_none and draw(st.booleans()):
        default = "None"
    elif literal is not None and not shape and not (base == "Device" and optional):
        default = draw(literal)
        if base == "float" and optional and not set(default) & set(".eE"):
            default += ".0"
    elif literal is not None and shape in ("[]", "[2]") and not optional and base not in ("str", "Device"):
        count = 2 if shape == "[2]" else draw(st.integers(0, 3))
        default = f"[{draw(_spaces)}{', '.join(draw(literal) for _ in range(count))}]"
    if must_default and not default:
        shape, base, optional, default = "", "int", True, "None"
    elif not must_default and draw(st.booleans()):
        default = ""
    mark = ""
    if base == "Tensor" and mutable:
        mark = draw(st.sampled_from(["", f"({alias}!)", f"( {alias} ! )"]))
    space = draw(_spaces)
    return f"{base}{mark}{'?' * optional}{space}{shape} {name}{space}" + (f"={space}{default}" if default else "")


@st.composite
def schemas(draw) -> str:
    names = draw(st.lists(_names, max_size=5, unique=True))
    star = draw(st.integers(0, 8))
    words, must_default, mutable = [], False, draw(st.booleans())
    for i, name in enumerate(names):
        if i == star:
            words.append("*")
        word = draw(_argument(name, f"a{i}", must_default and i < star, mutable))
        must_default = must_default or "=" in word
        words.append(word)
    results = st.just("Tensor")
    if not mutable:
        results = st.sampled_from(
            ["Tensor", "Tensor[]", "Tensor?", "int", "SymInt[]", "float", "bool", "str?", "int[2]"]
        )
    returns = draw(st.lists(results, max_size=3))
    if draw(st.booleans()):
        returns = [f"{r} r{i}" for i, r in enumerate(returns)]
    separator = "," + draw(_spaces)
    return f"({separator.join(words)}) -> ({separator.join(returns)})"


@settings(max_examples=150, deadline=None)
@given(schemas())
def test_the_canonical_spelling_means_the_same(text: str):
    schema = parse(text)
    assert meaning(schema.text) == meaning(text)
    assert parse(schema.text) == schema
    entry = schema.entry()
    for argument in entry["arguments"]:
        if argument["default"] is not None:
            eval(argument["default"], {"torch": torch})
    compile(_signature(entry), "<signature>", "exec")


def _signature(entry: dict) -> str:
    words = []
    for argument in entry["arguments"]:
        if argument["keyword_only"] and "*" not in words:
            words.append("*")
        default = "" if argument["default"] is None else f" = {argument['default']}"
        words.append(f"{argument['python']}: {argument['annotation']}{default}")
    return f"def op({', '.join(words)}) -> {entry['python_return']}: ..."


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=12).filter(lambda s: not any(0xD800 <= ord(c) < 0xE000 for c in s)))
def test_strings_survive_quoting(value: str):
    assert unquote(quote(value)) == value
    assert oracle(f"(str x={quote(value)}) -> ()").arguments[0].default_value == value


# --- what is refused --------------------------------------------------------------------------------------

# The schema with the caret under it, and a piece of the sentence.
REFUSED = [
    (
        "(Tensor x, Scalar p) -> Tensor",
        "           ^",
        "Scalar is not carried by PyTorch's stable ABI; use float",
    ),
    ("(Generator? g) -> Tensor", " ^", "pass an int seed"),
    ("(complex z) -> Tensor", " ^", "two floats"),
    ("(Dict(str, int) d) -> Tensor", " ^", "pass each entry"),
    ("(Stream s) -> ()", " ^", "for the glue asks PyTorch"),
    ("(Storage s) -> ()", " ^", "pass a Tensor"),
    ("(QScheme q) -> ()", " ^", "an int or a str"),
    ("(Any a) -> ()", " ^", "give it a type"),
    ("((int, int) x) -> ()", " ^", "A tuple is no type here"),
    ("(double x) -> ()", " ^", "write float, which is a C++ double"),
    ("(Tensro x) -> ()", " ^", "did you mean Tensor?"),
    ("(int x, ...) -> ()", "        ^", "a fixed number of values"),
    ("(int x) -> None", "           ^", "write ()"),
    ("(int x) -> ((Tensor))", "            ^", "A tuple is no type here"),
    ("(int[][] x) -> ()", "      ^", "list of lists"),
    ("(int[0] x) -> ()", "     ^", "whole number from 1"),
    ("(int[2.5] x) -> ()", "     ^", "whole number from 1"),
    ("op(int x) -> ()", "^", "without the operator's name"),
    ("(int x)", "       ^", "'->' and what the operator returns, not the end"),
    ("(int x,) -> ()", "       ^", "should be a type, not )"),
    ("(int) -> ()", "    ^", "the argument's name, not )"),
    ("(int x) -> int;", "              ^", "cannot hold the character ';'"),
    ("(int x) -> int y z", "                 ^", "the end of the schema"),
    ("(int é) -> ()", "     ^", "cannot hold the character 'é'"),
    ('(str x="a) -> ()', "       ^", "not closed"),
    # names
    ("(int x, int x) -> ()", "            ^", "Two arguments are named x"),
    ("(int x) -> (int y, int y)", "                       ^", "Two results are named y"),
    ("(int class) -> ()", "     ^", "a word of PyTorch's schema language"),
    ("(int __x) -> ()", "     ^", "C++ keeps the name __x"),
    ("(int a__b) -> ()", "     ^", "C++ keeps the name a__b"),
    ("(int _X) -> ()", "     ^", "C++ keeps the name _X"),
    ("(*, int lambda) -> ()", "        ^", "Python keeps lambda from a keyword-only argument"),
    ("(int x=1, int y) -> ()", "              ^", "y needs a default"),
    # aliases: opcheck refuses the operator, or it mutates what it does not say
    ("(Tensor(a!) x) -> Tensor(a!)", "                  ^", "A result cannot be an argument"),
    ("(Tensor(a) x) -> Tensor", "       ^", "The one alias here is Tensor(a!)"),
    ("(Tensor(a! -> a|b) x) -> ()", "       ^", "The one alias here is Tensor(a!)"),
    ("(Tensor(*) x) -> ()", "       ^", "The one alias here is Tensor(a!)"),
    ("(Tensor(a!)[](b) x) -> ()", "             ^", "The one alias here is Tensor(a!)"),
    ("(Tensor(a!) x, Tensor(a!) y) -> ()", "               ^", "share the alias a"),
    ("(int! x) -> ()", "    ^", "Only a Tensor can be mutated"),
    ("(Tensor! x) -> int", "               ^", "returns plain Tensors or ()"),
    ("(Tensor! x) -> (Tensor, Tensor[])", "                        ^", "returns plain Tensors or ()"),
    # results
    ("(Tensor x) -> ScalarType", "              ^", "reaches Python as an integer"),
    ("(Tensor x) -> (int, bool[])", "                    ^", "cannot return a list of bool"),
    # defaults that PyTorch takes and that fail, or are another value, when they are used
    ("(int x=1.5) -> ()", "       ^", "1.5 does not fit the type int"),
    ("(int x=1e3) -> ()", "       ^", "does not fit the type int"),
    ("(int x=0x10) -> ()", "       ^", "write it in decimal"),
    ("(int x=True) -> ()", "       ^", "does not fit the type int"),
    ("(int x=None) -> ()", "       ^", "make it optional"),
    ("(bool x=1) -> ()", "        ^", "does not fit the type bool"),
    ("(float x=True) -> ()", "         ^", "does not fit the type float"),
    ("(float x=1j) -> ()", "         ^", "pass two floats"),
    ("(str x=None) -> ()", "       ^", "make it optional"),
    ("(Tensor x=None) -> ()", "          ^", "only for optional ones"),
    ("(int[2]? x=1) -> ()", "           ^", "no default but None for int[2]?"),
    ('(Device? x="cpu") -> ()', "           ^", "as a string and fails"),
    ('(Device x="cuda:128") -> ()', "          ^", "no device the stable ABI knows"),
    ("(int[2] x=[1, 2, 3]) -> ()", "          ^", "takes 2 values by default, not 3"),
    # defaults that PyTorch refuses too
    ("(float x=inf) -> ()", "         ^", "take float? with default None"),
    ("(float x=-nan) -> ()", "         ^", "take float? with default None"),
    ("(float x=1e400) -> ()", "         ^", "out of the range of a double"),
    ("(float x=1e-310) -> ()", "         ^", "out of the range of a double"),
    ("(int x=9223372036854775808) -> ()", "       ^", "does not fit in 64 bits"),
    ("(int[] x=1) -> ()", "         ^", "is a list, such as []"),
    ("(str[] x=[]) -> ()", "         ^", "no default for str[]"),
    ("(Tensor[] x=[]) -> ()", "            ^", "only for optional ones"),
    ('(str x="\\x41") -> ()', "       ^", "does not know the escape \\x"),
    ("(ScalarType x=flaot32) -> ()", "              ^", "did you mean float32?"),
    ("(ScalarType x=qint8) -> ()", "              ^", "no dtype the stable ABI knows"),
]


@pytest.mark.parametrize(("text", "caret", "sentence"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_refuses_with_a_sentence_and_a_caret(text: str, caret: str, sentence: str):
    with pytest.raises(SchemaError) as caught:
        parse(text)
    first, line, under = str(caught.value).split("\n")
    assert (line, under) == ("  " + text, "  " + caret)
    assert sentence in first
    assert first[-1] in ".?"
    assert caught.value.exit_code == 2


def test_a_long_schema_shows_the_line_at_fault():
    with pytest.raises(SchemaError) as caught:
        parse("(Tensor x,\n\tScalar p) -> Tensor")
    assert str(caught.value).endswith("\n  \tScalar p) -> Tensor\n  \t^")


@settings(max_examples=150, deadline=None)
@given(schemas(), st.data())
def test_a_damaged_schema_is_refused_or_still_means_the_same(text: str, data):
    at = data.draw(st.integers(0, max(0, len(text) - 1)))
    damaged = text[:at] + data.draw(st.sampled_from(["", "?", "!", ")", "[", " ", "1", "x", "="])) + text[at + 1 :]
    try:
        canonical = parse(damaged).text
    except SchemaError:
        return
    assert parse(canonical).text == canonical
    oracle(canonical)


# --- what templates get -----------------------------------------------------------------------------------


def test_entry_holds_plain_data():
    schema = parse("(Tensor x, Tensor? bias, int[2] pad=0, *, float eps=1e-6) -> (Tensor y, Tensor)")
    entry = schema.entry()
    assert {k: v for k, v in entry.items() if k not in ("arguments", "returns")} == {
        "text": schema.text,
        "functional": True,
        "dispatches": True,
        "cpp_return": "std::tuple<Tensor, Tensor>",
        "python_return": "tuple[Tensor, Tensor]",
    }
    assert entry["arguments"][1] == {
        "name": "bias",
        "python": "bias",
        "cpp": "bias",
        "type": "Tensor?",
        "cpp_type": "const std::optional<Tensor>&",
        "cpp_value": "std::optional<Tensor>",
        "annotation": "Tensor | None",
        "default": None,
        "keyword_only": False,
        "mutated": False,
        "size": None,
        "kind": "optional_tensor",
        "sample": None,
    }
    pad, eps = entry["arguments"][2:]
    assert (pad["default"], pad["size"], pad["annotation"]) == ("(0, 0)", 2, "int | Sequence[int]")
    assert (eps["default"], eps["sample"], eps["keyword_only"], eps["cpp_type"]) == (
        "1e-6",
        "1e-6",
        True,
        "double",
    )
    assert [r["name"] for r in entry["returns"]] == ["y", "out1"]


def test_names_are_made_safe_and_stay_different():
    entry = parse("(Tensor lambda, int and_, int out, int int, Tensor torch, *, int lambda_) -> Tensor").entry()
    assert [a["python"] for a in entry["arguments"]] == [
        "lambda_2",
        "and_",
        "out",
        "int",
        "torch_",
        "lambda_",
    ]
    assert [a["cpp"] for a in entry["arguments"]] == ["lambda", "and_", "out", "int_", "torch_", "lambda_"]
    assert entry["returns"][0]["name"] == "out"
    assert entry["returns"][0]["python"] == entry["returns"][0]["cpp"] == "out_"


def test_kinds():
    entry = parse("(Tensor a, Tensor? b, Tensor[] c, Tensor?[] d, Tensor[]? e, Tensor?[]? f, int g) -> ()").entry()
    assert [a["kind"] for a in entry["arguments"]] == [
        "tensor",
        "optional_tensor",
        "tensor_list",
        "optional_tensor_list",
        "tensor_list_or_none",
        "optional_tensor_list_or_none",
        "other",
    ]
    assert (entry["cpp_return"], entry["python_return"]) == ("void", "None")


@pytest.mark.parametrize(
    ("text", "dispatches"),
    (
        ("(Tensor? x) -> ()", True),
        ("(Tensor[] x) -> ()", True),
        ("(Tensor[]? x) -> ()", False),
        ("(int n) -> ()", False),
    ),
)
def test_what_picks_the_device(text: str, dispatches: bool):
    assert parse(text).dispatches is dispatches


# --- the C++ types, compiled and called -------------------------------------------------------------------

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
            returned = base not in ("ScalarType", "Layout", "MemoryFormat") and not (base == "bool" and "bool[" in type)
            cases.append((f"{type} x", [v.replace("v", value) for v in values], returned))
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
            source.append(f"{entry['cpp_value']} f{i}({entry['cpp_type']} x) {{ return x; }}")
            names[f"f{i}"] = parse(f"({argument}) -> {argument.split(' ')[0].replace('[2]', '[]')}")
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
    "some": "(Tensor(a!)?[] x) -> Tensor",
    "pair": "(Tensor! x) -> (Tensor, Tensor)",
}
_MUTATING_BODY = {
    "one": "torch::stable::zero_(x);",
    "maybe": "if (x) torch::stable::zero_(*x);",
    "many": "for (auto& t : x) torch::stable::zero_(t);",
    "some": "for (auto& t : x) if (t) torch::stable::zero_(*t); return torch::stable::empty_like(*x[0]);",
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
    result = getattr(getattr(torch.ops, library), name)([x] if name in ("many", "some") else x)
    assert not x.any()
    if name == "pair":
        _assert_equal(result, (x, x))
