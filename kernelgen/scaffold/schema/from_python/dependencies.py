"""A function with all it depends on, as a file of its own: imports, helpers and constants."""

from __future__ import annotations

import ast
import builtins
import copy
import sys

from kernelgen.scaffold.schema.from_python.source_file import SourceFile, bound_names, global_names

_BUILT_IN = {*dir(builtins), "__name__", "__doc__", "__file__"}
# Packages that every project has: Python's own, and torch.
_INSTALLED = {*sys.stdlib_module_names, "torch", "__future__"}


def with_dependencies(file: SourceFile, function: ast.FunctionDef) -> tuple[str, tuple[str, ...]]:
    """The text of a file for `function` alone, and the packages it imports besides Python's and torch.

    The text holds the function, without decorators, and the statements that it depends on, in their order in
    `file`. Statements that bind no name, such as `torch.manual_seed(0)`, are left out.

    Raises FunctionError at a name that the new file cannot have: one bound nowhere, imported relatively or
    from a file beside `file`, or written through `global`.
    """
    bare = _undecorated(function)
    statements = [s for s in file.tree.body if function.name not in bound_names(s)] + [function]
    statements.sort(key=lambda s: (s.lineno, s.col_offset))
    binders: dict[str, list[ast.stmt]] = {}
    for statement in statements:
        for name in bound_names(statement):
            binders.setdefault(name, []).append(statement)

    names: set[str] = {function.name}
    reached = {id(function): function}
    queue: list[ast.stmt] = [function]
    while queue:
        statement = queue.pop()
        _check_imports(file, statement, names)
        for name in _names_read(file, bare if statement is function else statement) - names:
            names.add(name)
            for binder in binders.get(name, []):
                _check_imports(file, binder, {name})
                if id(binder) not in reached:
                    reached[id(binder)] = binder
                    queue.append(binder)
            if name not in binders and name not in _BUILT_IN:
                raise file.error(_not_defined(file, name), _first_use(statement, name))
    kept = [s for s in statements if id(s) in reached or _is_future(s)]
    return _format(file, kept, function, names), _packages(kept, names)


def _undecorated(function: ast.FunctionDef) -> ast.FunctionDef:
    bare = copy.copy(function)
    bare.decorator_list = []
    return bare


def _names_read(file: SourceFile, statement: ast.stmt) -> set[str]:
    """The global names that a statement reads, those in quoted annotations included."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return set()
    read, written = global_names(ast.unparse(statement))
    if written:
        name = min(written)
        place = next(n for n in ast.walk(statement) if isinstance(n, ast.Global) and name in n.names)
        raise file.error(f"{name} is written as a global; an operator has no state between calls.", place)
    for node in ast.walk(statement):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(annotation, ast.AST):
                read |= _names_in_strings(file, annotation)
    return read


def _names_in_strings(file: SourceFile, annotation: ast.AST) -> set[str]:
    """The names in the quoted parts of an annotation. A string in brackets may be a value, as in Literal["mean"], or
    dimensions: it is a name where the file binds that."""
    if isinstance(annotation, ast.Constant):
        return _names_in_string(annotation.value) if isinstance(annotation.value, str) else set()
    strings = [n.value for n in ast.walk(annotation) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    names = {name for string in strings for name in _names_in_string(string)}
    return names & {name for statement in file.tree.body for name in bound_names(statement)} if names else names


def _names_in_string(annotation: str) -> set[str]:
    try:
        parsed = ast.parse(annotation, mode="eval")
    except SyntaxError:
        return set()
    return {n.id for n in ast.walk(parsed) if isinstance(n, ast.Name)}


def _first_use(statement: ast.stmt, name: str) -> ast.AST:
    names = (n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name)
    return min(names, key=lambda n: (n.lineno, n.col_offset), default=statement)


def _not_defined(file: SourceFile, name: str) -> str:
    for node in file.tree.body:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            star = f"from {'.' * node.level}{node.module or ''} import *"
            return f"{name} is not defined in this file; if it comes from `{star}`, import it by name."
    return f"{name} is not defined in this file."


def _check_imports(file: SourceFile, statement: ast.stmt, names: set[str]) -> None:
    """Refuse an import that would fail in another folder; of a top-level one only `names` matter."""
    imports = (n for n in ast.walk(_trimmed(statement, names)) if isinstance(n, (ast.Import, ast.ImportFrom)))
    for node in imports:
        for root in _roots(node) if node.names else ():
            if root == ".":
                cure = "import by the full name, or copy the code here"
                raise file.error(f"A relative import would fail in the op's folder; {cure}.", node)
            beside = file.path.parent / root
            if root in _INSTALLED or not (beside.with_suffix(".py").exists() or (beside / "__init__.py").exists()):
                continue
            sentence = f"{root} is beside this file and would not be beside the op; copy its code here."
            raise file.error(sentence, node)


def _roots(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The top-level packages that an import names; "." for a relative one."""
    if isinstance(node, ast.Import):
        return [a.name.partition(".")[0] for a in node.names]
    return ["." if node.level else (node.module or "").partition(".")[0]]


def _packages(statements: list[ast.stmt], names: set[str]) -> tuple[str, ...]:
    packages = set()
    for statement in statements:
        for node in ast.walk(_trimmed(statement, names)):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                packages.update(_roots(node))
    return tuple(sorted(packages - _INSTALLED))


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _trimmed(statement: ast.stmt, names: set[str]) -> ast.stmt:
    """An import of those of `names` that it binds; any other statement as it is."""
    if not isinstance(statement, (ast.Import, ast.ImportFrom)) or _is_future(statement):
        return statement
    trimmed = copy.copy(statement)
    trimmed.names = [a for a in statement.names if (a.asname or a.name.partition(".")[0]) in names]
    return trimmed


def _format(file: SourceFile, kept: list[ast.stmt], function: ast.FunctionDef, names: set[str]) -> str:
    """Future imports, Python's own, other imports, then the rest in the file's order, with blank lines as in PEP 8."""
    imports = [s for s in kept if isinstance(s, (ast.Import, ast.ImportFrom))]
    future = [ast.unparse(s) for s in imports if _is_future(s)]
    plain = [_trimmed(s, names) for s in imports if not _is_future(s)]
    own = [ast.unparse(s) for s in plain if sys.stdlib_module_names.issuperset(_roots(s))]
    others = [ast.unparse(s) for s in plain if not sys.stdlib_module_names.issuperset(_roots(s))]
    text = "\n\n".join("\n".join(block) for block in (future, own, others) if block)
    after_definition = False
    for statement in kept:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            continue
        definition = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        gap = "\n\n\n" if definition or after_definition else "\n\n"
        source = file.source(statement, decorated=statement is not function)
        text += (gap if text else "") + source
        after_definition = definition
    return text + "\n"
