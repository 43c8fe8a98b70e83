"""The hooks of an op that computes each element by itself, from tensors that are broadcast to one shape.

Its kernels take all tensors at their own shapes. The gradient is an operator of its own, NAME_backward: it takes the
gradients of the results, the op's tensors, its other arguments and, where there are several gradients, a bool for each;
it returns a gradient of the shape of each tensor, or of shape (0,) where none is needed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _library
from ._calls import without_autograd


def register(
    name: str,
    reference: Callable[..., Any],
    *,
    results: Sequence[torch.dtype | None] = (None,),
    gradients: Sequence[int] = (),
    same_as: Sequence[int | None] = (),
    copies: Sequence[int | None] = (),
    parts: Sequence[int] = (),
    joined: Sequence[int] = (),
    composed: bool = False,
    once: bool = False,
    coordinates: bool = False,
    neighbours: int = 0,
    border: Sequence[int] = (0, 0),
    constants: Sequence[int] = (),
    wide: bool = False,
) -> None:
    """Registers all hooks of an op.

    Args:
        results: the dtype of each result; None for that of the arguments.
        gradients: the positions of the arguments that have a gradient.
        same_as: for each of these the place, among the results that have a gradient, of the one whose gradient it is,
            unchanged; None where it is another.
        copies: for each of these the place among them of an earlier one that it equals; None where there is none.
        parts: into how many parts of one size the last dimension of each tensor is cut, where some are; then the other
            dimensions alone broadcast.
        joined: of how many parts each result is joined, where some are.
        composed: the gradient is PyTorch's of the reference.
        once: PyTorch has no gradient of that gradient.
        coordinates: values depend on where an element lies along the last two dimensions.
        neighbours: along how many of the last dimensions neighbours of elements are read.
        border: how much larger the results are than the tensors along the last two dimensions, where neighbours are
            read.
        constants: the places of results that are held constant: they have no gradient.
        wide: the reference computes in float32 whatever the tensors are, and adds up gradients so, too.
    """
    op = PointwiseOp(name, reference, results, gradients, same_as, copies)
    op.parts, op.joined = parts, joined or [1] * len(results)
    op.composed, op.once, op.constants, op.wide = composed, once, constants, wide
    op.border = border
    op.whole = 2 if coordinates else 1 if parts else neighbours
    op.register(name)


class PointwiseOp:
    """The hooks of an op whose tensors, all of one dtype, broadcast to the shape of its results; see `register`."""

    composed = False  # Whether the gradient is PyTorch's of the reference.
    wide = False  # Whether the reference adds up gradients in float32, whatever the tensors are.
    once = False  # Whether PyTorch has no gradient of that gradient.
    parts: Sequence[int] = ()  # Of each tensor, where the last dimension of some is cut.
    joined: Sequence[int] = ()  # The parts of each result.
    whole = 0  # How many of the last dimensions no layout of distributed tensors splits.
    border: Sequence[int] = (0, 0)  # How much larger results are along the last two dimensions.
    constants: Sequence[int] = ()  # The places of results that have no gradient.
    reads: Sequence[int] = ()  # The places of the results that the backward operator reads.

    def __init__(
        self,
        name: str,
        reference: Callable[..., Any],
        results: Sequence[torch.dtype | None],
        gradients: Sequence[int],
        same_as: Sequence[int | None],
        copies: Sequence[int | None] = (),
    ) -> None:
        self.forward_operator, self.backward_operator = _operator(name), _operator(f"{name}_backward")
        self.call_operator = self.backward_operator and without_autograd(self.backward_operator)
        arguments = self.forward_operator._schema.arguments
        self.reference, self.results, self.gradients = reference, results, gradients
        self.same_as = same_as or [None] * len(gradients)
        self.copies = copies or [None] * len(gradients)
        # Positions of the arguments; the backward takes tensors first, after the gradients of `differentiable` results.
        self.tensors = [i for i, argument in enumerate(arguments) if isinstance(argument.type, torch.TensorType)]
        self.others = [i for i in range(len(arguments)) if i not in self.tensors]
        # Numbers of 8 bits are codes, which have no gradient.
        self.differentiable = [
            i for i, dtype in enumerate(results) if dtype is None or (dtype.is_floating_point and dtype.itemsize > 1)
        ]

    @property
    def is_constant(self) -> bool:
        """Whether no result has a gradient whatever the arguments are; codes of 8 bits are rounded numbers."""
        floating = [i for i, dtype in enumerate(self.results) if dtype is None or dtype.is_floating_point]
        return all(i in self.constants for i in floating)

    def register(self, name: str) -> None:
        _library.register_fake(name, self.fake)
        _library.register_autocast(name, _library.widest_dtype)
        _library.register_vmap(name, self.vmap)
        _library.register_sharding(name, self.sharding)
        if self.composed:
            _library.register_reference_autograd(name, self.reference)
            return
        if not self.gradients:
            _library.refuse_autograd(name, constant=self.is_constant)
            return
        _library.register_autograd(name, self.backward, self.setup_context)
        _library.register_fake(f"{name}_backward", self.fake_backward)
        self.register_double_backward(f"{name}_backward")
        _library.register_vmap(f"{name}_backward", self.vmap_backward)
        _library.register_sharding(f"{name}_backward", self.sharding_backward)

    def register_double_backward(self, backward: str) -> None:
        if self.once:
            _library.refuse_double_backward(backward)
        else:
            _library.register_reference_autograd(backward, self.reference_backward)

    # ---- Shapes and dtypes, for tracing

    def fake(self, *args: Any) -> Any:
        tensors = _tensors(args)
        like = next((tensor for tensor in tensors if tensor.is_floating_point()), tensors[0])
        if not self.parts:
            shape = bordered(torch.broadcast_shapes(*(tensor.shape for tensor in tensors)), self.border)
            return bare(like.new_empty(shape, dtype=dtype or like.dtype) for dtype in self.results)
        *rows, columns = torch.broadcast_shapes(*part_shapes(tensors, self.parts))
        shapes = [(*rows, columns * count) for count in self.joined]
        dtypes = [dtype or like.dtype for dtype in self.results]
        return bare(like.new_empty(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes))

    def fake_backward(self, *args: Any) -> Any:
        tensors = [args[self.place_in_backward(i)] for i in self.gradients]
        return bare(tensor.new_empty(tensor.shape if need else 0) for tensor, need in zip(tensors, self.needed(args)))

    # ---- Gradient

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        constants = [i for i in range(len(outputs)) if i in self.constants or i not in self.differentiable]
        ctx.mark_non_differentiable(*(outputs[i] for i in constants))
        if len(outputs) > len(self.differentiable) == 1:
            # PyTorch would fill a tensor with zeros for each of the others.
            ctx.set_materialize_grads(False)
        ctx.save_for_backward(*(inputs[i] for i in self.tensors), *(outputs[i] for i in self.reads))
        ctx.others = [inputs[i] for i in self.others]

    def backward(self, ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        by_argument: list[Tensor | None] = [None] * (len(self.tensors) + len(self.others))
        if all(grads[i] is None for i in self.differentiable):
            return tuple(by_argument)
        saved = ctx.saved_tensors  # Read once: torch.utils.checkpoint hands them out once.
        inputs, results = saved[: len(self.tensors)], saved[len(self.tensors) :]
        shapes = {i: tensor.shape for i, tensor in zip(self.tensors, inputs)}
        needed = []
        for i, same in zip(self.gradients, self.same_as):
            need = ctx.needs_input_grad[i]
            unchanged = None if same is None else grads[self.differentiable[same]]
            if need and unchanged is not None and unchanged.shape == shapes[i]:
                by_argument[i], need = unchanged, False
            needed.append(need)
        copied = []
        for place, (i, copy) in enumerate(zip(self.gradients, self.copies)):
            if copy is not None and needed[place] and needed[copy] and shapes[i] == shapes[self.gradients[copy]]:
                copied.append((i, self.gradients[copy]))
                needed[place] = False
        if any(needed):
            flags = needed if len(needed) > 1 else []
            given = [grads[i] for i in self.differentiable]
            computed = self.call_backward([*given, *results, *inputs], [*ctx.others, *flags])
            for i, grad, need in zip(self.gradients, computed, needed):
                if need:
                    by_argument[i] = grad
        for i, original in copied:
            by_argument[i] = by_argument[original]
        return tuple(by_argument)

    def call_backward(self, tensors: Sequence[Tensor], others: Sequence[Any]) -> Sequence[Tensor]:
        if self.wide and self.adds_up_afterwards(tensors, others):
            return self.call_wide_backward(tensors, others)
        return several(self.call_operator(*tensors, *others))

    def call_wide_backward(self, tensors: Sequence[Tensor], others: Sequence[Any]) -> Sequence[Tensor]:
        """Gradients of tensors of 16 bits that are added up in float32 and rounded once."""
        kept = [self.results[i] is not None for i in (*self.differentiable, *self.reads)]  # Of dtypes of their own.
        kept += [False] * (len(tensors) - len(kept))
        wide = [
            tensor.float() if _is_of_16_bits(tensor) and not keep else tensor for tensor, keep in zip(tensors, kept)
        ]
        dtypes = [tensors[self.place_in_backward(i)].dtype for i in self.gradients]
        return [grad.to(dtype) for grad, dtype in zip(several(self.call_operator(*wide, *others)), dtypes)]

    def adds_up_afterwards(self, tensors: Sequence[Tensor], others: Sequence[Any]) -> bool:
        """Whether PyTorch adds up terms of a gradient that kernels round to 16 bits: kernels add up those of vectors
        themselves."""
        inputs = tensors[self.given :]
        shapes = part_shapes(inputs, self.parts) if self.parts else [tensor.shape for tensor in inputs]
        full = tuple(torch.broadcast_shapes(*shapes))
        needed = [i for i, need in zip(self.gradients, self.needed((*tensors, *others))) if need]
        own = [(tensors[self.place_in_backward(i)], tuple(shapes[self.tensors.index(i)])) for i in needed]
        return any(_is_of_16_bits(of) and not _is_vector(shape, full) for of, shape in own)

    def reference_backward(self, *args: Any) -> Any:
        """The backward operator by PyTorch's gradient of the reference, which can be differentiated again."""
        count = len(self.differentiable)
        values = dict(zip([*self.tensors, *self.others], args[self.given :]))
        wanted = [i for i, need in zip(self.gradients, self.needed(args)) if need]
        with torch.enable_grad():
            for i in wanted:
                values[i] = values[i] if values[i].requires_grad else values[i].detach().requires_grad_()
            outputs = several(self.reference(*(value for _, value in sorted(values.items()))))
            given = {i: grad for i, grad in zip(self.differentiable, args[:count]) if i not in self.constants}
            results = [outputs[i] for i in given]
            leaves = [values[i] for i in wanted]
            cotangents = list(given.values())
            grads = torch.autograd.grad(results, leaves, cotangents, create_graph=True, materialize_grads=True)
        computed = dict(zip(wanted, grads))
        return bare(computed.get(i, args[self.place_in_backward(i)].new_empty(0)) for i in self.gradients)

    def place_in_backward(self, argument: int) -> int:
        """Where the backward operator takes a tensor of the op."""
        return self.given + self.tensors.index(argument)

    @property
    def given(self) -> int:
        """How many tensors the backward operator takes before the op's: gradients of results, and results."""
        return len(self.differentiable) + len(self.reads)

    def needed(self, args: tuple[Any, ...]) -> Sequence[bool]:
        """Which gradients a call of the backward operator asks for."""
        return args[-len(self.gradients) :] if len(self.gradients) > 1 else (True,)

    # ---- vmap: the batch is one more dimension, before all others

    def vmap(self, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        results = self.forward_operator(*_with_batch(args, in_dims))
        return results, (0 if isinstance(results, Tensor) else (0,) * len(results))

    def vmap_backward(self, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        grads = several(self.backward_operator(*_with_batch(args, in_dims)))
        return bare(self.of_batch(args, in_dims, grads)), bare(0 if needed else None for needed in self.needed(args))

    def of_batch(self, args: Sequence[Any], in_dims: Sequence[int | None], grads: Sequence[Tensor]) -> list[Tensor]:
        """Gradients of tensors with a batch dimension, in the shapes that these have without more dimensions."""
        shaped = []
        for i, grad, needed in zip(self.gradients, grads, self.needed(args)):
            place = self.place_in_backward(i)
            shape, dim = list(args[place].shape), in_dims[place]
            if dim is not None:
                del shape[dim]
            shaped.append(grad.reshape(grad.shape[0], *shape) if needed else grad)
        return shaped

    # ---- Distributed tensors: any layout of the results, which the tensors follow where they are not repeated

    def sharding(self, *args: Any) -> list[tuple[list[Any], list[Any]]]:
        every = _layouts(args, self.parts, self.whole)
        return [([layout] * len(self.results), layouts) for layout, layouts in every]

    def sharding_backward(self, *args: Any) -> list[tuple[list[Any], list[Any]]]:
        given = [self.joined[i] for i in self.differentiable] if self.parts else []
        return self.gradient_rules(args, _layouts(args, [*given, *self.parts], self.whole))

    def gradient_rules(self, args: Sequence[Any], every: Sequence[tuple[Any, list[Any]]]) -> list[Any]:
        """A gradient is laid out as its tensor is; of a repeated one, each device has a partial sum."""
        from torch.distributed.tensor import Partial, Replicate

        rules = []
        for layout, layouts in every:
            summed = Replicate() if layout == Replicate() else Partial()
            own = [layouts[self.place_in_backward(i)] for i in self.gradients]
            results = [summed if placed == Replicate() else placed for placed in own]
            rules.append(([r if need else Replicate() for r, need in zip(results, self.needed(args))], layouts))
        return rules


def part_shape(op: str, dim: int, exact: bool, /, **tensors: tuple[Tensor, int]) -> tuple[int, ...]:
    """The shape of the parts that tensors of an op are cut into along a dimension: all are alike.

    Args:
        exact: whether a part is a single element along the dimension.
        tensors: each with the number of its parts.

    Raises:
        RuntimeError: a tensor has no such parts.
    """
    shapes = []
    for name, (tensor, parts) in tensors.items():
        shape = tuple(tensor.shape)
        if not -len(shape) <= dim < len(shape):
            raise RuntimeError(f"{op}: {name} has shape {shape}; it takes one with a dimension {dim}")
        if shape[dim] != parts if exact else shape[dim] % parts:
            size = parts if exact else f"a multiple of {parts}"
            raise RuntimeError(f"{op}: {name} has shape {shape}; it takes {size} in dimension {dim}")
        shapes.append((*shape[:dim], shape[dim] // parts, *shape[dim % len(shape) + 1 :]))
        if shapes[-1] != shapes[0]:
            raise RuntimeError(f"{op}: {name} has shape {shape}; it takes parts of shape {shapes[0]}")
    return shapes[0]


def flat(tensor: Tensor, dim: int) -> Tensor:
    """A tensor in which this dimension and those behind it are one."""
    return tensor.flatten(dim) if tensor.layout is torch.strided else tensor  # Which the operator refuses.


def one_behind(tensor: Tensor, dim: int) -> Tensor:
    """A tensor in which the dimensions behind this one are one, of size 1 where there are none."""
    is_strided = tensor.layout is torch.strided  # The operator refuses others.
    return tensor.unsqueeze(-1).flatten(dim + 1) if is_strided else tensor


def joined(part: tuple[int, ...], dim: int, parts: int) -> tuple[int, ...]:
    """The shape of what is joined of so many parts of a shape along a dimension; of 0, without the dimension."""
    size = (part[dim] * parts,) if parts else ()
    return (*part[:dim], *size, *part[dim % len(part) + 1 :])


def check_dimensions(op: str, name: str, tensor: Tensor, count: int) -> None:
    """Raises RuntimeError where the argument `name` of an op has another number of dimensions."""
    if tensor.ndim != count:
        words = f"{count} dimension{'s' if count > 1 else ''}"
        raise RuntimeError(f"{op}: {name} has shape {tuple(tensor.shape)}; it takes {words}")


def _operator(name: str) -> Any:
    """The operator of this project; None where there is none of the name, as for a backward."""
    packet = getattr(getattr(torch.ops, _library.NAMESPACE), name, None)
    return packet and packet.default


def _tensors(args: Sequence[Any]) -> list[Any]:
    """The tensors among the arguments, or what stands for tensors in a rule for distributed ones."""
    return [arg for arg in args if hasattr(arg, "shape")]


def _is_of_16_bits(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.itemsize == 2


def _is_vector(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    """Whether a tensor has all of the last dimensions, and is repeated along others if any."""
    if shape == full:
        return True
    while shape and shape[0] == 1:
        shape = shape[1:]
    return bool(shape) and full[-len(shape) :] == shape


def several(results: Any) -> Sequence[Tensor]:
    return (results,) if isinstance(results, Tensor) else results


def bare(results: Any) -> Any:
    """A tuple of results, or the only one."""
    results = tuple(results)
    return results[0] if len(results) == 1 else results


def bordered(shape: Sequence[Any], border: Sequence[int]) -> tuple[Any, ...]:
    """A shape that is so much larger along the last two dimensions."""
    more = [0] * (len(shape) - 2) + list(border)[-len(shape) :]
    return tuple(size if by == 0 else torch.sym_max(0, size + by) for size, by in zip(shape, more))


def part_shapes(tensors: Sequence[Any], parts: Sequence[int]) -> list[tuple[Any, ...]]:
    """The shapes of the parts of tensors."""
    shapes = []
    for tensor, count in zip(tensors, parts):
        if tensor.ndim == 0 or tensor.shape[-1] % count != 0:
            raise RuntimeError(f"a last dimension of {tuple(tensor.shape)} is cut into {count} parts of one size")
        shapes.append((*tensor.shape[:-1], tensor.shape[-1] // count))
    return shapes


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


def _layouts(args: Sequence[Any], parts: Sequence[int], whole: int) -> list[tuple[Any, list[Any]]]:
    """Layouts of the results, each with those of the arguments that need no communication: none of the last `whole`
    dimensions, which are cut into parts or tell where an element is."""
    from torch.distributed.tensor import Replicate, Shard

    tensors = _tensors(args)
    shapes = part_shapes(tensors, parts) if parts else [tensor.shape for tensor in tensors]
    shape = torch.broadcast_shapes(*(shape[: max(0, len(shape) - whole)] for shape in shapes))
    rank = max(len(shape) for shape in shapes)
    pairs: list[tuple[Any, list[Any]]] = []
    for dim in (None, *range(len(shape))):
        layouts: list[Any] = []
        for arg in args:
            if not hasattr(arg, "shape"):
                layouts.append(None)
                continue
            own = None if dim is None else dim - (rank - len(arg.shape))
            is_split = own is not None and own >= 0 and arg.shape[own] == shape[dim]
            layouts.append(Shard(own) if is_split else Replicate())
        pairs.append((Replicate() if dim is None else Shard(dim), layouts))
    return pairs
