"""What is written from shapes: the steps of the checks, the rows that a kernel visits, the gradient's operator."""

import pytest

from kernelgen.errors import UsageError
from kernelgen.scaffold.schema.parser import parse as parse_schema
from kernelgen.scaffold.shapes.entry import BACKWARDS, assumed, shaped
from kernelgen.scaffold.shapes.kernel import Visit
from kernelgen.scaffold.shapes.operator import Operator, backward_of
from kernelgen.scaffold.shapes.parser import parse


def operator(schema: str, shapes: str) -> Operator:
    return Operator("an_op", "forward", parse(shapes, parse_schema(schema)))


@pytest.mark.parametrize(
    ("schema", "shapes", "rows"),
    [
        ("(Tensor x) -> Tensor", "x: B S H D -> B S H D", "B S H"),
        ("(Tensor x) -> Tensor", "x: ... D -> ... D", "leading"),
        ("(Tensor x) -> Tensor", "x: ... -> ...", "flat"),
        ("(Tensor x) -> Tensor", "x: N -> N", "flat"),
        ("(Tensor x) -> Tensor", "x: N -> ()", ""),
        ("(Tensor x) -> (Tensor, Tensor)", "x: T E -> T k, T k int32", "T"),
        ("(Tensor x) -> Tensor", "x: M N -> M", "M"),
        ("(Tensor x) -> Tensor", "x: M N -> N M", "flat"),
        ("(Tensor x, Tensor w) -> Tensor", "x: M K; w: K N -> M N", "M"),
        ("(Tensor(a!) x, Tensor y) -> ()", "x, y: M N", "M"),
        ("(Tensor x) -> Tensor", "x: B N N D -> B N N D", "B N"),
    ],
)
def test_a_kernel_visits_the_dimensions_that_all_tensors_begin_with(schema, shapes, rows):
    schema = schema.replace(")", ", int k=1)", 1) if "k" in shapes.split() else schema
    visit = Visit(operator(schema, shapes))
    assert ("flat" if visit.flat else " ".join(map(str, visit.rows))) == rows


def test_a_gradient_takes_all_and_gives_one_for_each_tensor_of_float():
    forward = operator(
        "(Tensor x, Tensor table, Tensor? bias, int k, float eps=0.5) -> (Tensor y, Tensor places)",
        "x: N D; table: D float32; bias: D -> N D; N k int32",
    )
    backward, places = backward_of(forward)
    assert places == [0, 2]
    assert backward.schema.text == (
        "(Tensor grad_y, Tensor x, Tensor table, Tensor? bias, int k, float eps, bool needs_x, bool needs_bias)"
        " -> (Tensor grad_x, Tensor grad_bias)"
    )
    assert backward.shapes.text.endswith("-> grad_x: N D; grad_bias: D")
    assert [result.needed for result in backward.results] == ["needs_x", "needs_bias"]


@pytest.mark.parametrize(
    ("schema", "shapes"),
    [
        ("(Tensor x) -> Tensor", "x: N D -> N int32"),
        ("(Tensor x) -> Tensor", "x: N int64 -> N float32"),
        ("(Tensor(a!) x) -> ()", "x: N"),
    ],
)
def test_an_op_without_a_gradient_is_forward_only(schema, shapes):
    read = parse(shapes, parse_schema(schema))
    assert shaped("an_op", read)["shapes"]["backward"] == "none"
    with pytest.raises(UsageError, match="so it has no gradient; write --backward none"):
        shaped("an_op", read, "own")


@pytest.mark.parametrize("backward", BACKWARDS)
def test_names_that_mean_something_are_changed(backward):
    schema = (
        "(Tensor self, Tensor sizes, Tensor T, Tensor? x, Tensor? x_, float stream, *, int lambda_=1) -> Tensor out"
    )
    facts = shaped("an_op", parse("self, sizes, T, x, x_: ... D -> ... D", parse_schema(schema)), backward)
    for written in facts["shapes"]["operators"]:
        text = "\n".join(written["kernel"])
        assert "sizes_," in text
        assert "T_," in text
        pointers = [line.split()[-1] if line.endswith(")") else line for line in text.split("\n") if "_row = " in line]
        names = [line.split(" = ")[0].split()[-1] for line in text.split("\n") if "* const " in line]
        assert len(set(names)) == len(names), pointers


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("(Tensor x, Tensor? bias) -> Tensor", "x, bias: ... -> ..."),
        ("(Tensor x, Tensor[] xs) -> (Tensor, Tensor)", "x, xs: ... -> ..., ..."),
        ("(Tensor(a!) x, float eps) -> ()", "x: ..."),
        ("(Tensor? x) -> Tensor", None),
        ("(Tensor x) -> int", None),
    ],
)
def test_of_a_schema_alone_all_shapes_are_assumed_to_be_the_same(schema, text):
    assert assumed(parse_schema(schema)) == text
    if text:
        assert parse(text, parse_schema(schema)).text == text


def test_a_docstring_becomes_the_op_s():
    facts = shaped("an_op", parse("x: N -> N", parse_schema("(Tensor x) -> Tensor")), docstring='Says "a\\b".\n\nMore.')
    assert facts["shapes"]["summary"] == 'an_op: Says "a\\\\b".'
    assert facts["shapes"]["docstring"][:5] == ['Says "a\\\\b".', "", "More.", "", "Args:"]
