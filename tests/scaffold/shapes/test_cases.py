"""Cases that follow from shapes: of sizes that the shapes allow, and as the suite asks for."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgen.scaffold.schema.parser import parse as parse_schema
from kernelgen.scaffold.shapes.cases import LEADING, cases, is_valid, measured, shape_in, sizes_of
from kernelgen.scaffold.shapes.parser import Shapes, ShapesError, parse

SHAPES = (
    ("(Tensor q, Tensor cos, Tensor sin) -> Tensor", "q: B S H D; cos, sin: S D/2 -> B S H D"),
    ("(Tensor scores, Tensor? bias, SymInt k=3) -> (Tensor, Tensor)", "scores: T E; bias: E; E >= k -> T k, T k int32"),
    ("(Tensor x, Tensor w) -> Tensor", "x: ... K; w: N K -> ... N"),
    ("(Tensor x) -> Tensor", "x: ... 2*D -> ... D"),
    ("(Tensor x, int G) -> Tensor", "x: N C -> N C/G"),
    ("(Tensor x) -> Tensor", "x: N/8 D/128 -> N"),
    ("(Tensor x, *, int k=4) -> Tensor", "x: N; N >= k -> k"),
)


def read(schema: str, text: str) -> Shapes:
    return parse(text, parse_schema(schema))


@pytest.mark.parametrize(("schema", "text"), SHAPES)
def test_cases_are_what_the_suite_asks_for(schema, text):
    shapes = read(schema, text)
    drawn = cases(sizes_of(shapes))
    assert all(is_valid(shapes, case) for case in drawn)
    first, second = drawn[:2]
    by_argument = [shape_in(shape, case) for case in drawn for shape in shapes.arguments.values()]
    counts = [math.prod(shape) for shape in by_argument]
    assert 0 in counts or shapes.conditions, "a size that may be 0 is 0 once"
    assert max(counts) >= 10_000
    scalars = sizes_of(shapes).scalars
    for name in set(first) - {LEADING, *scalars}:
        assert first[name] != second[name]
        assert second[name] > 1


@pytest.mark.parametrize(
    ("schema", "text"), [*SHAPES[:4], ("(Tensor x, Tensor t) -> Tensor", "x: ... S 2*H; t: S H -> ... S 2*H")]
)
def test_the_first_two_cases_have_no_two_sizes_that_are_equal_by_chance(schema, text):
    shapes = read(schema, text)
    for case in cases(sizes_of(shapes))[:2]:
        dims = {str(dim): dim.evaluate(case) for shape in shapes.arguments.values() for dim in shape.dims}
        numbers = [*dims.values(), *case.get(LEADING, ())]
        assert len(set(numbers)) == len(numbers)


def test_an_odd_row_and_one_element_are_among_them():
    shapes = read("(Tensor x) -> Tensor", "x: ... D -> ... D")
    tensors = [shape_in(shapes.arguments["x"], case) for case in cases(sizes_of(shapes))]
    assert any(shape and shape[-1] > 16 and shape[-1] % 2 for shape in tensors)
    assert 1 in [math.prod(shape) for shape in tensors]
    assert {len(shape) for shape in tensors} >= {1, 2, 3}


@pytest.mark.parametrize(("schema", "text"), SHAPES)
def test_measured_sizes_are_valid_and_large(schema, text):
    shapes = read(schema, text)
    case = measured(sizes_of(shapes), 1 << 16)
    valid = case if LEADING not in case else case | {LEADING: (case[LEADING],)}
    assert is_valid(shapes, valid)
    assert all(isinstance(size, int) for size in case.values())


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(("A", "B", "A/2", "B*A", "3", "A+B", "(A+1)//2", "2*C", "...")), min_size=1, max_size=4)
)
def test_any_shapes_are_refused_or_have_cases(dims):
    text = f"x: {' '.join(dims)} -> A"
    try:
        shapes = read("(Tensor x) -> Tensor", text)
        sizes = sizes_of(shapes)
    except ShapesError:
        return
    drawn = cases(sizes)
    assert drawn
    assert all(is_valid(shapes, case) for case in drawn)
