"""What a function takes along when it leaves its file: the imports, helpers and constants that it needs."""

from __future__ import annotations

import ast
import builtins
import copy
import sys

from kernelgen.scaffold.python_module import Module, bound_names, global_names

_ALWAYS_THERE = {*dir(builtins), "__name__", "__doc__", "__file__"}
# Roots of imports that every project has.
_AT_HAND = {*sys.stdlib_module_names, "torch", "__future__"}


def carry(module: Module, function: ast.FunctionDef) -> tuple[str, tuple[str, ...]]:
    """A file of its own for `function`, and the packages it imports besides Python's and torch.

    It holds the function, without decorators, and all that it needs, in the order of its old file. A
    statement that binds nothing, such as `torch.manual_seed(0)`, stays behind.

    Raises FunctionError at a name that is bound nowhere or cannot come along: one from a relative import,
    from a file beside this one, or written through `global`.
    """
    bare = _undecorated(function)
    statements = [s for s in module.tree.body if function.name not in bound_names(s)] + [function]
    statements.sort(key=lambda s: (s.lineno, s.col_offset))
    binders: dict[str, list[ast.stmt]] = {}
    for statement in statements:
        for name in bound_names(statement):
            binders.setdefault(name, []).append(statement)

    wanted: set[str] = {function.name}
    taken = {id(function): function}
    queue: list[ast.stmt] = [function]
    while queue:
        statement = queue.pop()
        _check_imports(module, statement, wanted)
        for name in _needs(module, bare if statement is function else statement) - wanted:
            wanted.add(name)
            for binder in binders.get(name, []):
                _check_imports(module, binder, {name})
                if id(binder) not in taken:
                    taken[id(binder)] = binder
                    queue.append(binder)
            if name not in binders and name not in _ALWAYS_THERE:
                raise module.error(_nowhere(module, name), _mention(statement, name))
    kept = [s for s in statements if id(s) in taken or _is_future(s)]
    return _lay_out(module, kept, function, wanted), _packages(kept, wanted)


def _undecorated(function: ast.FunctionDef) -> ast.FunctionDef:
    bare = copy.copy(function)
    bare.decorator_list = []
    return bare


def _needs(module: Module, statement: ast.stmt) -> set[str]:
    """The global names a statement reads; annotations in strings count where they parse."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return set()
    read, written = global_names(ast.unparse(statement))
    if written:
        name = min(written)
        place = next(n for n in ast.walk(statement) if isinstance(n, ast.Global) and name in n.names)
        raise module.error(f"{name} is written as a global; an operator keeps nothing from call to call.", place)
    for node in ast.walk(statement):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            for part in ast.walk(annotation) if isinstance(annotation, ast.AST) else ():
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    read |= _names_in_string(part.value)
    return read


def _names_in_string(annotation: str) -> set[str]:
    try:
        parsed = ast.parse(annotation, mode="eval")
    except SyntaxError:
        return set()
    return {n.id for n in ast.walk(parsed) if isinstance(n, ast.Name)}


def _mention(statement: ast.stmt, name: str) -> ast.AST:
    names = (n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name)
    return min(names, key=lambda n: (n.lineno, n.col_offset), default=statement)


def _nowhere(module: Module, name: str) -> str:
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            star = f"from {'.' * node.level}{node.module or ''} import *"
            return f"{name} is not defined in this file; if it comes from `{star}`, import it by name."
    return f"{name} is not defined in this file."


def _check_imports(module: Module, statement: ast.stmt, wanted: set[str]) -> None:
    """Refuse an import that would fail in another folder; of a top-level one only `wanted` names matter."""
    imports = (n for n in ast.walk(_trimmed(statement, wanted)) if isinstance(n, (ast.Import, ast.ImportFrom)))
    for node in imports:
        for root in _roots(node) if node.names else ():
            if root == ".":
                cure = "import by the full name, or bring the code here"
                raise module.error(f"A relative import cannot come along; {cure}.", node)
            beside = module.path.parent / root
            if root in _AT_HAND or not (beside.with_suffix(".py").exists() or (beside / "__init__.py").exists()):
                continue
            raise module.error(f"{root} lies beside this file and cannot come along; bring its code here.", node)


def _roots(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The top-level packages that an import names; "." for a relative one."""
    if isinstance(node, ast.Import):
        return [a.name.partition(".")[0] for a in node.names]
    return ["." if node.level else (node.module or "").partition(".")[0]]


def _packages(statements: list[ast.stmt], wanted: set[str]) -> tuple[str, ...]:
    found = set()
    for statement in statements:
        for node in ast.walk(_trimmed(statement, wanted)):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                found.update(_roots(node))
    return tuple(sorted(found - _AT_HAND))


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _trimmed(statement: ast.stmt, wanted: set[str]) -> ast.stmt:
    """An import without the names that nothing here wants; any other statement as it is."""
    if not isinstance(statement, (ast.Import, ast.ImportFrom)) or _is_future(statement):
        return statement
    trimmed = copy.copy(statement)
    trimmed.names = [a for a in statement.names if (a.asname or a.name.partition(".")[0]) in wanted]
    return trimmed


def _lay_out(module: Module, kept: list[ast.stmt], function: ast.FunctionDef, wanted: set[str]) -> str:
    """Futures, then imports, Python's own first, then the rest in the file's order, spaced as Python is."""
    imports = [s for s in kept if isinstance(s, (ast.Import, ast.ImportFrom))]
    future = [ast.unparse(s) for s in imports if _is_future(s)]
    plain = [_trimmed(s, wanted) for s in imports if not _is_future(s)]
    own = [ast.unparse(s) for s in plain if sys.stdlib_module_names.issuperset(_roots(s))]
    others = [ast.unparse(s) for s in plain if not sys.stdlib_module_names.issuperset(_roots(s))]
    text = "\n\n".join("\n".join(block) for block in (future, own, others) if block)
    was_definition = False
    for statement in kept:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            continue
        definition = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        gap = "\n\n\n" if definition or was_definition else "\n\n"
        source = module.source(statement, decorated=statement is not function)
        text += (gap if text else "") + source
        was_definition = definition
    return text + "\n"
