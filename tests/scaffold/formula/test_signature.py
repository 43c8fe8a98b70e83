"""The signature of a function, and that of an operator which takes fewer arguments, all by position."""

from kernelgen.scaffold.formula.signature import of_function, of_operator
from kernelgen.scaffold.schema.parser import parse

MODES = '(Tensor x, Tensor? weight=None, str mode="mean", float eps=1e-5, *, bool keep=False, Tensor y) -> Tensor'


def test_an_operator_takes_all_by_position():
    entry = parse(MODES).entry()
    operator = of_operator(entry, ["x", "weight", "eps", "y"])
    assert operator["text"] == "(Tensor x, Tensor weight, float eps, Tensor y) -> Tensor"
    assert of_operator(entry, ["x", "eps"])["text"] == "(Tensor x, float eps=1e-5) -> Tensor"


def test_a_function_computes_its_reference_where_kernels_do_not():
    own = of_function(parse(MODES).entry(), ["x", "weight", "eps", "y"])
    assert own["fallback"] == [
        '    if weight is None or mode != "mean" or keep:',
        "        return _function(x, weight, mode, eps, keep=keep, y=y)",
    ]
    assert own["reference"][-1] == "    return _function(x, weight, eps=eps, y=y)"
    assert own["by_name"] == ["eps", "y"]
    assert own["kernels_are_for"] == ["weight that is given", 'mode = "mean"', "keep = False"]


def test_a_plain_function_has_the_signature_of_its_operator():
    assert of_function(parse("(Tensor x, float eps=1e-5) -> Tensor").entry(), ["x", "eps"]) is None
