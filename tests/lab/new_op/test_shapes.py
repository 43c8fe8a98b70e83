"""The shapes that a function is said to have are held against what it returns."""

from kernelgen.lab.new_op.shapes import _is_taken
from kernelgen.scaffold.schema.parser import parse as parse_schema
from kernelgen.scaffold.shapes.operator import Operator
from kernelgen.scaffold.shapes.parser import parse

CONVOLUTION = Operator(
    "conv", "forward", parse("x: M N; w: B M N -> B 1", parse_schema("(Tensor x, Tensor w) -> Tensor"))
)


def test_a_case_without_elements_may_have_another_shape():
    """torch.nn.functional.conv1d returns (0, 1) for a tensor without channels, whatever the weight says."""
    empty, returned = {"M": 0, "N": 33, "B": 5}, {"shapes": [[0, 1]], "dtypes": ["float32"]}
    assert not _is_taken(CONVOLUTION, empty, returned, 4)
    assert _is_taken(CONVOLUTION, empty, {"shapes": [[5, 1]], "dtypes": ["float32"]}, 4)
