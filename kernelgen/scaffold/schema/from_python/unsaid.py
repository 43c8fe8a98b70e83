"""The types that a function without annotations leaves unsaid, as a schema has them: an argument's by its default, the
results' by what is returned."""

from __future__ import annotations

import ast

from kernelgen.scaffold.schema.from_python.source_file import SourceFile, own_nodes

_TYPES = {bool: "bool", int: "SymInt", float: "float", str: "str", type(None): "Tensor?"}
_FOLLOWED = 8  # Names of constants that stand for each other.


def parts(function: ast.FunctionDef) -> tuple[str, ...]:
    """The arguments without annotations, by name, and `its result` if it has none."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    unsaid = [argument.arg for argument in arguments if argument.annotation is None]
    return (*unsaid, *(["its result"] if function.returns is None else []))


def argument(file: SourceFile, default: ast.expr | None) -> str | None:
    """The type of an argument with this default: Tensor without one; None if the default is no plain value."""
    if default is None:
        return "Tensor"
    for _ in range(_FOLLOWED):
        if isinstance(default, ast.UnaryOp) and isinstance(default.op, (ast.USub, ast.UAdd)):
            default = default.operand
        elif isinstance(default, ast.Name) and (value := file.value(default.id)) is not None:
            default = value
    return _TYPES.get(type(default.value)) if isinstance(default, ast.Constant) else None


def result(function: ast.FunctionDef) -> str | None:
    """Nothing, a tensor, or as many as each return statement names; None if these differ."""
    values = [statement.value for statement in own_nodes(function) if isinstance(statement, ast.Return)]
    counts = {count for value in values for count in _counts(value)} or {0}
    if len(counts) > 1:
        return None
    count = counts.pop()
    return "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"


def _counts(value: ast.expr | None) -> set[int]:
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        return {0}
    if isinstance(value, ast.IfExp):
        return _counts(value.body) | _counts(value.orelse)
    return {len(value.elts) if isinstance(value, ast.Tuple) else 1}
