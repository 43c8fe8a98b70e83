"""Gives the C++ glue the schemas that Python defines, so that a static_assert can compare the two."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from .messages import BuildError


def schemas(init: Path) -> dict[str, str]:
    """The SCHEMAS of an op, read from its `__init__.py` without importing it.

    Raises:
        BuildError: the file is no Python, or SCHEMAS is not spelled out in it.
    """
    try:
        module = ast.parse(init.read_text(encoding="utf-8"), str(init))
    except SyntaxError as error:
        raise BuildError(f"{init}, line {error.lineno}: {error.msg}.") from None
    for node in module.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["SCHEMAS"]:
            try:
                return ast.literal_eval(node.value)
            except ValueError:
                break
    raise BuildError(f'{init} needs a literal SCHEMAS = {{"name": "(Tensor x) -> Tensor"}}.')


def schema_header(init: Path) -> str:
    """`schemas/OP.h`: the name and the schema of each operator as string constants."""
    lines = [f"// Written by build_tools from {init}.", "#pragma once", ""]
    for name, schema in schemas(init).items():
        identifier = name.replace(".", "_")
        lines.append(f"inline constexpr char {identifier}_operator[] = {json.dumps(name)};")
        lines.append(f"inline constexpr char {identifier}_schema[] = {json.dumps(schema)};")
    return "\n".join(lines) + "\n"
