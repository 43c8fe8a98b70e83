"""The operator schema of a Python signature, by its type hints, and by defaults and returned values where it has none.

Types correspond as in `torch.library.infer_schema` (an `int` is a SymInt). Also taken are torch.layout,
torch.memory_format, lists of str and of dtypes, and defaults that are lists or constants of the file.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Sequence
from dataclasses import replace

from kernelgen.scaffold.schema.errors import SchemaError
from kernelgen.scaffold.schema.from_python import constants, said_shapes, unsaid
from kernelgen.scaffold.schema.from_python.container import container_of
from kernelgen.scaffold.schema.from_python.source_file import SourceFile
from kernelgen.scaffold.schema.model import Container, Schema
from kernelgen.scaffold.schema.parser import parse
from kernelgen.scaffold.schema.tokens import quote

_TYPES = {
    "torch.Tensor": "Tensor",
    "int": "SymInt",
    "torch.SymInt": "SymInt",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "torch.dtype": "ScalarType",
    "torch.device": "Device",
    "torch.layout": "Layout",
    "torch.memory_format": "MemoryFormat",
    # The schema's parser refuses these, and says what to use instead.
    "torch.types.Number": "Scalar",
    "numbers.Number": "Scalar",
    "complex": "complex",
    "torch.Generator": "Generator",
    "torch.Stream": "Stream",
    "torch.cuda.Stream": "Stream",
    "torch.Storage": "Storage",
    "torch.UntypedStorage": "Storage",
    "torch.SymFloat": "SymFloat",
    "torch.SymBool": "SymBool",
    "dict": "Dict",
    "typing.Dict": "Dict",
    "typing.Any": "Any",
}
_OPTIONAL = {"typing.Optional", "typing_extensions.Optional"}
_UNION = {"typing.Union", "typing_extensions.Union"}
_LITERAL = {"typing.Literal", "typing_extensions.Literal"}
_LISTS = {"list", "typing.List", "typing.Sequence", "collections.abc.Sequence"}
_TUPLES = {"tuple", "typing.Tuple", "torch.Size"}
_PLAIN_FLOAT = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def infer(file: SourceFile, function: ast.FunctionDef, mutates: Sequence[str] = ()) -> Schema:
    """The schema of a function of `file`, which writes to its arguments named in `mutates`.

    Raises FunctionError at the argument, default or return annotation that no schema can express.
    """
    signature = function.args
    for variadic, stars in ((signature.vararg, "*"), (signature.kwarg, "**")):
        if variadic:
            cure = f"take a list in place of *{variadic.arg}, such as list[Tensor]" if stars == "*" else None
            cure = cure or f"name those of {stars}{variadic.arg}"
            sentence = f"An operator takes a fixed number of arguments; {cure}."
            raise file.error(sentence, variadic)
    if signature.posonlyargs:
        raise file.error(
            "An operator's arguments have names to call them by; leave out the '/'.", signature.posonlyargs[0]
        )
    defaults = [None] * (len(signature.args) - len(signature.defaults)) + signature.defaults
    known = [a.arg for a in (*signature.args, *signature.kwonlyargs)]
    for name in mutates:
        if name not in known:
            raise file.error(f"{function.name} has no argument {name} to mutate{_suggestion(name, known)}", function)

    words: list[str] = []
    for index, (argument, default) in enumerate(
        zip([*signature.args, *signature.kwonlyargs], [*defaults, *signature.kw_defaults], strict=True)
    ):
        if index == len(signature.args):
            words.append("*")
        alias = f"(a{index}!)" if argument.arg in mutates else ""
        words.append(_argument(file, argument, default, alias))
        star = "*, " if "*" in words else ""
        _check(file, f"({star}{words[-1]}) -> ()", argument)
    result, container = _result(file, function)
    return replace(_check(file, f"({', '.join(words)}) -> {result}", function.returns), container=container)


def shapes(file: SourceFile, function: ast.FunctionDef, schema: Schema) -> str:
    """The shapes that the function's annotations give to all its tensors, as `--shapes` has them; else its docstring's;
    else an empty string."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    annotations = {a.arg: _unstring(file, a.annotation) for a in arguments if a.annotation is not None}
    node = _unstring(file, function.returns) if function.returns is not None else None
    container = node is not None and container_of(file, node)
    results = container[1] if container else _subscript(file, node, _TUPLES) or ([] if node is None else [node])
    results = [_unstring(file, result) for result in results]
    annotated = said_shapes.of_annotations(file, annotations, results, schema)
    return annotated or said_shapes.of_docstring(ast.get_docstring(function) or "", schema)


