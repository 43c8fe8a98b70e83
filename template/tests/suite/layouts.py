"""Inputs that are not contiguous, and the strides of what comes out."""

from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree

from .inputs import Make, tensors
from .values import ValueTests


class LayoutTests(ValueTests):
    """Values in every layout that a view can have."""

    def test_layouts(self, device: str, layout: str) -> None:
        self.need("layouts")
        for dtype in self.dtypes[:2]:
            self.check_accuracy(self.cases[0], Make(device, dtype, layout, requires_grad=self.gradient), draws=5)

    def test_fake_strides(self, device: str) -> None:
        """torch.compile relies on the strides that the fake gives; opcheck looks at them on CUDA only."""
        self.need("layouts")
        for operator, args, kwargs in self.calls(device, layout="transposed"):
            args, kwargs = pytree.tree_map_only(Tensor, Tensor.detach, (args, kwargs))
            with FakeTensorMode() as mode:
                fake_args, fake_kwargs = pytree.tree_map_only(Tensor, mode.from_tensor, (args, kwargs))
                fakes = operator(*fake_args, **fake_kwargs)
            for fake, real in zip(tensors(fakes), tensors(operator(*args, **kwargs)), strict=True):
                assert significant_strides(fake) == significant_strides(real)


def significant_strides(tensor: Tensor) -> list[int]:
    """The strides of dimensions along which there is somewhere to go."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1 and tensor.numel()]
