"""The C++ of arguments.h, cpu.cpp, cuda.cpp and kernel.h: checks, outputs and the launch."""

from __future__ import annotations

from kernelgen.scaffold.shapes import lines
from kernelgen.scaffold.shapes.binding import OWN, Divisible, Scalar, Tensor
from kernelgen.scaffold.shapes.dtypes import CLASSES, ELEMENTS
from kernelgen.scaffold.shapes.operator import Operator, Value
from kernelgen.scaffold.shapes.parser import Condition, Shape


def member(name: str) -> str:
    return f"sizes.{name}"


def checks(operator: Operator) -> list[str]:
    """The function that refuses what the operator does not take, and returns the sizes."""
    name = "check_arguments" if operator.direction == "forward" else "check_backward_arguments"
    parameters = [
        f"{e['cpp_type']} {operator.cpp(e['name'])}"
        for e in operator.entry["arguments"]
        if e["name"] not in operator.needed
    ]
    body = [f"  const checks::Argument first{{{_named(operator, operator.first)}}};", "  Sizes sizes;"]
    seen: list[str] = []
    for step in operator.steps:
        if isinstance(step, Scalar):
            cpp = operator.cpp(step.name)
            body.append(f'  sizes.{step.name} = checks::is_size("{operator.name}", "{step.name}", {cpp});')
        elif isinstance(step, Divisible):
            body += _divisible(operator, step)
        elif isinstance(step, Condition):
            body += _condition(operator, step)
        else:
            body += _tensor(operator, step, seen)
    for argument in operator.schema.arguments:
        if argument.type.size is not None:
            items = [f'"{operator.name}"', f'"{argument.name}"', operator.cpp(argument.name), str(argument.type.size)]
            body += lines.cpp("  checks::has_length(", items, ");")
    head = lines.cpp(f"[[maybe_unused]] Sizes {name}(", parameters, ") {")
    return [*head, *body, "  return sizes;", "}"]


def _named(operator: Operator, value: Value) -> str:
    return f'"{operator.name}", "{value.name}", {value.cpp}'


def _tensor(operator: Operator, step: Tensor, seen: list[str]) -> list[str]:
    value = next(t for t in operator.tensors if t.name == step.argument.name)
    if value.is_list or value.may_lack:
        return _perhaps(operator, value, step)
    is_first = value.name == operator.first.name
    argument = "first" if is_first else f"{value.cpp}_argument"
    body = [] if is_first else [f"  const checks::Argument {argument}{{{_named(operator, value)}}};"]
    seen.append(value.name)
    return body + _checks_of(operator, value, step, argument, "  ", is_first)


def _perhaps(operator: Operator, value: Value, step: Tensor) -> list[str]:
    """An optional tensor, or a list of tensors or optional ones."""
    body, indent, subject, ends = [], "  ", value.cpp, []
    if value.kind.endswith("_or_none"):
        body.append(f"{indent}if ({subject}) {{")
        ends.append(f"{indent}}}")
        subject, indent = f"*{subject}", indent + "  "
    if value.is_list:
        item = f"{value.cpp}_item"
        body.append(f"{indent}for (const auto& {item} : {subject}) {{")
        ends.append(f"{indent}}}")
        subject, indent = item, indent + "  "
    if value.kind.startswith("optional"):
        body.append(f"{indent}if ({subject}) {{")
        ends.append(f"{indent}}}")
        subject, indent = f"*{subject}", indent + "  "
    argument = f"{value.cpp}_argument"
    body.append(f'{indent}const checks::Argument {argument}{{"{operator.name}", "{value.name}", {subject}}};')
    return [*body, *_checks_of(operator, value, step, argument, indent, False), *reversed(ends)]


