"""How a call in Python reaches an operator: quickly in eager mode, and so that torch.compile can trace it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

# How PyTorch spells the type of a list that may hold None.
OPTIONAL_TENSORS = "List[Optional[Tensor]]"


def name_of(operator: torch._ops.OpOverload) -> str:
    """The operator's name as SCHEMAS has it: `scale`, or `scale.out` for an overload."""
    return operator.name().partition("::")[2]


def tensors_in(args: Sequence[Any]) -> list[Tensor]:
    """The tensors among the arguments, and in lists among them."""
    flat = [item for arg in args for item in (arg if isinstance(arg, (list, tuple)) else [arg])]
    return [item for item in flat if isinstance(item, Tensor)]


def as_function(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """The operator as ops call it: with the same arguments, and the same results."""
    types = [str(value.type) for value in (*operator._schema.arguments, *operator._schema.returns)]
    return _without_autograd_detour(operator) if any("Tensor" in type_ for type_ in types) else _query(operator)


def hides_gradients() -> bool:
    """Whether a transform of torch.func is active: under vmap, a tensor does not say that the one inside of it requires
    a gradient."""
    return not torch.compiler.is_dynamo_compiling() and torch._C._are_functorch_transforms_active()


_KEYS = {name: getattr(torch._C.DispatchKey, key) for name, key in (("cpu", "CPU"), ("cuda", "CUDA"), ("meta", "Meta"))}


def call_without_tensors(operator: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Runs an operator that was given no tensor to choose the device by: on that of its Device argument.

    Where that is optional and None, on PyTorch's default device; an operator without one runs on the CPU.
    """
    if tensors := tensors_in((*args, *kwargs.values())):
        foreign = next((t for t in tensors if t.layout != torch.strided or t.device.type not in _KEYS), tensors[0])
        kind = ("" if foreign.layout == torch.strided else "Sparse") + foreign.device.type.upper()
        raise NotImplementedError(f"{name_of(operator)}: no kernel takes {kind} tensors")
    device = next((value for value in (*args, *kwargs.values()) if isinstance(value, torch.device)), None)
    if device is None:
        takes_device = any(str(argument.type) == "Optional[Device]" for argument in operator._schema.arguments)
        device = torch.get_default_device() if takes_device else torch.device("cpu")
    if device.type not in _KEYS:
        raise NotImplementedError(f"{name_of(operator)}: no kernel runs on {device}; it takes {', '.join(_KEYS)}")
    return operator.redispatch(torch._C.DispatchKeySet(_KEYS[device.type]), *args, **kwargs)


def _query(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """An operator without tensors as torch.compile takes it: called while a graph is traced, which holds the answer."""

    def answer(*constants: Any) -> Any:
        args, kwargs = _from_constants(constants)
        return operator(*args, **kwargs)

    # What torch.compiler.assume_constant_result sets, which imports the compiler: that takes seconds.
    answer._dynamo_marked_constant = True

    def query(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return answer(*_to_constants(args, kwargs))
        return operator(*args, **kwargs)

    return query


def _to_constants(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """A call's arguments without lists, which the compiler takes for no constants: of each the name, the length of its
    list or -1, and the values."""
    constants = []
    for name, value in [*(("", arg) for arg in args), *kwargs.items()]:
        is_list = isinstance(value, (list, tuple))
        constants += [name, len(value), *map(_fixed, value)] if is_list else [name, -1, _fixed(value)]
    return constants


def _from_constants(constants: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    args, kwargs, rest = [], {}, iter(constants)
    for name, length in zip(rest, rest):
        value = next(rest) if length < 0 else [next(rest) for _ in range(length)]
        if name:
            kwargs[name] = value
        else:
            args.append(value)
    return args, kwargs


def _fixed(value: Any) -> Any:
    """A number as a constant of the graph that is traced, where it may be a size that varies."""
    # The compiler takes the results of these functions for constants, and traces again for another number.
    if isinstance(value, float):
        return float.fromhex(value.hex())
    if isinstance(value, int) and not isinstance(value, bool):
        return len(range(value)) if value >= 0 else -len(range(-value))
    return value


def _without_autograd_detour(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """The operator as a function that skips the dispatcher's autograd layer.

    That layer is Python, and takes as long as the call of an op on a small tensor; with a gradient, several times as
    long as _gradient_call.
    """
    # _any_requires_grad, which is quick, skips lists that hold None; and support for keywords would cost every call a
    # tenth of its time. Operators with either always take the autograd layer.
    arguments = operator._schema.arguments
    if any(OPTIONAL_TENSORS in str(argument.type) or argument.kwarg_only for argument in arguments):
        return operator
    call, name = operator._op, name_of(operator)
    if operator._schema.is_mutable:
        call = _without_counting_detour(operator)
    # Looked up once: each attribute lookup costs the call of a small op a hundredth of its time.
    is_dynamo_compiling, is_grad_enabled = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
    any_requires_grad, transforms_active = torch._C._any_requires_grad, torch._C._are_functorch_transforms_active

    def dispatch(*args: Any) -> Any:
        # Transforms come first in the dispatcher's order, and may hide that a tensor requires a gradient.
        if is_dynamo_compiling() or forward_ad._current_level >= 0 or transforms_active():
            return operator(*args)
        if _is_excluded(_AUTOGRAD):  # In inference mode, and where the layer calls the operator.
            return call(*args)
        if is_grad_enabled() and any_requires_grad(*args):
            return gradient_calls.get(name, operator)(*args)
        _set_excluded(_AUTOGRAD, True)
        try:
            return call(*args)
        except NotImplementedError:  # As where there is no tensor to choose the backend by.
            refuse_none(operator, args)
            raise
        finally:
            _set_excluded(_AUTOGRAD, False)

    return dispatch


def refuse_none(operator: torch._ops.OpOverload, args: Sequence[Any]) -> None:
    """Raises RuntimeError where None, which PyTorch lets pass, is given for a tensor."""
    for argument, value in zip(operator._schema.arguments, args):
        if value is None and str(argument.type) == "Tensor":
            raise RuntimeError(f"{name_of(operator)}: {argument.name} is None; it takes a tensor")


_AUTOGRAD = torch._C.DispatchKey.AutogradFunctionality
_is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_set_excluded = torch._C._dispatch_tls_set_dispatch_key_excluded


def counting_writes(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """The dispatcher's layer that counts what an operator writes to its arguments: autograd refuses to take what it
    saved of them for what they were."""
    below, count = torch._C._after_ADInplaceOrView_keyset, _counter(operator)

    def layer(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        result = operator.redispatch(keyset & below, *args, **kwargs)
        count(args, kwargs)
        return result

    return layer


def _without_counting_detour(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """What that layer does, in a quarter of the time."""
    call, count = operator._op, _counter(operator)

    def counted(*args: Any) -> Any:
        was_excluded = _is_excluded(_WRITES)
        _set_excluded(_WRITES, True)
        try:
            result = call(*args)
        finally:
            _set_excluded(_WRITES, was_excluded)
        count(args, {})
        return result

    return counted


def _counter(operator: torch._ops.OpOverload) -> Callable[[Sequence[Any], dict[str, Any]], None]:
    arguments = operator._schema.arguments
    written = [(i, argument.name) for i, argument in enumerate(arguments) if argument.is_write]
    increment = torch._C._increment_version

    def count(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        values = [args[i] if i < len(args) else kwargs.get(name) for i, name in written]
        # Autograd saves no inference tensors, and they have no version.
        increment([tensor for tensor in tensors_in(values) if not tensor.is_inference()])

    return count


_WRITES = torch._C.DispatchKey.ADInplaceOrView

# By operator: its call with tensors that require a gradient.
gradient_calls: dict[str, Callable[..., Any]] = {}


def gradient_call_of(
    operator: torch._ops.OpOverload, backward: Callable[..., Any], setup_context: Callable[..., None]
) -> Callable[..., Any]:
    """What register_autograd does, for a call in eager mode: in a third of the time.

    Where anything else takes part (autocast, modes such as those of tracing), the call goes through the dispatcher, in
    whose order the layers have to come.
    """
    call = operator._op
    autocast_enabled, active_modes = torch._C._is_any_autocast_enabled, torch._C._len_torch_dispatch_stack

    class Gradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            _set_excluded(_AUTOGRAD, True)
            try:
                output = call(*args)
            finally:
                _set_excluded(_AUTOGRAD, False)
            setup_context(ctx, args, output)
            return output

    Gradient.backward = staticmethod(backward)
    apply = Gradient.apply

    def gradient_call(*args: Any) -> Any:
        if autocast_enabled() or active_modes():
            return operator(*args)
        return apply(*args)

    return gradient_call


def functional_gradient_of(
    operator: torch._ops.OpOverload, backward: Callable[..., Any], setup_context: Callable[..., None]
) -> Callable[..., Any]:
    """The autograd layer of an operator at a level of torch.func's gradients (grad, vjp, jacrev).

    PyTorch has none for operators of its users. As for its own operators, this level's graph is set up first, and the
    levels below it follow.
    """
    call = operator._op
    defaults = [argument.default_value for argument in operator._schema.arguments]

    class Level(torch.autograd.function._SingleLevelFunction):
        @staticmethod
        def forward(*args: Any) -> Any:
            with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
                return call(*args)

    Level.setup_context, Level.backward = staticmethod(setup_context), staticmethod(backward)

    def gradient_call(*args: Any) -> Any:
        from torch._functorch.utils import enable_single_level_autograd_function

        with enable_single_level_autograd_function():
            # The dispatcher leaves out what ends a call and is as by default.
            return Level.apply(*args, *defaults[len(args) :])

    return gradient_call


def without_autograd(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """A backward operator as a function that skips the dispatcher's autograd layer, unless something asks for the
    gradient of that gradient, or takes part as in `gradient_call_of`."""
    call = operator._op
    is_dynamo_compiling, is_grad_enabled = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
    transforms_active, active_modes = torch._C._are_functorch_transforms_active, torch._C._len_torch_dispatch_stack

    def dispatch(*args: Any) -> Any:
        if is_dynamo_compiling() or forward_ad._current_level >= 0 or transforms_active() or active_modes():
            return operator(*args)
        if is_grad_enabled() or _is_excluded(_AUTOGRAD):
            return operator(*args)
        _set_excluded(_AUTOGRAD, True)
        try:
            return call(*args)
        finally:
            _set_excluded(_AUTOGRAD, False)

    return dispatch


def has_plain_tensors(schema: Any) -> bool:
    """Whether the operator takes no list of tensors, changes none, and returns tensors alone: as autograd.Function."""
    takes = all("List" not in str(a.type) or "Tensor" not in str(a.type) for a in schema.arguments)
    return takes and not schema.is_mutable and all(str(result.type) == "Tensor" for result in schema.returns)
