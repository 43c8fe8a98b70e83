"""A Python function as the reference of a new operator."""

from __future__ import annotations

import ast
import difflib
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelgen.errors import UsageError
from kernelgen.scaffold.schema.from_python import said_shapes, signature, unsaid
from kernelgen.scaffold.schema.from_python.dependencies import with_dependencies
from kernelgen.scaffold.schema.from_python.source_file import (
    FunctionError,
    SourceFile,
    bound_names,
    global_names,
    own_nodes,
    read_source,
)
from kernelgen.scaffold.schema.model import Schema

# Decorators that change how a function runs but not what it computes; the reference has none of them.
_IGNORED_DECORATORS = (
    "torch.compile",
    "torch.compiler.",
    "torch._dynamo.",
    "torch.fx.wrap",
    "torch.jit.script",
    "torch.jit.ignore",
    "torch.library.custom_op",
    "jaxtyping.jaxtyped",
    "beartype.",
    "typeguard.",
)


@dataclass(frozen=True)
class Reference:
    """A function that computes what an operator shall compute, and the schema of its signature.

    `source` is the text of a file of its own: the imports, helpers and constants that it needs, and the
    function. `packages` are the packages it imports besides Python's own and torch. `shapes` are those that it says of
    its tensors, in annotations of jaxtyping, which the text has no more, or in its docstring. `unsaid` are the
    arguments that have no annotation, and "its result" likewise: their types were assumed. `dtypes` are those that the
    docstring says of tensors that are not of floating-point numbers of any width, by name.
    """

    name: str
    schema: Schema
    source: str
    docstring: str = ""
    packages: tuple[str, ...] = ()
    shapes: str = ""
    unsaid: tuple[str, ...] = ()
    dtypes: Mapping[str, str] = field(default_factory=dict)

    def source_as(self, new_name: str) -> str:
        """`source` with the function under another name.

        If the source calls the old name, the old name becomes an alias. Raises UsageError if the source uses the
        new name for something else.
        """
        if new_name == self.name:
            return self.source
        tree = ast.parse(self.source)
        read, _ = global_names(self.source)
        bound = {name for statement in tree.body for name in bound_names(statement)}
        if not new_name.isidentifier() or keyword.iskeyword(new_name) or new_name in read | bound:
            raise UsageError(f"{self.name} cannot be renamed to {new_name}, which its source uses for something else.")
        function = next(s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name == self.name)
        lines = self.source.split("\n")
        head = lines[function.lineno - 1]
        lines[function.lineno - 1] = re.sub(rf"^def\s+{self.name}\b", f"def {new_name}", head)
        if self.name in read:
            lines[function.end_lineno : function.end_lineno] = ["", "", f"{self.name} = {new_name}"]
        return "\n".join(lines)


def split_spec(spec: str) -> tuple[Path, str]:
    """The file and the function of `FILE.py:FUNCTION`. The last colon counts: a drive letter has one too.

    Raises UsageError if it is not of that form.
    """
    file, colon, name = spec.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise UsageError(f"Write the function as FILE.py:FUNCTION, not {spec!r}.")
    return Path(file), name


def read(path: Path, name: str, mutates: Sequence[str] = ()) -> Reference:
    """Read the function `name` out of the file at `path`, without running or importing it.

    `mutates` names the tensors that the function writes to. Decorators that only change how the function runs
    (torch.compile, torch.jit.script, torch.library.custom_op, …) are left out; any other is refused.

    Raises FunctionError, one sentence that points at the place: no such file or function; a method, a lambda,
    an async function or a generator; a signature that no schema can express; a dependency that the new file
    cannot have.
    """
    file = read_source(path)
    function = _find(file, name)
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        dotted = file.dotted(called) or ast.unparse(called)
        if not dotted.startswith(_IGNORED_DECORATORS):
            sentence = f"What @{ast.unparse(called)} does to {name} is not known here; remove the decorator."
            raise file.error(sentence, decorator)
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(function)):
        raise file.error(f"{name} is a generator; an operator returns its results at once.", function)
    schema = signature.infer(file, function, mutates)
    shapes = signature.shapes(file, function, schema)
    plain = said_shapes.without_shapes(file)
    source, packages = with_dependencies(plain, _find(plain, name))
    docstring = ast.get_docstring(function) or ""
    dtypes = said_shapes.dtypes(docstring, schema)
    return Reference(name, schema, source, docstring, packages, shapes, unsaid.parts(function), dtypes)


def _find(file: SourceFile, name: str) -> ast.FunctionDef:
    """The top-level function `name`; the last statement that binds the name has to define it."""
    binders = [s for s in file.tree.body if name in bound_names(s)]
    if not binders:
        raise _missing(file, name)
    last = binders[-1]
    if isinstance(last, ast.FunctionDef):
        return last
    if isinstance(last, ast.AsyncFunctionDef):
        raise file.error(f"{name} is async; an operator returns its results at once.", last)
    if isinstance(last, (ast.Assign, ast.AnnAssign)) and isinstance(last.value, ast.Lambda):
        raise file.error(f"{name} is a lambda, which has no annotations; write it with def.", last)
    if isinstance(last, (ast.Import, ast.ImportFrom)):
        raise file.error(f"{name} is imported here; name the file that defines it.", last)
    raise file.error(f"{name} is not defined by a plain def at the top of the file.", last)


def _missing(file: SourceFile, name: str) -> FunctionError:
    for parent in ast.walk(file.tree):
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
                if isinstance(parent, ast.ClassDef):
                    return file.error(f"{name} is a method of {parent.name}; write it as a function.", node)
                return file.error(f"{name} is defined inside something else; move it to the top of the file.", node)
    functions = [s.name for s in file.tree.body if isinstance(s, ast.FunctionDef)]
    close = difflib.get_close_matches(name, functions, n=1)
    if close:
        return FunctionError(f"{file.path} has no function {name}; did you mean {close[0]}?")
    listed = f"it has {', '.join(functions)}" if functions else "it has none at its top"
    return FunctionError(f"{file.path} has no function {name}; {listed}.")
