"""A function whose operator takes its arguments otherwise: all by position, and not those that kernels leave out.

Kernels are for the defaults of what is left out, and for optional tensors that are given. The stamped function computes
reference.py in any other case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelgen.scaffold.formula.views import View
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


def of_function(schema: Mapping[str, Any], taken: Sequence[str], views: Sequence[View] = ()) -> dict[str, Any] | None:
    """What the templates say of the function's own arguments; None where they are those of the operator.

    Args:
        taken: the arguments of the operator.
        views: how its tensors are those of the function.

    - `arguments`: as in `schema`, but only what Python needs of each.
    - `kernels_are_for`: what of them the kernels are for, in words; empty where that is any call.
    - `fallback`: the lines of the stamped function that compute the reference in any other case, and what it needs of
      its arguments later.
    - `reference`: the lines of a function of the operator's arguments that calls the reference.
    - `drawn`: the arguments that tests draw: those of the operator, in its order, and those that say a size.
    - `by_name`: the last of these that a call of the function has to name.
    - `joins`: what makes each of the function's results of the operator's, where something has to.
    - `imports`: what the annotations and defaults need: Sequence, torch.
    - `split`, the arguments of which a dimension is split into groups, and what else the views say: see their
      `of_signature`.
    """
    arguments = schema["arguments"]
    of_sizes = [view.argument for view in views if view.argument]
    for name in of_sizes:
        taken = _with_size(taken, name, [a["name"] for a in arguments])
    left_out = [a for a in arguments if a["name"] not in taken]
    optional = [a for a in arguments if a["kind"] == "optional_tensor" and a["name"] in taken]
    given = [next(a for a in arguments if a["name"] == name) for name in taken]
    in_order = given == [a for a in arguments if a in given]
    is_plain = not left_out and not optional and in_order and not any(a["keyword_only"] for a in arguments)
    if is_plain and not views:
        return None
    by_name = _by_name(arguments, given, left_out) if in_order else given
    conditions = [f"{a['python']} is None" for a in optional] + [_differs(a) for a in left_out]
    conditions += [condition for view in views for condition in view.conditions()]
    kernels_are_for = _given(optional) + [f"{a['python']} = {a['default']}" for a in left_out]
    kernels_are_for += [words for view in views for words in view.kernels_are_for()]
    own = [a for a in given if a["name"] not in of_sizes]
    return {
        "arguments": [
            {key: a[key] for key in ("name", "python", "annotation", "default", "keyword_only")} for a in arguments
        ],
        "kernels_are_for": kernels_are_for,
        "fallback": [
            *_fallback(conditions, lines.python("        return _function(", _passed(arguments, arguments), ")")),
            *(line for view in views for line in view.first_lines()),
        ],
        "reference": [
            *lines.python("def _reference(", [f"{a['python']}: Any" for a in own], ") -> Any:"),
            '    """reference.py, with the arguments of the operator."""',
            *_call_of_reference(_passed(given, arguments, by_name, views), schema, views),
        ],
        "drawn": [
            {"name": a["name"], "kind": a["kind"], "sample": a["sample"] if a in own else a["python"]} for a in given
        ],
        "split": [],
        **{key: value for view in views for key, value in view.of_signature(own, given).items()},
        "joins": [_applied(views, "join", place) for place in range(len(schema["returns"]))] if views else [],
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


def _with_size(taken: Sequence[str], size: str, arguments: Sequence[str]) -> list[str]:
    """The operator's arguments and one that says a size, in the function's order if the operator has that."""
    if list(taken) != [name for name in arguments if name in taken]:
        return [*taken, size]
    return [name for name in arguments if name in taken or name == size]


def _call_of_reference(passed: list[str], schema: Mapping[str, Any], views: Sequence[View]) -> list[str]:
    """The lines of the operator's reference that call the function, and give its results as the operator has them."""
    results = [result["python"] for result in schema["returns"]]
    changes = [_applied(views, "from_reference", place) for place in range(len(results))]
    is_single = len(results) == 1 and not any(view.names_result for view in views)
    if is_single or not any(changes):
        return lines.python("    return _function(", passed, f"){changes[0]}")
    returned = ", ".join(name + change for name, change in zip(results, changes, strict=True))
    return [*lines.python(f"    {', '.join(results)} = _function(", passed, ")"), f"    return {returned}"]


def _applied(views: Sequence[View], method: str, place: int) -> str:
    """What the views do to the result at a place, one after the other: the first comes last."""
    return "".join(getattr(view, method)(place) for view in reversed(views))


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
    views: Sequence[View] = (),
) -> list[str]:
    """The arguments of a call of the function, with its tensors made of the operator's."""
    named = [a["name"] for a in arguments if a["keyword_only"] or a in by_name]
    values = {a["name"]: a["python"] for a in given}
    for view in views:
        values = {a["name"]: view.in_reference(a, values[a["name"]]) for a in given}
    return [(f"{a['name']}=" if a["name"] in named else "") + values[a["name"]] for a in given]