def _checks_of(operator: Operator, value: Value, step: Tensor, argument: str, indent: str, is_first: bool) -> list[str]:
    shape, rank = step.shape, len(step.shape.dims)
    body = [] if is_first else [f"{indent}checks::same_device({argument}, first);"]
    representative = operator.representative(value.dtype) if value.dtype in CLASSES else None
    if representative and representative.name != value.name:
        other = "first" if representative.name == operator.first.name else f"{representative.cpp}_argument"
        if _comes_later(operator, value, representative):
            body += _accepts(argument, CLASSES[value.dtype].dtypes, indent)
            other = f"{{{_named(operator, representative)}}}"
        body.append(f"{indent}checks::same_dtype({argument}, {other});")
    else:
        body += _accepts(argument, CLASSES[value.dtype].dtypes if representative else (value.dtype,), indent)
    if (step.binds or not step.is_checked) and not (shape.leading and rank == 0):
        check = "rank_is_at_least" if shape.leading else "rank_is"
        body.append(f'{indent}checks::{check}({argument}, {rank}, "{shape}");')
    for dim, size, solution in step.binds:
        place = dim - rank if shape.leading else dim
        own = solution.cpp(lambda n, place=place: f"{value.cpp}.size({place})" if n == OWN else member(n))
        body.append(f"{indent}sizes.{size} = {own};")
    if step.is_first:
        body.append(f"{indent}sizes.leading = checks::product(checks::leading({argument}.tensor, {rank}));")
    if step.is_checked:
        body += _shape_is(operator, argument, shape, indent)
    return body


def _comes_later(operator: Operator, value: Value, other: Value) -> bool:
    """Whether `other` is looked at after `value`."""
    order = [step.argument.name for step in operator.steps if isinstance(step, Tensor)]
    return order.index(other.name) > order.index(value.name)


def _accepts(argument: str, dtypes: tuple[str, ...], indent: str) -> list[str]:
    kinds = [f"ScalarType::{ELEMENTS[dtype].scalar_type}" for dtype in dtypes]
    return lines.cpp(f"{indent}checks::dtype_is_one_of(", [argument, f"{{{', '.join(kinds)}}}"], ");")


def _shape_is(operator: Operator, argument: str, shape: Shape, indent: str) -> list[str]:
    items = [argument, sizes_of(operator, shape), f'"{shape}"']
    return lines.cpp(f"{indent}checks::shape_is(", items, ");")


def sizes_of(operator: Operator, shape: Shape) -> str:
    """A tensor's shape as a C++ expression, or a braced list."""
    dims = f"{{{', '.join(dim.cpp(member) for dim in shape.dims)}}}"
    if not shape.leading:
        return dims
    return f"checks::followed_by({leading_of(operator)}, {dims})" if shape.dims else leading_of(operator)


def leading_of(operator: Operator) -> str:
    """The leading dimensions' sizes."""
    step = next(step for step in operator.steps if isinstance(step, Tensor) and step.is_first)
    return f"checks::leading({operator.cpp(step.argument.name)}, {len(step.shape.dims)})"


def _divisible(operator: Operator, step: Divisible) -> list[str]:
    of = step.of or operator.first.name
    items = [f'"{operator.name}"', f'"{of}"', f'"{step.dividend}"', step.dividend.cpp(member), step.divisor.cpp(member)]
    return lines.cpp("  checks::is_multiple(", items, ");")


def _condition(operator: Operator, step: Condition) -> list[str]:
    function = "at_least" if step.symbol == ">=" else "at_most"
    items = [f'"{operator.name}"', f'"{step.left}"', member(step.left), f'"{step.right}"', step.right.cpp(member)]
    return lines.cpp(f"  checks::is_{function}(", items, ");")


# ---- The functions of cpu.cpp and cuda.cpp


