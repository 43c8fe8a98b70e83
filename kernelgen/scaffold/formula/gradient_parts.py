"""What the parts of cut tensors are called in a backward, of elements and of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.scaffold.formula.values import named_parts


def parts_of_grads(
    differentiable: Sequence[int], grads: Sequence[str], names_of_parts: Mapping[tuple[str, int], str]
) -> dict[tuple[int, int], str]:
    """The names of the parts of what comes in, by result and part."""
    return {
        (i, part): name
        for i, grad in zip(differentiable, grads, strict=True)
        for (tensor, part), name in names_of_parts.items()
        if tensor == grad
    }


def parts_of_gradient(
    entry: Mapping[str, Any],
    tensors: Sequence[Mapping[str, Any]],
    gradients: Sequence[Mapping[str, Any]],
    forward: Mapping[tuple[str, int], str],
    result_of: Mapping[str, str],
) -> dict[tuple[str, int], str]:
    """The names of the parts in the backward: those of the forward, and of their gradients after them.

    Args:
        result_of: the result that each of the given gradients is of.
    """
    held = [[*key, name] for key, name in forward.items()]
    of_results = [
        (grad, part, name) for grad, of in result_of.items() for (r, part), name in forward.items() if r == of
    ]
    held += [[grad, part, f"grad_{name}"] for grad, part, name in of_results]
    held += [
        [g["name"], part, f"grad_{name}"] for g in gradients for (of, part), name in forward.items() if of == g["of"]
    ]
    return named_parts(entry, {"part_names": held}, [*tensors, *gradients])
