"""A class of results: a NamedTuple or a dataclass that a function of `--from` returns, read from its file."""

from __future__ import annotations

import ast

from kernelgen.scaffold.schema.from_python.source_file import SourceFile
from kernelgen.scaffold.schema.model import Container

_NAMED_TUPLE = {"typing.NamedTuple", "typing_extensions.NamedTuple"}
_DATACLASS = "dataclasses.dataclass"


def container_of(file: SourceFile, node: ast.expr) -> tuple[Container, list[ast.expr]] | None:
    """The class that an annotation names, with the annotation of each field; None if the file defines no such class.

    Raises FunctionError at a class that is no NamedTuple and no dataclass, or whose fields a call cannot give.
    """
    if not isinstance(node, ast.Name):
        return None
    definition = next((s for s in file.tree.body if isinstance(s, ast.ClassDef) and s.name == node.id), None)
    if definition is None:
        return None
    is_dataclass = _is_dataclass(file, definition)
    bases = [file.dotted(base) for base in definition.bases]
    if is_dataclass == bool(bases) or not (is_dataclass or set(bases) <= _NAMED_TUPLE):
        raise file.error(
            f"{definition.name} is no NamedTuple and no dataclass without bases; return one of these, or a tuple.", node
        )
    fields = [s for s in definition.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
    for field in fields:
        if "ClassVar" in ast.unparse(field.annotation) or isinstance(field.value, ast.Call):
            raise file.error(f"{definition.name} has a field that is no plain result; leave it out.", field)
    if not fields:
        raise file.error(f"{definition.name} has no fields; give each result one, such as `mean: Tensor`.", definition)
    container = Container(definition.name, tuple(field.target.id for field in fields), is_dataclass)
    return container, [field.annotation for field in fields]


def _is_dataclass(file: SourceFile, definition: ast.ClassDef) -> bool:
    called = [d.func if isinstance(d, ast.Call) else d for d in definition.decorator_list]
    return any(file.dotted(decorator) == _DATACLASS for decorator in called)
