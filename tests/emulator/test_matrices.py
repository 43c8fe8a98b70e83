"""Products of matrices by mma.sync and nvcuda::wmma, of every type, compared with PyTorch's."""

import pytest
import torch

from .conftest import SEEDS
from .standalone import build


@pytest.fixture(scope="module")
def kernels():
    return build("matrices")


PRODUCTS = [
    ("mma_f16", torch.float16, torch.float32, (16, 8, 16)),
    ("mma_f16_sums", torch.float16, torch.float16, (16, 8, 16)),
    ("mma_bf16", torch.bfloat16, torch.float32, (16, 8, 16)),
    ("mma_tf32", torch.float32, torch.float32, (16, 8, 8)),
    ("mma_e4m3", torch.float8_e4m3fn, torch.float32, (16, 8, 32)),
    ("mma_e5m2", torch.float8_e5m2, torch.float32, (16, 8, 32)),
    ("mma_s8", torch.int8, torch.int32, (16, 8, 32)),
    ("mma_u8", torch.uint8, torch.int32, (16, 8, 32)),
    ("mma_f64", torch.float64, torch.float64, (8, 8, 4)),
    ("wmma_f16", torch.float16, torch.float32, (16, 16, 16)),
    ("wmma_f16_tall", torch.float16, torch.float32, (32, 8, 16)),
    ("wmma_f16_wide", torch.float16, torch.float32, (8, 32, 16)),
    ("wmma_bf16", torch.bfloat16, torch.float32, (16, 16, 16)),
    ("wmma_s8", torch.int8, torch.int32, (16, 16, 16)),
    ("wmma_tf32", torch.float32, torch.float32, (16, 16, 8)),
    ("wmma_f64", torch.float64, torch.float64, (8, 8, 4)),
]


@pytest.mark.parametrize("name, factor, target, shape", PRODUCTS, ids=[row[0] for row in PRODUCTS])
def test_products_of_small_whole_numbers_are_exact(kernels, memory, name, factor, target, shape):
    m, n, k = shape
    generator = torch.Generator().manual_seed(1)

    def matrix(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        least = 0 if dtype == torch.uint8 else -4
        return torch.randint(least, 5, (rows, columns), generator=generator).double().to(dtype)

    a, b, c = matrix(m, k, factor), matrix(k, n, factor), matrix(m, n, target)
    stored = b.T.contiguous() if name.startswith("mma") else b
    for seed in SEEDS:
        out = memory.empty(m, n, dtype=target)
        kernels(name, memory.copy(a), memory.copy(stored), memory.copy(c), out, seed=seed)
        assert torch.equal(out.double(), a.double() @ b.double() + c.double())


def test_sums_of_integers_wrap_or_saturate(kernels):
    most = 2**31 - 1
    a, c = torch.full((16, 32), 100, dtype=torch.int8), torch.full((16, 8), most, dtype=torch.int32)
    b, out = torch.ones(8, 32, dtype=torch.int8), torch.zeros(16, 8, dtype=torch.int32)
    kernels("mma_s8", a, b, c, out)
    assert (out == most + 3200 - 2**32).all()
    kernels("mma_u8", a, b, c, out)
    assert (out == most).all()


def test_tf32_ignores_the_lowest_bits(kernels):
    a = torch.full((16, 8), 1 + 2**-11)
    b, c, out = torch.ones(8, 8), torch.zeros(16, 8), torch.zeros(16, 8)
    kernels("mma_tf32", a, b, c, out)
    assert (out == 8).all()
