"""A Python file, parsed and never run: what its names stand for, and errors that point into it."""

from __future__ import annotations

import ast
import functools
import symtable
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernelgen.errors import UsageError
from kernelgen.scaffold.schema.errors import line_with_caret


class FunctionError(UsageError):
    """A function that cannot become an operator: `file:line: sentence`, then that line with a caret."""


class SourceFile:
    """A parsed file. `imports` maps each imported name to the dotted path that it stands for.

    Raises FunctionError if the file cannot be read or parsed.
    """

    def __init__(self, path: Path, text: str | None = None) -> None:
        """`text` is what to read in place of the file's own."""
        self.path = path
        self.text = _read(path) if text is None else text
        self.lines = self.text.split("\n")
        try:
            self.tree = ast.parse(self.text)
        except SyntaxError as error:
            line, column = error.lineno or 1, error.offset or 1
            raise self._error(f"This is not Python: {error.msg}.", line, column - 1) from None
        except ValueError as error:
            raise FunctionError(f"{path} is not Python: {error}.") from None
        self.imports = dict(_imports(self.tree.body))

    def error(self, sentence: str, node: ast.AST) -> FunctionError:
        """An error that points at `node`."""
        before = self.lines[node.lineno - 1].encode()[: node.col_offset]
        return self._error(sentence, node.lineno, len(before.decode(errors="replace")))

    def _error(self, sentence: str, line: int, column: int) -> FunctionError:
        source = self.lines[min(line, len(self.lines)) - 1]
        return FunctionError(
            f"{self.path}:{line}: {sentence}\n{line_with_caret(source, max(0, min(column, len(source))))}"
        )

    def offset(self, node: ast.AST, end: bool = False) -> int:
        """Where in the text a node begins or ends."""
        line, column = (node.end_lineno, node.end_col_offset) if end else (node.lineno, node.col_offset)
        before = self.lines[line - 1].encode()[:column].decode()
        return sum(len(text) + 1 for text in self.lines[: line - 1]) + len(before)

    def dotted(self, node: ast.AST) -> str | None:
        """The dotted path of a name or attribute, such as `torch.Tensor` for `T`; None for other code."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, node.id)
        if isinstance(node, ast.Attribute) and (owner := self.dotted(node.value)):
            return f"{owner}.{node.attr}"
        return None

    def value(self, name: str) -> ast.expr | None:
        """What the file assigns to a global name; None unless a single plain assignment binds it."""
        binders = [s for s in self.tree.body if name in bound_names(s)]
        if len(binders) != 1 or not isinstance(binders[0], (ast.Assign, ast.AnnAssign)):
            return None
        targets = binders[0].targets if isinstance(binders[0], ast.Assign) else [binders[0].target]
        return binders[0].value if isinstance(targets[0], ast.Name) else None

    def source(self, statement: ast.stmt, decorated: bool = True) -> str:
        """The source of a top-level statement, with its decorators and the comments right above it."""
        decorators = getattr(statement, "decorator_list", [])
        first = decorators[0].lineno if decorated and decorators else statement.lineno
        last = statement.end_lineno or first
        if any(s is not statement and s.lineno <= last and (s.end_lineno or 0) >= first for s in self.tree.body):
            return ast.unparse(statement)  # A semicolon joins it to another statement on its line.
        while first > 1 and self.lines[first - 2].startswith("#") and not self.lines[first - 2].startswith("#!"):
            first -= 1
        return "\n".join(self.lines[first - 1 : last])


def read_source(path: Path) -> SourceFile:
    """A file, which is parsed again only where its text is another: a large one takes 0.03 s.

    Raises FunctionError as SourceFile does.
    """
    return _parsed(path, _read(path))


@functools.lru_cache(maxsize=4)
def _parsed(path: Path, text: str) -> SourceFile:
    return SourceFile(path, text)


# Asked of every statement of a file for each name that is looked up.
@functools.lru_cache(maxsize=1024)
def bound_names(statement: ast.stmt) -> frozenset[str]:
    """The global names that a top-level statement binds."""
    table = symtable.symtable(ast.unparse(statement), "<statement>", "exec")
    return frozenset(s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported())


def global_names(source: str) -> tuple[set[str], set[str]]:
    """The global names that `source` reads, and those that a function in it assigns through `global`."""
    read: set[str] = set()
    written: set[str] = set()

    def visit(table: symtable.SymbolTable) -> None:
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                read.add(symbol.get_name())
            if symbol.is_assigned() and symbol.is_declared_global():
                written.add(symbol.get_name())
        for child in table.get_children():
            visit(child)

    visit(symtable.symtable(source, "<source>", "exec"))
    return read, written


def _read(path: Path) -> str:
    try:
        with tokenize.open(path) as file:
            return file.read()
    except FileNotFoundError:
        raise FunctionError(f"There is no file {path}.") from None
    except OSError as error:
        raise FunctionError(f"The file {path} cannot be read: {error.strerror}.") from None
    except (SyntaxError, UnicodeDecodeError):
        raise FunctionError(f"The file {path} is not text in the encoding that it declares.") from None


def _imports(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Each name that the statements import outside functions and classes, with its dotted path."""
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (root, root)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{'.' * node.level}{node.module or ''}.{alias.name}"
        elif isinstance(node, (ast.If, ast.Try)):
            blocks = [node.body, node.orelse, getattr(node, "finalbody", [])]
            for block in [*blocks, *(h.body for h in getattr(node, "handlers", []))]:
                yield from _imports(block)


def own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function's body, without those of functions and classes inside it."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            stack.extend(ast.iter_child_nodes(node))
