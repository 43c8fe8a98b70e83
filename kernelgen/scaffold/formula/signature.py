"""A function whose operator takes its arguments otherwise: all by position, and not those that kernels leave out.

Kernels are for the defaults of what is left out, and for optional tensors that are given. The stamped function computes
reference.py in any other case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelgen.scaffold.formula import flat as flat_of
from kernelgen.scaffold.formula import groups as groups_of
from kernelgen.scaffold.formula import matrices as matrices_of
from kernelgen.scaffold.formula import orders as orders_of
from kernelgen.scaffold.schema.model import Argument
from kernelgen.scaffold.schema.parser import parse
from kernelgen.scaffold.shapes import lines


def of_operator(schema: Mapping[str, Any], taken: Sequence[str]) -> dict[str, Any]:
    """The entry of the schema of the operator that takes these arguments of a function with the entry `schema`."""
    parsed = parse(schema["text"])
    arguments: list[Argument] = []
    by_name = {argument.name: argument for argument in parsed.arguments}
    for argument in (by_name[name] for name in reversed(taken)):
        is_tensor = argument.type.kind == "optional_tensor"
        type = replace(argument.type, optional=False) if is_tensor else argument.type
        # Behind an argument with a default, each has one.
        has_default = not is_tensor and all(behind.default for behind in arguments)
        default = argument.default if has_default else None
        arguments.insert(0, replace(argument, type=type, default=default, keyword_only=False))
    entry = replace(parsed, arguments=tuple(arguments)).entry()
    return entry | {key: schema[key] for key in ("container", "python_return")}


def of_function(
    schema: Mapping[str, Any],
    taken: Sequence[str],
    groups: Mapping[str, Any] | None = None,
    orders: Mapping[str, Any] | None = None,
    flat: Mapping[str, Any] | None = None,
    matrices: matrices_of.Matrices = (),
) -> dict[str, Any] | None:
    """What the templates say of the function's own arguments; None where they are those of the operator.

    Args:
        taken: the arguments of the operator.
        groups: how the function splits a dimension into groups, where it does.
        matrices: the rows and columns of the results that are a matrix for each point.

    - `arguments`: as in `schema`, but only what Python needs of each.
    - `kernels_are_for`: what of them the kernels are for, in words; empty where that is any call.
    - `fallback`: the lines of the stamped function that compute the reference in any other case.
    - `reference`: the lines of a function of the operator's arguments that calls the reference.
    - `drawn`: the arguments that tests draw: those of the operator, in its order, and what says how many groups there
      are.
    - `by_name`: the last of these that a call of the function has to name.
    - `split`: the arguments of which the function splits a dimension into groups; see groups.py. `permuted`: those
      whose dimensions it brings into the operator's order, `python`, and in Python `how`; see orders.py. `ranks`: the
      tensors of a function of matrices, with the dimensions that each has. `flat`: of a function that cuts another
      dimension than the last, which one, and its tensors; see flat.py. `joins`: what
      makes each of the function's results of the operator's, where something has to.
    - `imports`: what the annotations and defaults need: Sequence, torch.
    """
    arguments = schema["arguments"]
    if groups and groups["argument"]:
        taken = _with_count(taken, groups["argument"], [a["name"] for a in arguments])
    left_out = [a for a in arguments if a["name"] not in taken]
    optional = [a for a in arguments if a["kind"] == "optional_tensor" and a["name"] in taken]
    given = [next(a for a in arguments if a["name"] == name) for name in taken]
    in_order = given == [a for a in arguments if a in given]
    is_plain = not left_out and not optional and in_order and not any(a["keyword_only"] for a in arguments)
    if is_plain and groups is None and orders is None and flat is None and not matrices:
        return None
    by_name = _by_name(arguments, given, left_out) if in_order else given
    conditions = [f"{a['python']} is None" for a in optional] + [_differs(a) for a in left_out]
    own = [a for a in given if groups is None or a["name"] != groups["argument"]]
    names = {a["name"]: a["python"] for a in arguments}
    return {
        "arguments": [
            {key: a[key] for key in ("name", "python", "annotation", "default", "keyword_only")} for a in arguments
        ],
        "kernels_are_for": _given(optional) + [f"{a['python']} = {a['default']}" for a in left_out],
        "fallback": _fallback(
            conditions, lines.python("        return _function(", _passed(arguments, arguments), ")")
        ),
        "reference": [
            *lines.python("def _reference(", [f"{a['python']}: Any" for a in own], ") -> Any:"),
            '    """reference.py, with the arguments of the operator."""',
            *_call_of_reference(
                _passed(given, arguments, by_name, groups, names, orders, flat),
                schema,
                groups,
                names,
                orders,
                flat,
                matrices,
            ),
        ],
        "drawn": [
            {"name": a["name"], "kind": a["kind"], "sample": a["sample"] if a in own else a["python"]} for a in given
        ],
        "split": groups_of.splitting(groups, own, names) if groups else [],
        **({"permuted": _permuted(own, orders)} if orders else {}),
        **({"ranks": orders_of.ranks(orders, given)} if orders and orders["matrices"] else {}),
        **({"flat": flat_of.of_function(flat, given)} if flat else {}),
        "joins": flat_of.joining(flat) if flat else _joins(groups, orders, matrices, len(schema["returns"])),
        "by_name": [a["name"] for a in by_name],
        "imports": _imports(arguments),
    }


def _by_name(
    arguments: Sequence[Mapping[str, Any]],
    given: Sequence[Mapping[str, Any]],
    left_out: Sequence[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """The given arguments that come behind one that is left out, or that no call may give by position."""
    first = next((i for i, a in enumerate(arguments) if a["keyword_only"] or a in left_out), len(arguments))
    return [argument for argument in arguments[first:] if argument in given]


def _imports(arguments: Sequence[Mapping[str, Any]]) -> list[str]:
    used = " ".join(f"{a['annotation']} {a['default']}" for a in arguments)
    return [name for name in ("Sequence", "torch") if f"{name}[" in used or f"{name}." in used]


def _with_count(taken: Sequence[str], count: str, arguments: Sequence[str]) -> list[str]:
    """The operator's arguments and the one that says how many groups there are, in the function's order if the
    operator has that."""
    if list(taken) != [name for name in arguments if name in taken]:
        return [*taken, count]
    return [name for name in arguments if name in taken or name == count]


def _call_of_reference(
    passed: list[str],
    schema: Mapping[str, Any],
    groups: Mapping[str, Any] | None,
    names: Mapping[str, str],
    orders: Mapping[str, Any] | None,
    flat: Mapping[str, Any] | None,
    matrices: matrices_of.Matrices,
) -> list[str]:
    """The lines of the operator's reference that call the function, and give its results as the operator has them."""
    results = [result["python"] for result in schema["returns"]]
    methods = [""] * len(results)
    if groups:
        methods = groups_of.unjoining(groups, names[groups["first"]])
    if flat:
        methods = flat_of.from_reference(flat)
    if matrices:
        methods = matrices_of.from_reference(matrices)
    if orders:
        first, pairs = names[orders["first"]], zip(methods, orders["results"], strict=True)
        methods = [orders_of.from_reference(orders, method, order, first) for method, order in pairs]
    if not any(methods) or (len(results) == 1 and not flat):
        return lines.python("    return _function(", passed, f"){methods[0]}")
    returned = ", ".join(name + method for name, method in zip(results, methods, strict=True))
    return [*lines.python(f"    {', '.join(results)} = _function(", passed, ")"), f"    return {returned}"]


