"""The record of an op that is made from a schema, whose shapes are given or assumed."""

from dataclasses import replace
from typing import Any

from kernelgen.errors import UsageError
from kernelgen.lab.new_op import SHAPED
from kernelgen.lab.new_op.request import NewOp
from kernelgen.scaffold.project import Project
from kernelgen.scaffold.schema.model import Schema
from kernelgen.scaffold.schema.parser import parse as parse_schema
from kernelgen.scaffold.shapes.entry import assumed, shaped
from kernelgen.scaffold.shapes.parser import parse


def from_schema(op: NewOp, text: str) -> dict[str, Any]:
    """The record of an op of the schema `text`, such as "(Tensor x, float eps=1e-6) -> Tensor".

    Raises:
        UsageError: it is no schema, or the op's options do not fit it.
    """
    schema = _of_the_op(parse_schema(text), op.name, op.home)
    op.check_options(schema)
    shapes_text = assumed(schema) if op.shapes is None else op.shapes
    if shapes_text is None and op.backward is not None:
        raise UsageError(f"--backward needs the shapes of {schema.text}; write them as --shapes.")
    if schema.operator is not None and (op.shapes is not None or op.backward is not None):
        raise UsageError(
            f"--shapes and --backward are for operators of their op's name, which {schema.operator} is not."
        )
    if shapes_text is None or schema.operator is not None or not op.template_knows_shapes():
        return {"name": op.name, "recipe": "blank", "schema": schema.entry()}
    shapes = parse(shapes_text, schema)
    if op.shapes is None:
        op.note(f'assumed --shapes "{shapes.text}": give others where the tensors have other shapes or dtypes')
    return {"name": op.name, "recipe": SHAPED} | shaped(op.name, shapes, op.backward)


def _of_the_op(schema: Schema, name: str, home: Project) -> Schema:
    """The schema, with the operator's name where it is not the op's.

    Raises:
        UsageError: the schema names an operator that is no variant of the op, or another op's.
    """
    if schema.operator in (None, name):
        return replace(schema, operator=None)
    base = schema.operator.partition(".")[0]
    if not name.startswith(base.rstrip("_")):
        raise UsageError(
            f"The schema is of an operator {schema.operator}, and the op is to be called {name}: leave the operator's "
            f"name out, or let the op's name begin with {base.rstrip('_')}."
        )
    for op in home.ops:
        if schema.operator in (op["name"], op.get("schema", {}).get("operator")):
            raise UsageError(f"The operator {schema.operator} is there already, in the op {op['name']}.")
    return schema
