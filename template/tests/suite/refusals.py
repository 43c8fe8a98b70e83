"""What an op does not take, it refuses: with a message that names the argument."""

import contextlib
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from .backends import backend_of, cuda_devices
from .inputs import Make, tensors
from .op import OpUnderTest
from .unwritten import causes, says_unwritten


class RefusalTests(OpUnderTest):
    """Dtypes, devices, layouts, and what the op itself lists."""

    def test_refusals(self, device: str) -> None:
        self.need("refusals")
        refused = list(self.refusals(Make(device, self.dtypes[0])))
        assert refused, "name what the op refuses"
        for args, message in refused:
            with refusal(re.escape(message)):
                self.op(*args)

    def foreign(self, device: str, change: Callable[[Tensor], Tensor]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """The typical arguments with one tensor changed, for each tensor, with its name."""
        args = self.typical(device, requires_grad=False)
        by_name = getattr(self.op, "by_name", ())
        others = (name for name in inspect.signature(self.function).parameters if name not in by_name)
        for i, name in enumerate((*itertools.islice(others, len(args) - len(by_name)), *by_name)):
            if isinstance(args[i], Tensor):
                yield name, (*args[:i], change(args[i]), *args[i + 1 :])

    def test_refuses_other_dtypes(self, device: str) -> None:
        self.need("refusal of other dtypes")
        for name, args in self.foreign(device, lambda tensor: tensor.to(torch.complex64)):
            with refusal(rf"\b{self.name}\b.*\b{name}\b.*dtype"):
                self.op(*args)

    def test_refuses_other_devices(self, device: str) -> None:
        self.need("refusal of other devices")
        if len(tensors(self.typical(device))) < 2:
            pytest.skip("it takes one tensor")
        for other in ("meta", *({"cpu", *cuda_devices()[:1]} - {device})):
            for name, args in self.foreign(device, lambda tensor: tensor.to(other)):  # noqa: B023
                with refusal(rf"\b{self.name}\b.*\b{name}\b"):
                    self.op(*args)

    def test_refuses_places_outside_of_rows(self, device: str) -> None:
        """On the CPU; a call does not wait for a GPU, so a result is NaN there."""
        if not self.places:
            pytest.skip("it takes no places of elements")
        args = self.typical(device, requires_grad=self.gradient)
        for i in self.places:
            for outside in (-(2**40), 2**40):
                changed = (*args[:i], torch.full_like(args[i], outside), *args[i + 1 :])
                if backend_of(device) == "cpu":
                    with pytest.raises(IndexError, match=rf"\b{self.name}\b.* holds {outside} "):
                        self.op(*changed)
                    continue
                floating = [result for result in tensors(self.op(*changed)) if result.is_floating_point()]
                assert any(bool(result.isnan().all()) for result in floating), "a wrong result, and no word of it"

    def test_refuses_sparse_and_nested_tensors(self, device: str) -> None:
        def sparse(tensor: Tensor) -> Tensor:
            like = {"dtype": tensor.dtype, "device": tensor.device}
            return torch.sparse_coo_tensor(size=tensor.shape, check_invariants=False, **like)

        def nested(tensor: Tensor) -> Tensor:
            return torch.nested.nested_tensor([torch.atleast_1d(tensor)] * 2, layout=torch.jagged)

        # PyTorch refuses by the operator's name.
        names = "|".join(map(re.escape, {self.name, *sys.modules[self.function.__module__].SCHEMAS}))
        for _, args in self.foreign(device, sparse):
            with refusal(rf"\b({names})\b.*Sparse"):
                self.op(*args)
        for _, args in self.foreign(device, nested):
            # It has another dimension: an op whose kernels do not take so many runs the reference.
            with refusal(rf"\b({names})\b.*nested", partial(self.reference, *args)):
                self.op(*args)


def refusal_of_gpu(suite: object, error: BaseException) -> str | None:
    """What the op said of a GPU that lacks what it needs: a line that the suite's `gpu_refusals` match, or None."""
    patterns = getattr(suite, "gpu_refusals", ())
    lines = [line for cause in causes(error) for line in str(cause).splitlines()]
    return next((line.strip() for line in lines if any(re.search(pattern, line) for pattern in patterns)), None)


@contextlib.contextmanager
def refusal(pattern: str, reference: Callable[[], Any] | None = None) -> Iterator[None]:
    """The call inside raises a RuntimeError whose message matches, or that the reference raises as well."""
    with pytest.raises(RuntimeError) as caught:
        yield
    if says_unwritten(caught.value):
        raise caught.value
    if reference and not re.search(pattern, str(caught.value), re.DOTALL):
        with pytest.raises(RuntimeError, match=re.escape(str(caught.value))):
            reference()
        return
    assert caught.match(f"(?s){pattern}")