def _permuted(arguments: Sequence[Mapping[str, Any]], orders: Mapping[str, Any]) -> list[dict[str, str]]:
    """The arguments whose dimensions the function brings into the operator's order."""
    return [
        {"python": a["python"], "how": orders_of.restored("", orders["arguments"][a["name"]])}
        for a in arguments
        if a["name"] in orders["arguments"]
    ]


def _joins(
    groups: Mapping[str, Any] | None, orders: Mapping[str, Any] | None, matrices: matrices_of.Matrices, count: int
) -> list[str]:
    """What makes each of the function's results of the operator's; empty where nothing has to."""
    if not groups and not orders and not matrices:
        return []
    joins = groups_of.joining(groups) if groups else matrices_of.joining(matrices) if matrices else [""] * count
    if not orders:
        return joins
    joins = [orders_of.permuted(join, order) for join, order in zip(joins, orders["results"], strict=True)]
    return [join + (".contiguous()" if copied else "") for join, copied in zip(joins, orders["copied"], strict=True)]


def _given(optional: Sequence[Mapping[str, Any]]) -> list[str]:
    """That all these tensors are given, in words."""
    names = " and ".join(a["python"] for a in optional)
    return [f"{names} that {'are' if len(optional) > 1 else 'is'} given"] if optional else []


def _differs(argument: Mapping[str, Any]) -> str:
    """A condition in Python: that an argument is not its default."""
    name, default = argument["python"], argument["default"]
    if default in ("True", "False"):
        return f"not {name}" if default == "True" else name
    return f"{name} is not None" if default == "None" else f"{name} != {default}"


def _fallback(conditions: Sequence[str], call: list[str]) -> list[str]:
    if not conditions:
        return []
    line = f"    if {' or '.join(conditions)}:"
    if len(line) <= lines.WIDTH:
        return [line, *call]
    return ["    if (", *_broken(conditions), "    ):", *call]


def _broken(conditions: Sequence[str]) -> list[str]:
    return [f"        {'or ' if i else ''}{condition}" for i, condition in enumerate(conditions)]


def _passed(
    given: Sequence[Mapping[str, Any]],
    arguments: Sequence[Mapping[str, Any]],
    by_name: Sequence[Mapping[str, Any]] = (),
    groups: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    orders: Mapping[str, Any] | None = None,
    flat: Mapping[str, Any] | None = None,
) -> list[str]:
    """The arguments of a call of the function; tensors with `groups` as the function takes them. `names` are those of
    all arguments in Python."""
    named = [a["name"] for a in arguments if a["keyword_only"] or a in by_name]
    values = {a["name"]: a["python"] for a in given}
    if orders:
        values = {a["name"]: orders_of.in_reference(orders, a) for a in given}
    if flat:
        values = {a["name"]: flat_of.in_reference(flat, a) for a in given}
    if groups:
        values = {name: groups_of.joined(groups, name, value) for name, value in values.items()}
        if groups["argument"]:
            values[groups["argument"]] = groups_of.joined(groups, groups["argument"], names[groups["first"]])
    return [(f"{a['name']}=" if a["name"] in named else "") + values[a["name"]] for a in given]
