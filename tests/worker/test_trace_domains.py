"""Tensors are drawn from where a function takes them; conditions that only refuse arguments are no branches."""

import pytest

pytest.importorskip("torch")

from kernelgen.scaffold.formula.entry import kernels
from kernelgen.scaffold.schema.from_python import reference
from kernelgen.worker.trace.refusals import RefusedError

from .test_trace import POINTWISE, trace, trace_text

UNIT, POSITIVE, USUAL = [0.1, 0.9], [0.1, 2.9], [-2.9, 2.9]
OF_NORMAL = {"s": POSITIVE, "x": USUAL, "m": USUAL}  # PyTorch refuses NaN.


@pytest.mark.parametrize(
    ("body", "signature", "domains"),
    [
        ("return F.binary_cross_entropy(p, y)", "p: Tensor, y: Tensor", {"p": UNIT, "y": UNIT}),
        ("return torch.distributions.Normal(m, s).log_prob(x)", "x: Tensor, m: Tensor, s: Tensor", OF_NORMAL),
        ("assert (x > 1).all(); return x.acosh()", "x: Tensor", {"x": [1.1, 2.9]}),
        (
            "if x.abs().max() >= 1: raise ValueError\n    return torch.atanh(x) + y",
            "x: Tensor, y: Tensor",
            {"x": [-0.9, 0.9]},
        ),
        ("torch._assert((x <= 0).all(), 'x'); return x.exp().sum(-1)", "x: Tensor", {"x": [-2.9, -0.1]}),
        ("return x.log()", "x: Tensor", {}),
    ],
)
def test_tensors_are_drawn_from_the_widest_interval(tmp_path, monkeypatch, body, signature, domains):
    # torch.compile switches it off for the whole process, which may have run another test.
    monkeypatch.setattr("torch.distributions.Distribution._validate_args", True)
    assert trace_text(tmp_path, body, signature)["assumption"]["domains"] == domains


X, X_AND_T = "x: Tensor", "x: Tensor, t: Tensor"
# Of Planck's law in SI units, the gradient has the square of 1e26.
PLANCK = "1.191e-16 / x**5 / (torch.exp(1.986e-25 / (x * 1.38e-23 * t)) - 1)"


@pytest.mark.parametrize(
    ("body", "signature", "expected"),
    [
        # Near 0, float32 has no digits of exp(x) - 1, but enough of expm1(x).
        ("return 1 / (x.exp() - 1)", X, {"between": ["x"], "domains": {}, "wide_alone": False}),
        ("return x.expm1() / (1 + x * x)", X, {"between": [], "domains": {}, "wide_alone": False}),
        # A number of 16 bits may be one at which there is a pole.
        ("return torch.lgamma(x)", X, {"between": ["x"], "domains": {}, "wide_alone": False}),
        # The gradient divides by a square, which float32 has of large numbers.
        ("return 1e-25 / (x * 1e-23 * x)", X, {"between": ["x"], "domains": {"x": [1e3, 9e3]}, "wide_alone": False}),
        (f"return {PLANCK}", X_AND_T, {"between": ["x", "t"], "domains": {}, "wide_alone": True}),
    ],
)
def test_tensors_are_drawn_where_float32_has_what_is_computed(tmp_path, body, signature, expected):
    assumption = trace_text(tmp_path, body, signature)["assumption"]
    assert {key: assumption[key] for key in expected} == expected


def test_tests_pass_scalars_that_the_function_takes(tmp_path):
    """Those that stand for a type are one number: their difference divides nothing."""
    facts = trace_text(tmp_path, "return x * (step / (total - warm))", "x: Tensor, step: int, total: int, warm: int")
    assert facts["assumption"]["samples"] == {"step": "3", "total": "4", "warm": "7"}


def test_a_branch_by_numbers_is_none_behind_a_condition_that_refuses_some(tmp_path):
    body = "if (x < 0).any(): raise ValueError\n    return x * 2 if x.max() > 0.95 else x"
    with pytest.raises(RefusedError, match="depends on the tensors' elements"):
        trace_text(tmp_path, body)


def test_tests_and_lab_draw_from_the_same_interval():
    """The gradient's own gradient looks at numbers, too: it is refused."""
    facts = trace(POINTWISE, "gaussian_nll")
    tensors = kernels(reference.read(POINTWISE, "gaussian_nll").schema.entry(), facts)["traced"]["tensors"]
    assert [tensor["between"] for tensor in tensors] == [False, False, POSITIVE]
    assert facts["assumption"]["twice"] is False
