"""Reading schemas: PyTorch's own parser decides what is accepted and what it means."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernelgen.scaffold.schema.defaults import DTYPES
from kernelgen.scaffold.schema.errors import SchemaError
from kernelgen.scaffold.schema.parser import parse
from kernelgen.scaffold.schema.tokens import quote
from kernelgen.scaffold.schema.types import BASES
from tests.scaffold.schema.oracle import meaning, oracle, torch

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
    "(Tensor(a!)? x, Tensor(b!)[] y, Tensor(c!)[]? z) -> ()": None,
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
    if base == "Tensor" and mutable and not (optional and shape):
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
@example(r'(Tensor a, *, str b="\"", str c="\"c\"") -> ()')
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
    ("((int, int) x) -> ()", " ^", "A tuple is not a type"),
    ("(double x) -> ()", " ^", "write float, which is a C++ double"),
    ("(Tensro x) -> ()", " ^", "did you mean Tensor?"),
    ("(int x, ...) -> ()", "        ^", "a fixed number of values"),
    ("(int x) -> None", "           ^", "write ()"),
    ("(int x) -> ((Tensor))", "            ^", "A tuple is not a type"),
    ("(int[][] x) -> ()", "      ^", "list of lists"),
    ("(int[0] x) -> ()", "     ^", "whole number from 1"),
    ("(int[2.5] x) -> ()", "     ^", "whole number from 1"),
    ("op int x) -> ()", "^", "or with the operator's name and its '('"),
    ("aten::op(int x) -> ()", "^", "The namespace is the package's"),
    ("op.default(int x) -> ()", "^", "its overload is not called default"),
    ("my__op(int x) -> ()", "^", "single underscores"),
    ("(int x)", "       ^", "'->' and what the operator returns, not the end"),
    ("(int x,) -> ()", "       ^", "Expected a type, not )"),
    ("(int) -> ()", "    ^", "the argument's name, not )"),
    ("(int x) -> int;", "              ^", "cannot hold the character ';'"),
    ("(int x) -> int y z", "                 ^", "the end of the schema"),
    ("(int é) -> ()", "     ^", "cannot hold the character 'é'"),
    ('(str x="a) -> ()', "       ^", "not closed"),
    # names
    ("(int x, int x) -> ()", "            ^", "Two arguments are named x"),
    ("(int x) -> (int y, int y)", "                       ^", "Two results are named y"),
    ("(int class) -> ()", "     ^", "a word of PyTorch's schema language"),
    ("(int __x) -> ()", "     ^", "C++ reserves the name __x"),
    ("(int a__b) -> ()", "     ^", "C++ reserves the name a__b"),
    ("(int _X) -> ()", "     ^", "C++ reserves the name _X"),
    ("(*, int lambda) -> ()", "        ^", "lambda is reserved in Python"),
    ("(int x=1, int y) -> ()", "              ^", "y needs a default"),
    # aliases: opcheck refuses the operator, or it mutates what it does not say
    ("(Tensor(a!)? x) -> Tensor(a!)", "                   ^", "which is always given, is written to"),
    ("(Tensor(a!) x) -> Tensor(b!)", "                  ^", "which is always given, is written to"),
    ("(Tensor(a!)[] x) -> Tensor(a!)", "                    ^", "which is always given, is written to"),
    ("(Tensor(a!) x) -> Tensor!", "                  ^", "Name the argument that is the result"),
    ("(Tensor(a!)?[] x) -> ()", " ^", "cannot follow writes to a list that holds None"),
    ("(Tensor(a) x) -> Tensor", "       ^", "The only alias taken is Tensor(a!)"),
    ("(Tensor(a! -> a|b) x) -> ()", "       ^", "The only alias taken is Tensor(a!)"),
    ("(Tensor(*) x) -> ()", "       ^", "The only alias taken is Tensor(a!)"),
    ("(Tensor(a!)[](b) x) -> ()", "             ^", "The only alias taken is Tensor(a!)"),
    ("(Tensor(a!) x, Tensor(a!) y) -> ()", "               ^", "share the alias a"),
    ("(int! x) -> ()", "    ^", "Only a Tensor can be mutated"),
    ("(Tensor! x) -> int", "               ^", "returns plain Tensors or ()"),
    ("(Tensor! x) -> (Tensor, Tensor[])", "                        ^", "returns plain Tensors or ()"),
    # results
    ("(Tensor x) -> Tensor?[]", "              ^", "takes no list that holds None"),
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
    position = data.draw(st.integers(0, max(0, len(text) - 1)))
    replacement = data.draw(st.sampled_from(["", "?", "!", ")", "[", " ", "1", "x", "="]))
    damaged = text[:position] + replacement + text[position + 1 :]
    try:
        canonical = parse(damaged).text
    except SchemaError:
        return
    assert parse(canonical).text == canonical
    oracle(canonical)
