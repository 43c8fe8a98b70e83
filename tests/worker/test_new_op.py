"""What is learned of a function by calls of it."""

import pytest

from kernelgen.errors import LabError
from kernelgen.scaffold.schema.parser import parse as parse_schema
from kernelgen.worker import new_op

BATCH_NORM = """
import torch

def op(x, mean, var, w):
    return torch.nn.functional.batch_norm(x, mean, var, w)
"""


def orders(source: str, schema: str) -> new_op.Orders:
    arguments = parse_schema(schema).entry()["arguments"]
    return new_op.work({"source": source, "function": "op", "arguments": arguments}, lambda event: None)


@pytest.fixture
def batch_norm() -> new_op.Orders:
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


def test_what_is_not_traced_is_called_by_the_same_worker():
    """Importing torch takes longer than what add-op has to do."""
    product = orders("import torch\ndef op(x):\n    return torch.linalg.qr(x)[0]\n", "(Tensor x) -> Tensor")
    assert "aten.linalg_qr" in product.trace(recipes=["pointwise"])["refused"]
    assert product.learn()["returned"] == 1


def test_a_file_that_cannot_be_run_is_no_fault_of_the_lab():
    with pytest.raises(LabError, match="NameError: name 'nothing' is not defined, when its file was run"):
        orders("nothing\n", "(Tensor x) -> Tensor").trace(recipes=["pointwise"])
