"""The tensors that an op is given."""

import pytest
import torch

from kernelgen.worker.inputs import LAYOUTS, VALUES, Make

SHAPES = [(), (1,), (7,), (5, 6), (2, 3, 4), (0, 3), (3, 0)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_layouts(layout, shape):
    make = Make(layout=layout, requires_grad=True)
    for _ in range(len(LAYOUTS)):
        tensor = make(shape)
        assert tensor.shape == shape
        assert tensor.requires_grad
        assert tensor.is_leaf
        assert not tensor.isnan().any()


def test_what_a_layout_is_named_for():
    made = {layout: Make(layout=layout)((6, 4)) for layout in LAYOUTS}
    assert made["contiguous"].is_contiguous()
    assert made["transposed"].stride() == (1, 6)
    assert made["strided"].stride() == (8, 2)
    assert made["expanded"].stride() == (0, 1)
    assert made["offset"].data_ptr() % 16 == 0
    assert made["offset"].storage_offset() > 0
    assert made["misaligned"].data_ptr() % 16 == 4
    first, others = Make(layout="first misaligned"), Make(layout="others misaligned")
    assert [first((6, 4)).data_ptr() % 16 for _ in range(3)] == [4, 0, 0]
    assert [others((6, 4)).data_ptr() % 16 for _ in range(3)] == [0, 4, 4]
    mixed = Make(layout="mixed")  # In two dimensions, reversed ones are transposed ones.
    assert len({(t.stride(), t.storage_offset()) for t in (mixed((6, 4)) for _ in range(6))}) == 5


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_values(values, dtype):
    tensor, limits = Make(dtype=dtype, values=values)((100, 100)), torch.finfo(dtype)
    assert tensor.dtype == dtype
    assert tensor.isnan().any() == (values == "nan")
    assert tensor.isinf().any() == (values == "infinite")
    if values == "denormal":
        assert (tensor.abs() < limits.smallest_normal).float().mean() > 0.9
    if values == "huge":
        assert tensor.abs().max() > limits.max ** (0.1 if dtype == torch.float64 else 0.375)


def test_the_same_seed_draws_the_same():
    first, second, other = (Make(seed=seed)((5, 5)) for seed in (3, 3, 4))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_redraw_keeps_the_addresses(layout):
    make = Make(layout=layout)
    tensors = [make((5, 6)) for _ in range(3)]
    before = [(t.data_ptr(), t.clone()) for t in tensors]
    make.redraw()
    for tensor, (address, old) in zip(tensors, before, strict=True):
        assert tensor.data_ptr() == address
        assert not torch.equal(tensor, old)
        assert not tensor.isnan().any()


def test_what_lies_outside_a_tensor_is_nan():
    make = Make(layout="strided")
    tensor = make((3, 4))
    assert make.storages[0].isnan().sum() == make.storages[0].numel() - tensor.numel()


def test_the_same_tensor_twice():
    make = Make(alias="same", requires_grad=True)
    a, b, other, constant = make((3, 4)), make((3, 4)), make((4,)), make((3, 4), differentiable=False)
    assert a is b
    assert other is not a
    assert not constant.requires_grad


def test_overlapping_views():
    make = Make(alias="overlapping")
    a, b, c = (make((3, 4)) for _ in range(3))
    assert [t.data_ptr() - a.data_ptr() for t in (a, b, c)] == [0, 4, 8]
    assert torch.equal(a.flatten()[1:], b.flatten()[:-1])
    assert not c.isnan().any()


def test_integers():
    drawn = Make().integers((50,), 7)
    assert drawn.dtype == torch.int64
    assert 0 <= drawn.min() <= drawn.max() < 7
