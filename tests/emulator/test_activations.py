"""linear_activation's activations: in 16-bit types their error is well below the rounding error; NaN and infinity
propagate."""

import pytest
import torch

from .conftest import ENTRIES, build
from .test_recipes import NAMES as DTYPES

NAMES = ("none", "relu", "gelu", "gelu_tanh", "silu")
# The largest error, in units of half a ULP of the result, which is the largest rounding error.
LIMIT = 0.1


@pytest.fixture(scope="module")
def library(ops):
    return build(ops / "linear_activation", (ENTRIES / "activations.cu").read_text())


def every_value(dtype: torch.dtype) -> torch.Tensor:
    values = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    return values[values.isfinite()].float()


def exact(name: str, z: torch.Tensor) -> torch.Tensor:
    """In float64. PyTorch's gelu of a large negative number is not exact: it computes 1 - 1, in effect."""
    if name == "gelu":
        return z * torch.special.erfc(-z / 2**0.5) / 2
    if name == "gelu_tanh":
        return z * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (z + 0.044715 * z**3))
    return {"none": z, "relu": z.relu(), "silu": z * torch.sigmoid(z)}[name]


def evaluate(library, memory, dtype: torch.dtype, name: str, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    z = memory.copy(z)
    y, gradient = (memory.empty(len(z), dtype=torch.float32) for _ in "yg")
    library(f"evaluate_{DTYPES[dtype]}", NAMES.index(name), z, y, gradient, len(z))
    return y, gradient


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_values(library, memory, name, dtype):
    z = every_value(dtype)
    y, _ = evaluate(library, memory, dtype, name, z)
    expected = exact(name, z.double())
    info = torch.finfo(dtype)
    unit = info.eps * 2 ** expected.abs().clamp(min=info.tiny).log2().floor()
    # 1e-9: near zero from below, float32's 1 + erf has no correct digit left, while bfloat16 still has range.
    assert ((y.double() - expected).abs() <= LIMIT * unit / 2 + 1e-9).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_nan_and_infinity(library, reference, memory, name, dtype):
    """Where PyTorch has NaN, there may be an infinity instead, but no finite number."""
    z = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0])
    y, gradient = evaluate(library, memory, dtype, name, z)
    leaf = z.clone().requires_grad_()
    expected = reference("linear_activation").ACTIVATIONS[name](leaf)
    expected.sum().backward()
    for ours, theirs in ((y, expected.detach()), (gradient, leaf.grad)):
        assert not ours[theirs.isnan()].isfinite().any()
        torch.testing.assert_close(ours[~theirs.isnan()], theirs[~theirs.isnan()])
    assert y[0].isnan()
