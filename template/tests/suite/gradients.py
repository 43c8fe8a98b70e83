"""Derivatives: right, or refused; never silently zero or missing."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from .evaluation import evaluate
from .inputs import copies, flattened, tensors
from .op import OpUnderTest


class GradientTests(OpUnderTest):
    """Reverse mode, twice, functional, and forward mode."""

    def need_tensors(self, args: Sequence[Any]) -> None:
        """Skips the test where there is nothing to differentiate, or nothing to differentiate by."""
        if not any(map(Tensor.is_floating_point, tensors(args))) or not tensors(self.op(*args)):
            pytest.skip("it does not take floating-point tensors and return tensors")

    def test_gradcheck(self, device: str) -> None:
        """The gradient is right; an op without one says so when it is asked for, unless its reference has none."""
        if not self.gradient:
            self.need_tensors(self.typical(device))
            self.check_refusal(self.typical(device, requires_grad=True))
            return
        self.need("float64", "numerical gradient")
        function, leaves = flattened(self.op, self.typical(device, torch.float64))
        function = precise(function, leaves)
        batched = "vmap" not in self.lacks
        torch.autograd.gradcheck(function, leaves, check_batched_grad=batched, fast_mode=are_many(leaves))

    def check_refusal(self, args: Any) -> None:
        try:
            results = tensors(self.op(*args))
        except RuntimeError:
            return
        if any(result.requires_grad for result in results):
            with pytest.raises(RuntimeError):
                evaluate(self.op, args)
        else:
            assert not any(result.requires_grad for result in tensors(self.reference(*copies(args))))

    def test_frozen_inputs(self, device: str) -> None:
        """Only the gradients that are asked for come back, whichever those are."""
        self.need("gradient")
        args = self.typical(device)
        leaves = [tensor for tensor in tensors(args) if tensor.requires_grad]
        expected = evaluate(self.op, args)[1]
        for choice in itertools.product((True, False), repeat=len(leaves)):
            for leaf, needed in zip(leaves, choice, strict=True):
                leaf.grad = None
                leaf.requires_grad_(needed)
            outputs = tensors(self.op(*args))
            assert any(out.requires_grad for out in outputs) == any(choice)
            for node in {out.grad_fn for out in outputs if out.requires_grad}:
                node.register_hook(partial(nothing_needless, node))
            if any(choice):
                sum(out.sum() for out in outputs if out.requires_grad).backward()
            wanted = [grad if needed else None for grad, needed in zip(expected, choice, strict=True)]
            self.assert_same([], [leaf.grad for leaf in leaves], ([], wanted))

    def test_checkpoint(self, device: str) -> None:
        """torch.utils.checkpoint runs the op again for its gradient, and hands out each saved tensor once."""
        self.need("gradient")
        args = self.typical(device)
        expected = evaluate(self.op, args)
        self.assert_same(*evaluate(partial(checkpoint, self.op, use_reentrant=False), args), expected)

    def test_double_backward(self, device: str) -> None:
        self.need("gradient", "float64")
        args = self.typical(device, torch.float64)
        if "double backward" not in self.lacks:
            self.need("numerical gradient")
            function, leaves = flattened(self.op, args)
            torch.autograd.gradgradcheck(precise(function, leaves), leaves, fast_mode=are_many(leaves))
            return
        leaves = [tensor for tensor in tensors(args) if tensor.requires_grad]
        outputs = [out.square().sum() for out in tensors(self.op(*args)) if out.requires_grad]
        grads = torch.autograd.grad(outputs, leaves, create_graph=True)
        refusals = []
        for grad in grads:
            try:
                torch.autograd.grad(grad.sum(), leaves, retain_graph=True, allow_unused=True)
            except NotImplementedError as error:  # But of a gradient that is a result's own, unchanged.
                refusals.append(str(error))
        assert refusals
        assert all("double backward" in refusal for refusal in refusals)

    def test_functional_gradient(self, device: str) -> None:
        """torch.func.vjp is right, or refused, as by operators of lists or of numbers beside tensors."""
        self.need("gradient")
        args = self.typical(device)
        expected = evaluate(self.op, args)[1]
        function, leaves = flattened(self.op, args)
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]

        def of_differentiable(*values: Tensor) -> list[Tensor]:
            replaced = dict(zip(places, values, strict=True))
            results = tensors(function(*(replaced.get(i, leaf) for i, leaf in enumerate(leaves))))
            return [out for out in results if out.is_floating_point()]

        try:
            outputs, vjp = torch.func.vjp(of_differentiable, *(leaves[i].detach() for i in places))
            grads = vjp([torch.ones_like(out) for out in outputs])
        except NotImplementedError as error:
            pytest.skip(f"refused: {error}")
        torch.testing.assert_close(list(grads), expected)

    def test_gradient_through_vmap(self, device: str) -> None:
        """Autograd sees the tensors inside of vmap, where they do not say that they require a gradient."""
        self.need("vmap", "gradient")
        args = self.typical(device)
        batch = [copies([torch.stack((arg, arg))])[0] if isinstance(arg, Tensor) else arg for arg in args]
        in_dims = tuple(0 if isinstance(arg, Tensor) else None for arg in args)
        grads = evaluate(torch.vmap(self.op, in_dims), batch)[1]
        expected = evaluate(self.op, args)[1]
        torch.testing.assert_close(grads, [grad if grad is None else torch.stack((grad, grad)) for grad in expected])

    @pytest.mark.parametrize("way", ["dual tensors", "jvp", "jacfwd"])
    def test_forward_mode(self, device: str, way: str) -> None:
        """The derivative along each input is right, or refused; never zero."""
        args = self.typical(device, requires_grad=self.gradient)
        self.need_tensors(args)
        args = pytree.tree_map_only(Tensor, Tensor.detach, args)
        (ours, leaves), (theirs, _) = flattened(self.op, args), flattened(self.reference, args)
        for i, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
                continue
            if "forward-mode AD" in self.lacks:
                refusal = "forward-mode AD" if self.gradient else "no gradient|forward-mode AD"
                with pytest.raises(NotImplementedError, match=refusal):
                    forward_derivative(ours, leaves, i, way)
            else:
                expected = forward_derivative(theirs, leaves, i, way)
                torch.testing.assert_close(forward_derivative(ours, leaves, i, way), expected)

    def test_forward_mode_of_operators(self, device: str) -> None:
        self.need("gradient")
        if "forward-mode AD" not in self.lacks:
            pytest.skip("the public function has forward-mode AD")
        for operator, args, kwargs in self.calls(device):
            with forward_ad.dual_level(), torch.no_grad():
                # Contiguous first: a tangent needs memory of its own.
                dual = pytree.tree_map_only(Tensor, lambda t: with_tangent(t.contiguous()), args)
                with pytest.raises(NotImplementedError, match="forward-mode AD"):
                    operator(*dual, **kwargs)


def precise(function: Callable[..., Any], leaves: Sequence[Any]) -> Callable[..., tuple[Tensor, ...]]:
    """The function's results of float64: the quotients of differences of others have too few digits, or none."""

    def results(*values: Any) -> tuple[Tensor, ...]:
        return tuple(out for out in tensors(function(*values)) if out.dtype == torch.float64)

    if not results(*leaves):
        pytest.skip("none of its results is of float64, as quotients of differences have to be")
    return results


