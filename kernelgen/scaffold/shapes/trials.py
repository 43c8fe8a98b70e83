"""What the tests and lab.py of an op with shapes hold: cases, arguments, refusals, and what is moved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kernelgen.scaffold.shapes import lines
from kernelgen.scaffold.shapes.binding import Divisible, Tensor
from kernelgen.scaffold.shapes.cases import LEADING, Case, Sizes, cases, measured, shape_in, sizes_of
from kernelgen.scaffold.shapes.dtypes import CLASSES, ELEMENTS, is_floating
from kernelgen.scaffold.shapes.expressions import Size, named, product
from kernelgen.scaffold.shapes.hooks import sizes_in
from kernelgen.scaffold.shapes.operator import Operator, Value
from kernelgen.scaffold.shapes.parser import Condition, Shape

# Why a case is missing, in the words of the suite.
RULED_OUT = "its shapes or its reference rule it out"
NO_VMAP = ["vmap", "to do: _library.register_vmap; PyTorch calls it in a loop"]
# Elements of the largest tensor in the cases that are measured on a GPU and on the CPU.
_MEASURED = {"small": 1 << 18, "large": 1 << 25}
_MEASURED_ON_CPU = {"small": 1 << 14, "large": 1 << 20}
_LARGEST_FUZZED = 300


def tests(
    operator: Operator, drawn: list[Case], backward: str, batched: list[int] | None, drawing: Mapping[str, str]
) -> dict[str, Any]:
    """What the op's test file holds, as lines of Python.

    Args:
        drawn: its cases; `backward`: "own", "composed" or "none".
        batched: the positions of arguments with a batch dimension, where vmap takes one; None where it cannot.
        drawing: what else `make` is told of some arguments, by name.
    """
    sizes = sizes_of(operator.shapes)
    arguments = _arguments(operator, f"*{LEADING}", drawing)
    return {
        "dtypes": dtypes(operator),
        "names": list(sizes.names),
        "cases": [_case(sizes, case) for case in drawn],
        "inputs": _unpacked(sizes, arguments) + _returned(arguments, "        "),
        "refusals": _refusals(operator),
        "lacks": _lacks(operator, drawn, backward) + ([] if batched is not None else [NO_VMAP]),
    }


def dtypes(operator: Operator) -> list[str]:
    """Those that the tests draw tensors in. Ties decide over whole numbers among results; 16 bits are full of them."""
    if any(not is_floating(result.dtype) for result in operator.results):
        return ["float32", "float64"]
    return list(CLASSES["float"].dtypes)


def _case(sizes: Sizes, case: Case) -> str:
    return lines.tuple_of([str(case[name]) for name in sizes.names])


def _unpacked(sizes: Sizes, arguments: list[str]) -> list[str]:
    names = sizes_in(sizes.names, arguments)
    if not names:
        return []
    return [f"        ({names[0]},) = case" if len(names) == 1 else f"        {', '.join(names)} = case"]


def _returned(arguments: list[str], indent: str) -> list[str]:
    return lines.collection(f"{indent}return (", arguments, ")")


def _arguments(operator: Operator, leading: str, drawing: Mapping[str, str]) -> list[str]:
    """The arguments of a call in Python, from sizes and `make`; without those that are given by name alone. `drawing`
    is what else `make` is told of some."""
    values = {tensor.name: tensor for tensor in operator.tensors}
    items = []
    for argument, entry in zip(operator.schema.arguments, operator.entry["arguments"], strict=True):
        if argument.keyword_only:
            continue
        value = values.get(argument.name)
        if value is not None:
            items.append(_drawn(value, leading, drawing.get(value.name)))
        else:
            items.append(argument.name if argument.name in operator.size_names else entry["sample"])
    return items


def _drawn(value: Value, leading: str, told: str | None) -> str:
    dims = ([leading] if value.shape.leading else []) + [dim.python() for dim in value.shape.dims]
    shape = lines.tuple_of(dims)
    if value.dtype == "float":
        drawn = f"make({shape}, {told})" if told else f"make({shape})"
    elif value.dtype == "bool":
        drawn = f"make.integers({shape}, 2).bool()"
    elif is_floating(value.dtype):
        drawn = f"make({shape}, differentiable=False).to(torch.{value.dtype})"
    else:
        below = value.shape.below.python() if value.shape.below else "8"
        dtype = "" if value.dtype in ("int", "int64") else f", torch.{value.dtype}"
        drawn = f"make.integers({shape}, {below}{dtype})"
    if not value.is_list:
        return drawn
    if not value.kind.startswith("optional"):
        return f"[{drawn}, {drawn}]"
    # PyTorch finds no gradient in a list that holds None.
    return f"[{drawn.replace(f'make({shape})', f'make({shape}, differentiable=False)')}, None]"


def _refusals(operator: Operator) -> list[dict[str, str]]:
    """Arguments that the op refuses, in Python, each with the beginning of the message."""
    refused = []
    tensors = [t for t in operator.tensors if not t.is_list and not _by_name(operator, t)]
    for place, value in enumerate(tensors):
        start = f"{operator.name}: {value.name} has"
        if value.dtype not in CLASSES or operator.representative(value.dtype).name == value.name:
            message = f"{start} dtype complex64; it takes"
            refused.append({"args": f"changed(args, {place}, torch.Tensor.cfloat)", "message": message})
        if not value.shape.leading:
            change = "lambda tensor: tensor[None]"
        elif value.shape.dims:
            change = f"lambda tensor: tensor.flatten(){'[0]' if len(value.shape.dims) == 1 else ''}"
        elif value.name != _leads(operator):
            change = "lambda tensor: tensor[None]"
        else:
            continue
        refused.append({"args": f"changed(args, {place}, {change})", "message": f"{start} shape ("})
    return refused


def _by_name(operator: Operator, value: Value) -> bool:
    return any(a.name == value.name and a.keyword_only for a in operator.schema.arguments)


def _leads(operator: Operator) -> str:
    """The tensor whose leading dimensions are those of all."""
    return next(s.argument.name for s in operator.steps if isinstance(s, Tensor) and s.is_first)


def _lacks(operator: Operator, drawn: list[Case], backward: str) -> list[list[str]]:
    lacks = [["forward-mode AD", "PyTorch has no formula for operators of its users"]]
    if backward == "none":
        lacks.insert(
            0, ["gradient", "it is for inference" if operator.schema.functional else "it writes to its arguments"]
        )
    shapes = [shape_in(shape, case) for case in drawn for shape in operator.shapes.arguments.values()]
    counts = [math.prod(shape) for shape in shapes]
    missing = {
        "empty inputs": 0 not in counts,
        "one element": 1 not in counts,
        "many elements": max(counts, default=0) < 10_000,
        "odd rows": not any(shape and shape[-1] > 16 and shape[-1] % 2 for shape in shapes),
    }
    lacks += [[feature, RULED_OUT] for feature, lacking in missing.items() if lacking]
    if not has_autocast(operator):
        lacks.append(["autocast", "its tensors have dtypes of their own"])
    if "float" not in operator.classes:
        lacks.append(["float64", "no tensor takes it"])
    lacks.append(["sharding", "to do: _library.register_sharding"])
    lacks.append(["huge inputs", "to do: huge_cases"])
    return lacks


def has_autocast(operator: Operator) -> bool:
    """Whether autocast may cast all tensors of floating-point numbers to one dtype."""
    floating = [t for t in operator.tensors if is_floating(t.dtype)]
    alike = all(tensor.dtype == "float" and not tensor.is_list for tensor in floating)
    return operator.schema.functional and bool(floating) and alike


def batched(operator: Operator) -> list[int] | None:
    """The places of the tensors that a batch is one more leading dimension of; None where a result has none."""
    if not operator.schema.functional or not operator.results or any(t.is_list for t in operator.tensors):
        return None
    if not all(result.shape.leading for result in operator.results) or any(
        a.keyword_only for a in operator.schema.arguments
    ):
        return None
    names = [a.name for a in operator.schema.arguments]
    return [names.index(t.name) for t in operator.tensors if t.shape.leading]


# ---- lab.py


def lab(
    operator: Operator, backward: Operator | None, least: Mapping[str, int], drawing: Mapping[str, str]
) -> dict[str, Any]:
    """What the op's lab.py holds, as lines of Python.

    Args:
        backward: the gradient's operator, if it is the op's own.
        least: the smallest of each size that the op takes, where that is not 0.
        drawing: as for `tests`.
    """
    sizes = sizes_of(operator.shapes)
    arguments = _arguments(operator, LEADING, drawing)
    names = [f"{name}: int" for name in sizes.names]
    repairs = _repairs(operator, sizes)
    moved = "Every tensor is read once or written once: change it if the op does otherwise."
    functions = _function("bytes_moved", ["dtype: torch.dtype", *names], moved, repairs, _bytes(operator))
    if backward:
        functions += [
            "",
            "",
            *_function("backward_bytes_moved", ["dtype: torch.dtype", *names], "", repairs, _bytes(backward)),
        ]
    guess = "The arithmetic operations of a call: to be written; one for each element of a result is a guess."
    functions += ["", "", *_function("flops", names, guess, repairs, _elements(operator.written))]
    if backward:
        functions += ["", "", *_function("backward_flops", names, "", repairs, _elements(backward.written))]
    return {
        "domain": [f'"{name}": {_range(sizes, name, least)}' for name in sizes.names],
        "cases": _measured(sizes, _MEASURED),
        "cpu_cases": _measured(sizes, _MEASURED_ON_CPU),
        "signature": lines.python("def inputs(", ["make: Any", *names], ") -> tuple[Any, ...]:"),
        "repairs": repairs,
        "inputs": _returned(arguments, "    "),
        "functions": functions,
    }


def _function(name: str, parameters: list[str], docstring: str, repairs: list[str], terms: list[str]) -> list[str]:
    head = lines.python(f"def {name}(", parameters, ") -> int:")
    body = [f'    """{docstring}"""'] if docstring else []
    return [*head, *body, *(f"    {repair}" for repair in repairs), *_returned_sum(terms)]


def _returned_sum(terms: list[str]) -> list[str]:
    line = f"    return {' + '.join(terms)}"
    if len(line) <= lines.WIDTH:
        return [line]
    return ["    return (", f"        {terms[0]}", *(f"        + {term}" for term in terms[1:]), "    )"]


def _range(sizes: Sizes, name: str, learned: Mapping[str, int]) -> str:
    if name in sizes.by_name:
        return f"({sizes.samples[name]}, {sizes.samples[name]})"
    if name in sizes.scalars:
        bounded = any(name in (c.left, *c.right.names) for c in sizes.shapes.conditions)
        return "(1, 8)" if bounded else f"({min(1, sizes.samples[name])}, {sizes.samples[name]})"
    bounds = {n for shape in sizes.shapes.shapes if shape.below for n in shape.below.names}
    least = max(learned.get(name, 0), 1 if name in bounds else 0)
    return f"({least}, {_LARGEST_FUZZED if name in sizes.rows or len(sizes.names) < 3 else 8})"


def _measured(sizes: Sizes, elements: dict[str, int]) -> list[str]:
    chosen = {label: measured(sizes, count) for label, count in elements.items()}
    texts = []
    for label, case in chosen.items():
        if case is not None:
            inner = ", ".join(f'"{name}": {size}' for name, size in case.items())
            texts.append(f'"{label}": {{{inner}}}')
    return texts


def _repairs(operator: Operator, sizes: Sizes) -> list[str]:
    """Lines that turn any sizes into sizes that the shapes allow."""
    repairs = []
    for condition in (step for step in operator.steps if isinstance(step, Condition)):
        function = "max" if condition.symbol == ">=" else "min"
        repairs.append(f"{condition.left} = {function}({condition.left}, {condition.right.python()})")
    for division in (step for step in operator.steps if isinstance(step, Divisible) and step.divisor.name):
        name, divisor = division.dividend.name, division.divisor.name
        repairs += [f"{divisor} = max({divisor}, 1)", f"{name} += -{name} % {divisor}"]
    return repairs + [f"{name} += -{name} % {multiple}" for name, multiple in sizes.multiples.items()]


def _count(shape: Shape) -> Size:
    return product([named(LEADING)] * shape.leading + list(shape.dims))


def _bytes(operator: Operator) -> list[str]:
    """The bytes of a call: every tensor once, one that is written to twice."""
    counts: dict[tuple[Size, str], int] = {}
    for value in operator.read + operator.written + [v for v in operator.written if v.mutated]:
        key = _count(value.shape), "dtype.itemsize" if value.dtype == "float" else str(_itemsize(value.dtype))
        counts[key] = counts.get(key, 0) + (2 if value.is_list else 1)
    return [_term(size, itemsize, count) for (size, itemsize), count in counts.items()]


def _term(size: Size, itemsize: str, count: int) -> str:
    text = size.python()
    text = f"({text})" if size.operation in ("+", "-", "/", "//") else text
    factors = [str(count)] if count > 1 else []
    return " * ".join([*factors, text, *([itemsize] if itemsize != "1" else [])])


def _itemsize(dtype: str) -> int:
    return 8 if dtype == "int" else ELEMENTS[dtype].bytes


def _elements(values: list[Value]) -> list[str]:
    sizes = [_count(value.shape) for value in values]
    return [_term(size, "1", sizes.count(size)) for size in dict.fromkeys(sizes)]


def test_cases(operator: Operator) -> list[Case]:
    """The cases that tests may hold: a caller may leave out some that the reference does not take."""
    return cases(sizes_of(operator.shapes))


def call(operator: Operator, case: Case) -> list[dict[str, Any]]:
    """The arguments of a call in a case, for a worker to make: kernelgen/worker/new_op.py says how."""
    values = {tensor.name: tensor for tensor in operator.tensors}
    made: list[dict[str, Any]] = []
    for argument, entry in zip(operator.schema.arguments, operator.entry["arguments"], strict=True):
        value = values.get(argument.name)
        if value is not None:
            dtype = {"float": "float32", "int": "int64"}.get(value.dtype, value.dtype)
            below = value.shape.below.evaluate(case) if value.shape.below else 2 if dtype == "bool" else 8
            shape = list(shape_in(value.shape, case))
            made.append({"shape": shape, "dtype": dtype, "below": below, "list": value.is_list})
        elif argument.name in operator.size_names:
            made.append({"sample": str(case[argument.name])})
        else:
            made.append({"sample": entry["sample"]})
    return made