def _check(file: SourceFile, text: str, node: ast.AST) -> Schema:
    try:
        return parse(text)
    except SchemaError as error:
        raise file.error(error.sentence, node) from None


def _argument(file: SourceFile, argument: ast.arg, default: ast.expr | None, alias: str) -> str:
    if argument.annotation is not None:
        type = _type(file, argument.annotation, argument.arg)
    elif (type := unsaid.argument(file, default)) is None:
        sentence = f"{argument.arg} has no annotation; write one, such as `{argument.arg}: Tensor`."
        raise file.error(sentence, argument)
    if alias:
        word = re.match(r"\w+", type).group()
        type = word + alias + type[len(word) :]
    value = "" if default is None else f"={_default(file, default, argument.arg)}"
    return f"{type} {argument.arg}{value}"


def _result(file: SourceFile, function: ast.FunctionDef) -> tuple[str, Container | None]:
    """The results as a schema has them, and the class that the function returns them in, if any."""
    node = function.returns
    if node is None:
        if (result := unsaid.result(function)) is None:
            sentence = (
                f"{function.name} returns now one number of results, now another; write it so that all are alike."
            )
            raise file.error(sentence, function)
        return result, None
    node = _unstring(file, node)
    if isinstance(node, ast.Constant) and node.value is None:
        return "()", None
    if (results := container_of(file, node)) is not None:
        container, annotations = results
        fields = zip(container.fields, annotations, strict=True)
        words = [f"{_type(file, annotation, f'{container.name}.{name}')} {name}" for name, annotation in fields]
        return (words[0] if len(words) == 1 else f"({', '.join(words)})"), container
    head = node.value if isinstance(node, ast.Subscript) else node
    if _TYPES.get(file.dotted(head) or "") == "Dict":
        raise file.error(
            "An operator returns no dict; return a tuple, or a NamedTuple or a dataclass that names the results.", node
        )
    items = _subscript(file, node, _TUPLES)
    if items is None:
        return _type(file, node, "the result"), None
    if any(isinstance(i, ast.Constant) and i.value is Ellipsis for i in items):
        raise file.error("A tuple of any length cannot be returned; write list[Tensor].", function.returns)
    if len(items) == 1:
        raise file.error("An operator that returns one value returns it bare; leave out the tuple.", function.returns)
    return f"({', '.join(_type(file, i, 'the result') for i in items)})", None


def _type(file: SourceFile, node: ast.expr, subject: str, depth: int = 0) -> str:
    """The schema type of an annotation."""
    node = _unstring(file, node)
    if (annotation := said_shapes.annotation_of(file, node)) is not None:
        return _type(file, annotation[0], subject, depth)
    parts = _union(file, node)
    if len(parts) > 1:
        types = [p for p in parts if not (isinstance(p, ast.Constant) and p.value is None)]
        optional = "?" if len(types) < len(parts) else ""
        if len(types) == 1 and optional:
            return _type(file, types[0], subject, depth) + optional
        if {_TYPES.get(file.dotted(type) or "") for type in types} == {"SymInt", "float"}:
            return "float" + optional  # As Python's typing has it, an int is a float.
    elif values := _subscript(file, node, _LITERAL):
        types = {type(value.value).__name__ for value in values if isinstance(value, ast.Constant)}
        if types in ({"str"}, {"int"}, {"bool"}):
            return _TYPES[types.pop()]
    elif (items := _subscript(file, node, _LISTS)) and len(items) == 1:
        return _type(file, items[0], subject, depth) + "[]"
    elif (items := _subscript(file, node, _TUPLES)) is not None or file.dotted(node) in _TUPLES:
        return _list_of(file, node, items or [], subject, depth)
    else:
        head = node.value if isinstance(node, ast.Subscript) else node
        dotted = file.dotted(head) or ""
        if dotted in _TYPES:
            return _TYPES[dotted]
        if isinstance(node, ast.Name) and depth < 8 and (alias := file.value(node.id)) is not None:
            return _type(file, alias, subject, depth + 1)
    raise file.error(_no_type(ast.unparse(node), subject), node)


