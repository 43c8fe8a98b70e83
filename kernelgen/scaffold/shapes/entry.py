"""What `shapes` holds of an op's entry, for the recipe `shaped` to insert: docs/ops-entry.md lists the keys."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Collection, Mapping
from typing import Any

from kernelgen.errors import UsageError
from kernelgen.scaffold.schema.model import Schema
from kernelgen.scaffold.shapes import glue, hooks, kernel, lines, trials
from kernelgen.scaffold.shapes.cases import Case
from kernelgen.scaffold.shapes.dtypes import CLASSES, ELEMENTS
from kernelgen.scaffold.shapes.operator import Operator, backward_of
from kernelgen.scaffold.shapes.parser import Shapes

BACKWARDS = ("composed", "own", "none")


def shaped(
    name: str,
    shapes: Shapes,
    backward: str | None = None,
    *,
    docstring: str = "",
    drawn: list[Case] | None = None,
    least: Mapping[str, int] | None = None,
    differentiable: Collection[str] | None = None,
    drawing: Mapping[str, str] | None = None,
    independent: bool = True,
) -> dict[str, Any]:
    """The keys `schema` and `shapes` of an op's entry.

    Args:
        backward: one of BACKWARDS; by default composed, or none where no gradient can be.
        drawn: the cases of its tests, by default all that the shapes allow.
        least: the smallest of each size that it takes, where that is not 0.
        differentiable: the arguments that gradients reach, if that is known.
        drawing: what the `make` of tests and lab is told of arguments, beside their shapes.
        independent: whether what lies at each place of the leading dimensions has nothing to do with the rest.

    Raises:
        UsageError: the op cannot have such a gradient, or takes no tensor that is always given.
    """
    forward = Operator(name, "forward", shapes)
    forward.check()
    backward = backward or ("composed" if _has_gradient(forward, differentiable) else "none")
    gradient, places = _gradient(forward, backward, differentiable)
    drawn = trials.test_cases(forward) if drawn is None else drawn
    batched = trials.batched(forward) if independent else None
    if len(drawn) < 2:
        raise UsageError(f"The tests need shapes of several sizes, and these have but one: {shapes.text}")
    facts = {
        "text": shapes.text,
        "text_lines": textwrap.wrap(shapes.text, lines.WIDTH - 3),
        "summary": hooks.summary(docstring, name),
        "docstring": hooks.docstring(forward, docstring),
        "backward": backward,
        "places": places,
        "sizes": forward.size_names,
        "instantiate": _instantiate(forward),
        "operators": [_operator(operator) for operator in filter(None, (forward, gradient))],
        "autocast": trials.has_autocast(forward),
        "batched": batched,
        "batched_backward": (trials.batched(gradient) or []) if gradient else [],
        "tests": trials.tests(forward, drawn, backward, batched, drawing or {}),
        "lab": trials.lab(forward, gradient, least or {}, drawing or {}),
    }
    # No part is the same object as another: YAML would write anchors.
    return json.loads(json.dumps({"schema": forward.entry, "shapes": facts}))


def assumed(schema: Schema) -> str | None:
    """Shapes for an op of which the schema alone is known: all tensors have the same; None where that cannot be."""
    tensors = [a for a in schema.arguments if a.type.is_tensor]
    if not any(a.type.kind == "tensor" for a in tensors) or any(r.type.text() != "Tensor" for r in schema.returns):
        return None
    if any((a.keyword_only and a.type.kind == "tensor") or (a.mutated and a.type.kind != "tensor") for a in tensors):
        return None
    results = f" -> {', '.join(['...'] * len(schema.returns))}" if schema.returns else ""
    return f"{', '.join(a.name for a in tensors)}: ...{results}"


def _gradient(
    forward: Operator, backward: str, differentiable: Collection[str] | None
) -> tuple[Operator | None, list[int]]:
    """The gradient's operator, if it is the op's own; and the places of the arguments that there are gradients of."""
    if backward == "none":
        return None, []
    operator, places = backward_of(forward, differentiable)
    return operator if backward == "own" else None, places


def _has_gradient(forward: Operator, differentiable: Collection[str] | None) -> bool:
    try:
        backward_of(forward, differentiable)
    except UsageError:
        return False
    return True


def _instantiate(operator: Operator) -> str:
    axes = [f"{CLASSES[name].parameter} = {', '.join(_types(name))}" for name in operator.classes]
    return "; ".join(axes)


def _types(dtype_class: str) -> list[str]:
    return [ELEMENTS[dtype].kernel for dtype in CLASSES[dtype_class].dtypes]


def _operator(operator: Operator) -> dict[str, Any]:
    return {
        "name": operator.name,
        "direction": operator.direction,
        "schema": operator.schema.text,
        "checks": glue.checks(operator),
        "cpu": glue.function(operator, "cpu"),
        "cuda": glue.function(operator, "cuda"),
        "loop": kernel.cpu(operator),
        "declaration": kernel.declaration(operator),
        "kernel": kernel.cuda(operator),
        "launcher": kernel.launcher(operator),
        "instance": kernel.instantiation(operator),
        "python_checks": hooks.checks(operator),
        "fake": hooks.fake(operator),
    }
