"""What is learned of a function by calls of it."""

import pytest

from kernelgen.scaffold.schema.parser import parse as parse_schema
from kernelgen.worker import shapes

BATCH_NORM = """
import torch

def op(x, mean, var, w):
    return torch.nn.functional.batch_norm(x, mean, var, w)
"""


def orders(source: str, schema: str) -> shapes.Orders:
    arguments = parse_schema(schema).entry()["arguments"]
    return shapes.work({"source": source, "function": "op", "arguments": arguments}, lambda event: None)


@pytest.fixture
def batch_norm() -> shapes.Orders:
    return orders(BATCH_NORM, "(Tensor x, Tensor mean, Tensor var, Tensor w) -> Tensor")


def call(*sizes: tuple[int, ...]) -> list[dict]:
    return [{"shape": shape, "dtype": "float32", "list": False} for shape in sizes]


def test_shapes_and_the_number_of_results(batch_norm):
    assert batch_norm.learn() == {"shapes": "x: M N; mean: N; var: N; w: N -> M N", "returned": 1}


def test_a_gradient_that_pytorch_refuses(batch_norm):
    reached = batch_norm.gradients(call((8, 5), (5,), (5,), (5,)))
    assert reached == {"names": ["x", "w"], "refused": ["mean", "var"]}


def test_numbers_that_have_to_be_positive(batch_norm):
    assert batch_norm.bounded(call((8, 5), (5,), (5,), (5,))) == {"names": ["var"]}


def test_a_function_that_refuses_numbers_between_0_and_1():
    """Its results are not finite with others, and it raises with these."""
    source = "def op(x):\n    if (x > 0).all():\n        raise RuntimeError\n    return x.log()\n"
    assert orders(source, "(Tensor x) -> Tensor").bounded(call((8, 5))) == {"names": []}
