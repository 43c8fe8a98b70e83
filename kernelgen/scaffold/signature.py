"""A type-hinted Python signature, as the operator schema it stands for.

The correspondence is that of `torch.library.infer_schema` (an `int` is a SymInt), widened by what the schema
language has besides: torch.layout, torch.memory_format, lists of str and of dtypes, and defaults that are
lists or constants of the file.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Sequence

from kernelgen.scaffold.python_module import Module
from kernelgen.scaffold.schema import Schema, SchemaError, parse
from kernelgen.scaffold.schema_tokens import quote

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
    # Refused by the schema's own parser, which says what to use instead.
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
_LISTS = {"list", "typing.List", "typing.Sequence", "collections.abc.Sequence"}
_TUPLES = {"tuple", "typing.Tuple", "torch.Size"}
_PLAIN_FLOAT = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def infer(module: Module, function: ast.FunctionDef, mutates: Sequence[str] = ()) -> Schema:
    """The schema of a function of `module`, whose arguments named in `mutates` are written to.

    Raises FunctionError at the argument, default or return annotation that no schema can say.
    """
    signature = function.args
    for bad, what in ((signature.vararg, "*"), (signature.kwarg, "**")):
        if bad:
            raise module.error(f"An operator takes a fixed number of arguments; name those of {what}{bad.arg}.", bad)
    if signature.posonlyargs:
        raise module.error(
            "An operator's arguments have names to call them by; leave out the '/'.", signature.posonlyargs[0]
        )
    defaults = [None] * (len(signature.args) - len(signature.defaults)) + signature.defaults
    known = [a.arg for a in (*signature.args, *signature.kwonlyargs)]
    for name in mutates:
        if name not in known:
            raise module.error(f"{function.name} has no argument {name} to mutate{_perhaps(name, known)}", function)

    words: list[str] = []
    for index, (argument, default) in enumerate(
        zip([*signature.args, *signature.kwonlyargs], [*defaults, *signature.kw_defaults], strict=True)
    ):
        if index == len(signature.args):
            words.append("*")
        alias = f"(a{index}!)" if argument.arg in mutates else ""
        words.append(_argument(module, argument, default, alias))
        star = "*, " if "*" in words else ""
        _check(module, f"({star}{words[-1]}) -> ()", argument)
    result = _result(module, function)
    return _check(module, f"({', '.join(words)}) -> {result}", function.returns)


def _check(module: Module, text: str, node: ast.AST) -> Schema:
    try:
        return parse(text)
    except SchemaError as error:
        raise module.error(error.sentence, node) from None


def _argument(module: Module, argument: ast.arg, default: ast.expr | None, alias: str) -> str:
    if argument.annotation is None:
        sentence = f"{argument.arg} has no annotation; write one, such as `{argument.arg}: Tensor`."
        raise module.error(sentence, argument)
    type = _type(module, argument.annotation, argument.arg)
    if alias:
        word = re.match(r"\w+", type).group()
        type = word + alias + type[len(word) :]
    value = "" if default is None else f"={_default(module, default, argument.arg)}"
    return f"{type} {argument.arg}{value}"


def _result(module: Module, function: ast.FunctionDef) -> str:
    node = function.returns
    if node is None:
        raise module.error(f"{function.name} does not say what it returns; write `-> Tensor`, or `-> None`.", function)
    node = _unstring(module, node)
    if isinstance(node, ast.Constant) and node.value is None:
        return "()"
    items = _subscript(module, node, _TUPLES)
    if items is None:
        return _type(module, node, "the result")
    if any(isinstance(i, ast.Constant) and i.value is Ellipsis for i in items):
        raise module.error("A tuple of any length cannot be returned; write list[Tensor].", function.returns)
    if len(items) == 1:
        raise module.error("An operator that returns one value returns it bare; leave out the tuple.", function.returns)
    return f"({', '.join(_type(module, i, 'the result') for i in items)})"


def _type(module: Module, node: ast.expr, what: str, depth: int = 0) -> str:
    """The schema type that an annotation stands for."""
    node = _unstring(module, node)
    parts = _union(module, node)
    if len(parts) > 1:
        types = [p for p in parts if not (isinstance(p, ast.Constant) and p.value is None)]
        if len(types) == 1 and len(types) < len(parts):
            return _type(module, types[0], what, depth) + "?"
    elif (items := _subscript(module, node, _LISTS)) and len(items) == 1:
        return _type(module, items[0], what, depth) + "[]"
    elif _subscript(module, node, _TUPLES) is not None or module.dotted(node) in _TUPLES:
        raise module.error(f"A tuple is no type of a schema; write a list for {what}, such as list[int].", node)
    else:
        head = node.value if isinstance(node, ast.Subscript) else node
        dotted = module.dotted(head) or ""
        if dotted in _TYPES:
            return _TYPES[dotted]
        if isinstance(node, ast.Name) and depth < 8 and (alias := module.value(node.id)) is not None:
            return _type(module, alias, what, depth + 1)
    raise module.error(_no_type(ast.unparse(node), what), node)


def _no_type(annotation: str, what: str) -> str:
    return (
        f"The annotation {annotation} of {what} is no type of a schema; write Tensor, int, float, bool, str, "
        "torch.dtype or torch.device, with `| None` behind it for optional, or list[…] around it."
    )


def _unstring(module: Module, node: ast.expr) -> ast.expr:
    """An annotation in a string, as the expression it holds; its parts point at the string."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return node
    try:
        parsed = ast.parse(node.value.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise module.error(f"The annotation {node.value!r} is not Python.", node) from None
    for part in ast.walk(parsed):
        ast.copy_location(part, node)
    return parsed


def _union(module: Module, node: ast.expr) -> list[ast.expr]:
    """The alternatives of `X | Y`, Union[X, Y] and Optional[X]; any other annotation is its own only one."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union(module, _unstring(module, node.left)) + _union(module, _unstring(module, node.right))
    if (items := _subscript(module, node, _UNION)) is not None:
        return [part for item in items for part in _union(module, _unstring(module, item))]
    if (items := _subscript(module, node, _OPTIONAL)) is not None and len(items) == 1:
        return [*_union(module, _unstring(module, items[0])), ast.copy_location(ast.Constant(None), node)]
    return [node]


def _subscript(module: Module, node: ast.expr, heads: set[str]) -> list[ast.expr] | None:
    """The parameters of `head[…]` if the head is one of `heads`, else None."""
    if not isinstance(node, ast.Subscript) or module.dotted(node.value) not in heads:
        return None
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _default(module: Module, node: ast.expr, name: str, depth: int = 0) -> str:
    """A default as a schema spells it; whether it fits the type is for the schema's parser to say."""
    if isinstance(node, ast.Constant) and not isinstance(node.value, bytes) and node.value is not Ellipsis:
        return _literal(module, node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return "-" + _default(module, node.operand, name, depth)
    if isinstance(node, (ast.List, ast.Tuple)):
        return f"[{', '.join(_default(module, i, name, depth) for i in node.elts)}]"
    if isinstance(node, ast.Call) and not node.keywords:
        values = [a.value for a in node.args if isinstance(a, ast.Constant)]
        called = module.dotted(node.func)
        if called == "torch.device" and values:
            return quote(":".join(map(str, values)))
        if called == "float" and values and isinstance(values[0], str):
            return values[0].strip("+ ")
    dotted = module.dotted(node) or ""
    if dotted in ("math.inf", "math.nan", "torch.inf", "torch.nan"):
        return dotted.partition(".")[2]
    if dotted.startswith("torch.") and dotted.count(".") == 1:
        return dotted.partition(".")[2]
    if isinstance(node, ast.Name) and depth < 8 and (value := module.value(node.id)) is not None:
        return _default(module, value, name, depth + 1)
    raise module.error(f"The default of {name} is not a literal, nor a dtype such as torch.float32.", node)


def _literal(module: Module, node: ast.Constant) -> str:
    if isinstance(node.value, str):
        return quote(node.value)
    source = ast.get_source_segment(module.text, node) or ""
    # A float keeps the digits it was written with; Python's other spellings, such as 1_000, are not
    # PyTorch's.
    return source if isinstance(node.value, float) and _PLAIN_FLOAT.fullmatch(source) else str(node.value)


def _perhaps(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else "."
