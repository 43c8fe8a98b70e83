"""What linear_activation's kernels for 16-bit types take for an activation is right to well below what rounding loses."""

import pytest
import torch

from .conftest import ENTRIES
from .emulator import build

NAMES = ("none", "relu", "gelu", "gelu_tanh", "silu")
# How far off a value may be, in halves of a unit in the last place of the result: what rounding may add to it.
LIMIT = 0.1


@pytest.fixture(scope="module")
def library(ops):
    return build(ops / "linear_activation", (ENTRIES / "activations.cu").read_text())


def every_value(dtype: torch.dtype) -> torch.Tensor:
    values = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    return values[values.isfinite()].float()


def exact(name: str, z: torch.Tensor) -> torch.Tensor:
    """In float64. PyTorch's gelu of a large negative number is what rounding leaves of 1 - 1."""
    if name == "gelu":
        return z * torch.special.erfc(-z / 2**0.5) / 2
    if name == "gelu_tanh":
        return z * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (z + 0.044715 * z**3))
    return {"none": z, "relu": z.relu(), "silu": z * torch.sigmoid(z)}[name]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_values(library, memory, name, dtype):
    z = memory.copy(every_value(dtype))
    y = memory.empty(len(z), dtype=torch.float32)
    library("values_of", NAMES.index(name), z, y, len(z))
    expected = exact(name, z.double())
    info = torch.finfo(dtype)
    unit = info.eps * 2 ** expected.abs().clamp(min=info.tiny).log2().floor()
    # Far below 0 gelu is left at less than 1e-14, which bfloat16 could tell from its value.
    assert ((y.double() - expected).abs() <= LIMIT * unit / 2 + 1e-14).all()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_number_stays_so_and_infinity_too(library, memory, name):
    z = memory.copy(torch.tensor([float("nan"), float("inf"), 0.0, -0.0]))
    y = memory.empty(4, dtype=torch.float32)
    library("values_of", NAMES.index(name), z, y, 4)
    assert y[0].isnan()
    assert y[1:].tolist() == [float("inf"), 0, 0]