def function(operator: Operator, backend: str) -> list[str]:
    """The operator on a backend, cpu or cuda: checks, outputs, and the call of the kernel."""
    entry = operator.entry
    parameters = [f"{e['cpp_type']} {operator.cpp(e['name'])}" for e in entry["arguments"]]
    checked = [operator.cpp(e["name"]) for e in entry["arguments"] if e["name"] not in operator.needed]
    check = "check_arguments" if operator.direction == "forward" else "check_backward_arguments"
    body = lines.assigned("  const Sizes sizes =", f"{check}(", checked, ");")
    if backend == "cuda":
        body.append(f"  const CudaContext context({operator.first.cpp});")
    for tensor in operator.tensors:
        if tensor.is_list:
            body.append(f"  const auto contiguous_{tensor.cpp} = as_contiguous({tensor.cpp});")
        else:
            type = "std::optional<Tensor>" if tensor.may_lack else "Tensor"
            body.append(f"  const {type} contiguous_{tensor.cpp} = as_contiguous({tensor.cpp});")
    for result in operator.results:
        body += _allocation(operator, result)
    body += _call(operator, backend)
    body += [
        f"  if (!{tensor.cpp}.is_contiguous()) torch::stable::copy_({tensor.cpp}, contiguous_{tensor.cpp});"
        for tensor in operator.tensors
        if tensor.mutated
    ]
    returned = [result.cpp for result in operator.results]
    if returned:
        body.append(f"  return {returned[0] if len(returned) == 1 else '{' + ', '.join(returned) + '}'};")
    head = lines.cpp(f"[[maybe_unused]] {entry['cpp_return']} {operator.name}_{backend}(", parameters, ") {")
    unpassed = [operator.cpp(argument.name) for argument in operator.unpassed]
    if unpassed:
        head.append(
            f"  // No kernel is passed {', '.join(unpassed)}: choose by {'it' if len(unpassed) == 1 else 'them'} here."
        )
    return [*head, *body, "}"]


def _allocation(operator: Operator, result: Value) -> list[str]:
    sizes = sizes_of(operator, result.shape)
    like = operator.first
    items = [*([result.needed] if result.needed else []), like.cpp, sizes]
    if result.dtype in CLASSES:
        representative = operator.representative(result.dtype)
        if representative.name != like.name and representative.dtype != like.dtype:
            items.append(f"{representative.cpp}.scalar_type()")
    else:
        items.append(f"ScalarType::{ELEMENTS[result.dtype].scalar_type}")
    function = "empty_if(" if result.needed else "empty_contiguous("
    return lines.assigned(f"  const Tensor {result.cpp} =", function, items, ");")


def _call(operator: Operator, backend: str) -> list[str]:
    """The call of the kernel's launcher, or of the CPU's loop, inside a visit of each class of dtypes."""
    body, indent, ends = [], "  ", []
    for name in operator.classes:
        of = operator.representative(name).cpp
        type = "type" if name == "float" else f"{name}_type"
        parameter = CLASSES[name].parameter
        body.append(f"{indent}dtypes::{CLASSES[name].visit}({of}.scalar_type(), [&](auto {type}) {{")
        ends.append(f"{indent}}});")
        indent += "  "
        body.append(f"{indent}using {parameter} = typename decltype({type})::type;")
    arguments = [_argument_data(tensor) for tensor in operator.read]
    arguments += [_written_data(value, value in operator.results) for value in operator.written]
    arguments += [argument for scalar in operator.scalars for argument in scalar.arguments]
    arguments.append("sizes")
    if backend == "cuda":
        call = f"kernel::{operator.direction}("
        body += lines.assigned(f"{indent}const cudaError_t error =", call, [*arguments, "context.stream()"], ");")
        body.append(f"{indent}STD_CUDA_CHECK(error);")
    else:
        body += lines.cpp(f"{indent}{operator.direction}(", arguments, ");")
    return [*body, *reversed(ends)]


def _argument_data(tensor: Value) -> str:
    return f"dtypes::data<{tensor.glue}>(contiguous_{tensor.cpp})"


def _written_data(value: Value, is_result: bool) -> str:
    return f"dtypes::mutable_data<{value.glue}>({'' if is_result else 'contiguous_'}{value.cpp})"