def are_many(leaves: Sequence[Any]) -> bool:
    """Whether the Jacobian is too large to be computed element by element: it is checked along random directions then.

    Its entries are as many as the square of this number, and a thousand evaluations take seconds.
    """
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad) > 1000


def nothing_needless(node: Any, grads: Sequence[Tensor | None], _: Any) -> None:
    """A hook of a node of autograd's graph: it computes no gradient that nobody asks for."""
    for (needed_by, _), grad in zip(node.next_functions, grads, strict=True):
        assert needed_by is not None or grad is None, "a gradient was computed that nothing needs: see needs_input_grad"


def with_tangent(tensor: Tensor) -> Tensor:
    """A dual tensor with a tangent of ones; an integer has none."""
    return forward_ad.make_dual(tensor, torch.ones_like(tensor)) if tensor.is_floating_point() else tensor


def forward_derivative(function: Callable[..., Any], args: Sequence[Any], i: int, way: str) -> Any:
    """The derivative of a function along its i-th argument."""

    def of_argument(value: Tensor) -> Any:
        return function(*args[:i], value, *args[i + 1 :])

    if way == "jacfwd":
        return torch.func.jacfwd(of_argument)(args[i])
    if way == "jvp":
        return torch.func.jvp(of_argument, (args[i],), (torch.ones_like(args[i]),))[1]
    with forward_ad.dual_level():
        outputs = tensors(of_argument(with_tangent(args[i])))
        return [forward_ad.unpack_dual(out).tangent for out in outputs]
