"""The language of shapes: what it takes, how it is spelled, and what it refuses, with a caret at the place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgen.scaffold.schema.parser import parse as parse_schema
from kernelgen.scaffold.shapes.binding import steps
from kernelgen.scaffold.shapes.expressions import InexactError, Size, named, number, operation
from kernelgen.scaffold.shapes.parser import Shapes, ShapesError, parse

ROTARY = "(Tensor q, Tensor cos, Tensor sin) -> Tensor"
GATE = "(Tensor scores, Tensor? bias, SymInt k, float scale=1.0) -> (Tensor, Tensor)"


def shapes(text: str, schema: str) -> Shapes:
    return parse(text, parse_schema(schema))


@pytest.mark.parametrize(
    ("text", "schema", "canonical"),
    [
        ("q: B S H D; cos, sin: S D/2 -> B S H D", ROTARY, None),
        ("q:B S H D;cos,sin:S D / 2 float32->B S H D", ROTARY, "q: B S H D; cos, sin: S D/2 float32 -> B S H D"),
        (
            "q: B S H D; cos, sin: S D/2; cos, sin: float32; -> B S H D",
            ROTARY,
            "q: B S H D; cos, sin: S D/2 float32 -> B S H D",
        ),
        ("q, cos, sin: ... -> ... bool", ROTARY, None),
        (
            "q: ... 2*D; cos: D; sin: (H D) -> ... D+1",
            "(Tensor q, Tensor cos, Tensor sin, int H) -> Tensor",
            "q: ... 2*D; cos: D; sin: H*D -> ... D+1",
        ),
        ("scores: T E; bias: E; E >= k -> T k, T k int32", GATE, None),
        ("scores: T E; bias: E -> weights: T k; experts: T k int32", GATE, None),
        ("x: () -> ()", "(Tensor x) -> Tensor", None),
        ("x: N int -> N int", "(Tensor x) -> Tensor", None),
        ("ids: B int64 < V; table: V D -> B D", "(Tensor ids, Tensor table) -> Tensor", None),
        ("x: N -> (N+31)//32 uint8", "(Tensor x) -> Tensor", None),
        ("total, x: ...", "(Tensor(a!) total, Tensor x) -> ()", None),
        ("xs, x: N D -> N D", "(Tensor[] xs, Tensor x) -> Tensor", None),
    ],
)  # fmt: skip
def test_shapes_have_one_spelling(text, schema, canonical):
    spelled = shapes(text, schema)
    assert spelled.text == (canonical or text)
    assert parse(spelled.text, spelled.schema).text == spelled.text


def test_results_are_named_by_the_shapes():
    named_results = shapes("scores: T E; bias: E -> weights: T k; experts: T k int32", GATE)
    assert named_results.schema.text == GATE.replace("(Tensor, Tensor)", "(Tensor weights, Tensor experts)")


@pytest.mark.parametrize(
    ("text", "schema", "sentence", "place"),
    [
        ("q: B S; cos: S -> B", ROTARY, "sin has no shape; write one, such as `sin: ... D`.", None),
        ("q: B; coss: B -> B", ROTARY, "There is no argument coss; did you mean cos?", "coss"),
        ("q: B; q: B -> B", ROTARY, "q has two shapes.", "q: B ->"),
        ("q: B @ -> B", ROTARY, "Shapes cannot hold the character '@'.", "@"),
        ("q: B ... -> B", ROTARY, "'...' stands for leading dimensions, before all others and once.", "..."),
        ("q, cos, sin: B*D -> B", ROTARY, "B is not known: let it be a dimension by itself", "B*D"),
        ("q, cos, sin: B -> B D", ROTARY, "D is not known: let it be a dimension by itself", "D"),
        ("q, cos, sin: B (B*2)/2 -> B", ROTARY, "Divide a single size, as in H*(D/2)", "/2"),
        ("q, cos, sin: B B/0 -> B", ROTARY, "Nothing is divided by 0.", "0 ->"),
        ("q, cos, sin: B -> B, B", ROTARY, "The op returns 1, not 2 tensors.", "B", ),
        ("q, cos, sin: B", ROTARY, "The op returns 1, not 0 tensors.", None),
        ("q, cos, sin: q -> B", ROTARY, "q is a tensor; give the size another name.", "q ->"),
        ("q, cos, sin: for -> B", ROTARY, "A size cannot be called for", "for"),
        ("q, cos, sin: B int32 -> B", ROTARY, "No argument is of dtype float, so the result needs a dtype", "B"),
        ("q, cos, sin: B -> B int", ROTARY, "No argument is of dtype int, so which one the result", "B int"),
        ("scores: T E; bias: E X -> T k, T k int32", GATE, "X is not known", "X"),
        ("scores: T scale; bias: T -> T, T", GATE, "scale is a float; only an int argument can be a size.", "scale"),
        ("scale: T -> T, T", GATE, "scale is no tensor, and has no shape.", "scale"),
        ("scores: T E; bias: T; Z >= k -> T k, T k int32", GATE, "Z is the size of no dimension.", None),
        ("q, cos, sin: B D -> B;;", ROTARY, "Expected sizes, '...', '()' or a dtype, not ;.", ";"),
        ("q, cos, sin: 99999999999 -> B", ROTARY, "A size is at most 2,147,483,647.", "99999999999"),
        ("q, cos, sin: B float16 -> B", ROTARY, "No argument is of dtype float, so the result needs a dtype", "B"),
        ("x: N -> N", "(Tensor x) -> int", "Shapes describe ops whose results are tensors", None),
        ("x: N; y: N -> ... N", "(Tensor x, Tensor y) -> Tensor", "'...' has to stand in the shape", None),
    ],
)  # fmt: skip
def test_a_refusal_points_at_the_place(text, schema, sentence, place):
    with pytest.raises(ShapesError) as refused:
        steps(shapes(text, schema))
    assert refused.value.sentence.startswith(sentence)
    if place is not None:
        assert text[refused.value.offset :].startswith(place) or place in text[refused.value.offset - 1 :]
    line, caret = str(refused.value).split("\n")[1:]
    assert line == f"  {text}"
    assert caret.index("^") == refused.value.offset + 2


# ---- Sizes

NAMES = ("A", "B", "C")


@st.composite
def sizes(draw, depth: int = 3) -> Size:
    if depth == 0 or draw(st.booleans()):
        return named(draw(st.sampled_from(NAMES))) if draw(st.booleans()) else number(draw(st.integers(1, 9)))
    symbol = draw(st.sampled_from(("+", "-", "*", "//")))
    left = draw(sizes(depth - 1))
    right = number(draw(st.integers(1, 9))) if symbol == "//" else draw(sizes(depth - 1))
    return operation(symbol, left, right)


@given(sizes(), st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES}))
def test_a_size_is_the_same_number_in_every_language(size, values):
    expected = size.evaluate(values)
    assert eval(size.python(), {}, values) == expected
    parameters = ", ".join(f"int {name}" for name in NAMES)
    read = shapes(f"x: A B C {size} -> A", f"(Tensor x, {parameters}) -> Tensor").arguments["x"].dims[-1]
    assert read.evaluate(values) == expected
    if "-" not in str(size):  # Of negative numbers, C++ rounds a quotient towards 0.
        assert eval(size.cpp(str).replace("/", "//"), {}, values) == expected


@given(sizes(), st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES}))
def test_a_size_that_is_solved_for_a_name_gives_it_back(size, values):
    for name in {*size.names}:
        solution = size.solved_for(name, named("R"))
        if solution is None:
            continue
        try:
            assert solution.evaluate(values | {"R": size.evaluate(values)}) == values[name]
        except InexactError:
            pytest.fail("an inverse divides by 0")