def _list_of(file: SourceFile, node: ast.expr, items: list[ast.expr], subject: str, depth: int) -> str:
    """The list that stands for an argument that is a tuple of items of one type: an operator takes either."""
    named = [item for item in items if not (isinstance(item, ast.Constant) and item.value is Ellipsis)]
    types = {_type(file, item, subject, depth) for item in named} if subject != "the result" else set()
    if len(types) != 1:
        sentence = f"A tuple is no type of a schema; write a list for {subject}, such as list[int]"
        raise file.error(f"{sentence}, or an argument for each item." if len(types) > 1 else f"{sentence}.", node)
    return types.pop() + "[]"


def _no_type(annotation: str, subject: str) -> str:
    return (
        f"The annotation {annotation} of {subject} is no type of a schema; write Tensor, int, float, bool, str, "
        "torch.dtype or torch.device, with `| None` behind it for optional, or list[…] around it."
    )


def _unstring(file: SourceFile, node: ast.expr) -> ast.expr:
    """An annotation without its quotes, if it has some; the expression's nodes are located at the string."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return node
    try:
        parsed = ast.parse(node.value.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise file.error(f"The annotation {node.value!r} is not Python.", node) from None
    for part in ast.walk(parsed):
        ast.copy_location(part, node)
    return parsed


def _union(file: SourceFile, node: ast.expr) -> list[ast.expr]:
    """The alternatives of `X | Y`, Union[X, Y] and Optional[X]; any other annotation alone."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union(file, _unstring(file, node.left)) + _union(file, _unstring(file, node.right))
    if (items := _subscript(file, node, _UNION)) is not None:
        return [part for item in items for part in _union(file, _unstring(file, item))]
    if (items := _subscript(file, node, _OPTIONAL)) is not None and len(items) == 1:
        return [*_union(file, _unstring(file, items[0])), ast.copy_location(ast.Constant(None), node)]
    return [node]


def _subscript(file: SourceFile, node: ast.expr, heads: set[str]) -> list[ast.expr] | None:
    """The parameters of `head[…]` if the head is one of `heads`, else None."""
    if not isinstance(node, ast.Subscript) or file.dotted(node.value) not in heads:
        return None
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _default(file: SourceFile, node: ast.expr, name: str, depth: int = 0) -> str:
    """A default as a schema spells it; the schema's parser checks that it fits the type."""
    if isinstance(node, ast.Constant) and not isinstance(node.value, bytes) and node.value is not Ellipsis:
        return _literal(file, node)
    is_negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    if is_negative and isinstance(node.operand, (ast.Constant, ast.Call, ast.Name, ast.Attribute)):
        return "-" + _default(file, node.operand, name, depth)
    if isinstance(node, (ast.List, ast.Tuple)):
        return f"[{', '.join(_default(file, i, name, depth) for i in node.elts)}]"
    if isinstance(node, ast.Call) and not node.keywords:
        values = [a.value for a in node.args if isinstance(a, ast.Constant)]
        called = file.dotted(node.func)
        if called == "torch.device" and values:
            return quote(":".join(map(str, values)))
        if called == "float" and values and isinstance(values[0], str):
            return values[0].strip("+ ")
    dotted = file.dotted(node) or ""
    if dotted in ("math.inf", "math.nan", "torch.inf", "torch.nan"):
        return dotted.partition(".")[2]
    if dotted.startswith("torch.") and dotted.count(".") == 1:
        return dotted.partition(".")[2]
    if isinstance(node, ast.Name) and depth < 8 and (value := file.value(node.id)) is not None:
        return _default(file, value, name, depth + 1)
    if (value := constants.number(file, node)) is not None:
        return repr(value)
    raise file.error(f"The default of {name} is not a literal, nor a dtype such as torch.float32.", node)


def _literal(file: SourceFile, node: ast.Constant) -> str:
    if isinstance(node.value, str):
        return quote(node.value)
    source = ast.get_source_segment(file.text, node) or ""
    # A float keeps its digits. Python's other spellings, such as 1_000.0, are not PyTorch's.
    return source if isinstance(node.value, float) and _PLAIN_FLOAT.fullmatch(source) else str(node.value)


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else "."
