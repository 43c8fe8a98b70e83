"""The hooks of an op that computes each element by itself, from tensors that are broadcast to one shape.

Its kernels take all tensors at their own shapes. The gradient is an operator of its own, NAME_backward: it takes the
gradients of the results, the op's tensors, its other arguments and, where there are several gradients, a bool for each;
it returns gradients of the common shape, which are summed to the shapes of the inputs here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _library


def register(
    name: str,
    reference: Callable[..., Any],
    *,
    results: Sequence[torch.dtype | None] = (None,),
    gradients: Sequence[int] = (),
) -> None:
    """Registers all hooks of an op.

    Args:
        results: the dtype of each result; None for that of the arguments.
        gradients: the positions of the arguments that have a gradient.
    """
    PointwiseOp(name, reference, results, gradients).register(name)


class PointwiseOp:
    def __init__(
        self, name: str, reference: Callable[..., Any], results: Sequence[torch.dtype | None], gradients: Sequence[int]
    ) -> None:
        self.forward_operator, self.backward_operator = _operator(name), _operator(f"{name}_backward")
        arguments = self.forward_operator._schema.arguments
        self.reference, self.results, self.gradients = reference, results, gradients
        # Positions of the arguments; the backward takes tensors first, after the gradients of `differentiable` results.
        self.tensors = [i for i, argument in enumerate(arguments) if isinstance(argument.type, torch.TensorType)]
        self.others = [i for i in range(len(arguments)) if i not in self.tensors]
        self.differentiable = [i for i, dtype in enumerate(results) if dtype is None]

    def register(self, name: str) -> None:
        _library.register_fake(name, self.fake)
        _library.register_autocast(name, _library.widest_dtype)
        _library.register_vmap(name, self.vmap)
        _library.register_sharding(name, self.sharding)
        if not self.gradients:
            _library.refuse_autograd(name)
            return
        _library.register_autograd(name, self.backward, self.setup_context)
        _library.register_fake(f"{name}_backward", self.fake_backward)
        _library.register_reference_autograd(f"{name}_backward", self.reference_backward)
        _library.register_vmap(f"{name}_backward", self.vmap_backward)
        _library.register_sharding(f"{name}_backward", self.sharding_backward)

    # ---- Shapes and dtypes, for tracing

    def fake(self, *args: Any) -> Any:
        tensors = _tensors(args)
        like = next(tensor for tensor in tensors if tensor.is_floating_point())
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        return bare(like.new_empty(shape, dtype=dtype or like.dtype) for dtype in self.results)

    def fake_backward(self, *args: Any) -> Any:
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in _tensors(args)))
        return bare(args[0].new_empty(shape if needed else 0) for needed in self.needed(args))

    # ---- Gradient

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.mark_non_differentiable(*(out for out, dtype in zip(outputs, self.results) if dtype is not None))
        ctx.save_for_backward(*(inputs[i] for i in self.tensors))
        ctx.others = [inputs[i] for i in self.others]

    def backward(self, ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        needed = [ctx.needs_input_grad[i] for i in self.gradients]
        by_argument: list[Tensor | None] = [None] * (len(self.tensors) + len(self.others))
        if any(needed):
            flags = needed if len(needed) > 1 else []
            given = [grads[i] for i in self.differentiable]
            computed = several(self.backward_operator(*given, *ctx.saved_tensors, *ctx.others, *flags))
            shapes = {i: tensor.shape for i, tensor in zip(self.tensors, ctx.saved_tensors)}
            for i, grad, wanted in zip(self.gradients, computed, needed):
                by_argument[i] = grad.sum_to_size(shapes[i]) if wanted else None
        return tuple(by_argument)

    def reference_backward(self, *args: Any) -> Any:
        """The backward operator by PyTorch's gradient of the reference, which can be differentiated again."""
        count = len(self.differentiable)
        tensors = args[count : count + len(self.tensors)]
        needed = self.needed(args)
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in _tensors(args)))
        with torch.enable_grad():
            wide = {i: tensor.expand(shape) for i, tensor in zip(self.tensors, tensors)}
            wanted = [i for i, need in zip(self.gradients, needed) if need]
            for i in wanted:
                wide[i] = wide[i] if wide[i].requires_grad else wide[i].detach().requires_grad_()
            others = dict(zip(self.others, args[count + len(self.tensors) :]))
            outputs = several(self.reference(*(value for _, value in sorted({**wide, **others}.items()))))
            grads = torch.autograd.grad(
                [outputs[i] for i in self.differentiable],
                [wide[i] for i in wanted],
                [grad.expand(shape) for grad in args[:count]],
                create_graph=True,
                materialize_grads=True,
            )
        computed = dict(zip(wanted, grads))
        return bare(computed.get(i, args[0].new_empty(0)) for i in self.gradients)

    def needed(self, args: tuple[Any, ...]) -> Sequence[bool]:
        """Which gradients a call of the backward operator asks for."""
        return args[-len(self.gradients) :] if len(self.gradients) > 1 else (True,)

    # ---- vmap: the batch is one more dimension, before all others

    def vmap(self, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        results = self.forward_operator(*_with_batch(args, in_dims))
        return results, (0 if isinstance(results, Tensor) else (0,) * len(results))

    def vmap_backward(self, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        grads = self.backward_operator(*_with_batch(args, in_dims))
        dims = tuple(0 if needed else None for needed in self.needed(args))
        return grads, (dims[0] if isinstance(grads, Tensor) else dims)

    # ---- Distributed tensors: any layout of the results, which the tensors follow where they are not repeated

    def sharding(self, *args: Any) -> list[tuple[list[Any], list[Any]]]:
        return [([layout] * len(self.results), layouts) for layout, layouts in _layouts(args)]

    def sharding_backward(self, *args: Any) -> list[tuple[list[Any], list[Any]]]:
        from torch.distributed.tensor import Replicate

        return [
            ([layout if needed else Replicate() for needed in self.needed(args)], layouts)
            for layout, layouts in _layouts(args)
        ]


def _operator(name: str) -> Any:
    """The operator of this project; None where there is none of the name, as for a backward."""
    packet = getattr(getattr(torch.ops, _library.NAMESPACE), name, None)
    return packet and packet.default


def _tensors(args: Sequence[Any]) -> list[Any]:
    """The tensors among the arguments, or what stands for tensors in a rule for distributed ones."""
    return [arg for arg in args if hasattr(arg, "shape")]


def several(results: Any) -> Sequence[Tensor]:
    return (results,) if isinstance(results, Tensor) else results


def bare(results: Any) -> Any:
    """A tuple of results, or the only one."""
    results = tuple(results)
    return results[0] if len(results) == 1 else results


def _with_batch(args: Sequence[Any], in_dims: Sequence[int | None]) -> list[Any]:
    """The arguments with their batch dimensions first, before so many others that they broadcast."""
    rank = max(arg.ndim - (dim is not None) for arg, dim in zip(args, in_dims) if isinstance(arg, Tensor))
    size = next(arg.shape[dim] for arg, dim in zip(args, in_dims) if dim is not None)
    batched = []
    for arg, dim in zip(args, in_dims):
        if isinstance(arg, Tensor):
            moved = arg.unsqueeze(0) if dim is None else arg.movedim(dim, 0)
            moved = moved.reshape(moved.shape[0], *[1] * (rank + 1 - moved.ndim), *moved.shape[1:])
            # Repeated without a copy, for ops that take one shape alone.
            arg = moved.expand(size, *moved.shape[1:])
        batched.append(arg)
    return batched


def _layouts(args: Sequence[Any]) -> list[tuple[Any, list[Any]]]:
    """Layouts of the results, each with those of the arguments that need no communication."""
    from torch.distributed.tensor import Replicate, Shard

    shape = torch.broadcast_shapes(*(tensor.shape for tensor in _tensors(args)))
    pairs: list[tuple[Any, list[Any]]] = []
    for dim in (None, *range(len(shape))):
        layouts: list[Any] = []
        for arg in args:
            if not hasattr(arg, "shape"):
                layouts.append(None)
                continue
            own = None if dim is None else dim - (len(shape) - len(arg.shape))
            is_split = own is not None and own >= 0 and arg.shape[own] == shape[dim]
            layouts.append(Shard(own) if is_split else Replicate())
        pairs.append((Replicate() if dim is None else Shard(dim), layouts))
    return pairs
