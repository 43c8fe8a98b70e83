"""The shapes that a function says of its tensors, in annotations of jaxtyping or in its docstring, as of `--shapes`.

Annotations are read as text: neither kernelgen nor a project needs jaxtyping.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence

from kernelgen.scaffold.schema.from_python.source_file import SourceFile
from kernelgen.scaffold.schema.model import Schema
from kernelgen.scaffold.shapes.parser import ShapesError, parse

_PACKAGE = "jaxtyping."
# The dtype of an annotation as --shapes has it: of floating-point numbers of any width it says nothing.
_DTYPES = {
    **dict.fromkeys(("Float", "Inexact", "Num", "Real", "Shaped"), ""),
    **{name: name.lower() for name in ("Float16", "Float32", "Float64", "BFloat16", "Bool")},
    **{name: name.lower() for name in ("Int8", "UInt8", "Int16", "Int32", "Int64")},
    **dict.fromkeys(("Int", "Integer"), "int64"),
}
# Of these a function says when its tensors are not of floating-point numbers of any width.
_OTHER_DTYPE = re.compile(r"\b(float8_e4m3fn|float8_e5m2|int8|uint8|int16|int32|int64|bool)\b")
_DIM = re.compile(r"(?:\w+|[-+*/()])+")
_DTYPE = re.compile(r"\b(float16|bfloat16|float32|float64|int8|uint8|int16|int32|int64|bool)\b")
# A shape in prose: "of shape (B, S)", "shape [B, S]"; or what follows the argument's colon at once.
_IN_PROSE = re.compile(r"\bshapes?\b[^(\[\n]*[(\[]([^()\[\]]*)[)\]]", re.IGNORECASE)
_AT_ONCE = re.compile(r"\s*[(\[]([^()\[\]]*)[)\]]")
_RETURNS = re.compile(r"^\s*(?:Returns?|Outputs?):?\s*$|^\s*:returns?:|^\s*Returns?: ", re.MULTILINE)


def annotation_of(file: SourceFile, node: ast.AST) -> tuple[ast.expr, str, str] | None:
    """Of `Float[Tensor, "batch dim"]` the array's type, the name `Float` and the text of its shape; else None."""
    if not isinstance(node, ast.Subscript):
        return None
    name = file.dotted(node.value) or ""
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    is_shape = len(items) == 2 and isinstance(items[1], ast.Constant) and isinstance(items[1].value, str)
    if not name.startswith(_PACKAGE) or not is_shape:
        return None
    return items[0], name.removeprefix(_PACKAGE), items[1].value


@functools.lru_cache(maxsize=4)
def without_shapes(file: SourceFile) -> SourceFile:
    """The file with each annotation's array in place of the annotation."""
    spans = []
    for node in ast.walk(file.tree):
        if (said := annotation_of(file, node)) is not None:
            spans.append((file.offset(node), file.offset(node, end=True), ast.unparse(said[0])))
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(annotation, ast.Constant) and (bare := _bare(file, annotation.value)):
                spans.append((file.offset(annotation), file.offset(annotation, end=True), f'"{bare}"'))
    text = file.text
    for start, end, array in sorted(spans, reverse=True):
        text = text[:start] + array + text[end:]
    return SourceFile(file.path, text) if spans else file


def _bare(file: SourceFile, annotation: object) -> str:
    """A quoted annotation with each array in place of its annotation; an empty string where there is none."""
    try:
        tree = ast.parse(annotation, mode="eval") if isinstance(annotation, str) else None
    except SyntaxError:
        return ""
    if tree is None or not any(annotation_of(file, node) for node in ast.walk(tree)):
        return ""

    class Bare(ast.NodeTransformer):
        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
            said = annotation_of(file, node)
            return said[0] if said else self.generic_visit(node)

    return ast.unparse(Bare().visit(tree))


def of_annotations(
    file: SourceFile, arguments: dict[str, ast.expr], results: Sequence[ast.expr], schema: Schema
) -> str:
    """`--shapes` of a function whose tensors and results all are annotated; else an empty string."""
    tensors = [argument.name for argument in schema.arguments if argument.type.is_tensor]
    if not arguments.keys() >= set(tensors) or len(results) != len(schema.returns):
        return ""
    said = [_said(file, arguments[name]) for name in tensors]
    returned = [_said(file, node) for node in results]
    if not said or None in said or None in returned:
        return ""
    variadic = {dim for _, shape in (*said, *returned) for dim in shape.split() if dim.startswith("*") or dim == "..."}
    anonymous = (f"any{i}" for i in range(1, 100))
    shapes = [_what(dtype, shape.split(), anonymous) for dtype, shape in (*said, *returned)]
    if len(variadic) > 1 or None in shapes:
        return ""
    return _text(tensors, shapes, schema)


def _said(file: SourceFile, annotation: ast.expr) -> tuple[str, str] | None:
    """The name and the text of the only annotation of jaxtyping in there."""
    inside = [said for node in ast.walk(annotation) if (said := annotation_of(file, node)) is not None]
    return inside[0][1:] if len(inside) == 1 and inside[0][1] in _DTYPES else None


def _what(dtype: str, words: Sequence[str], anonymous: Iterator[str]) -> str | None:
    """A shape and its dtype as --shapes has them; None for one that it cannot say, such as one that broadcasts."""
    dims = []
    for i, word in enumerate(words):
        word = word.partition("=")[2] or word
        if word == "..." or word.startswith("*"):
            if i:
                return None
            dims.append("...")
        elif word == "_":
            dims.append(next(anonymous))
        elif _DIM.fullmatch(word):
            dims.append(word)
        else:
            return None
    return f"{' '.join(dims) or '()'} {_DTYPES.get(dtype, dtype)}".rstrip()


def of_docstring(docstring: str, schema: Schema) -> str:
    """`--shapes` of a function whose docstring gives the shape of each tensor and result; else an empty string.

    Either a line of it is what --shapes takes, such as `q: B S H D; cos, sin: S D -> B S H D`, or each argument is
    described by Google's, NumPy's or Sphinx's conventions, from `NAME:`, `NAME (…):` or `:param NAME:`.
    """
    if line := _line_of_shapes(docstring, schema):
        return line
    tensors = [argument.name for argument in schema.arguments if argument.type.is_tensor]
    head, returns, tail = _split(docstring)
    said = [_described(head, name) for name in tensors]
    matches = list(_IN_PROSE.finditer(tail)) if returns else []
    if len(schema.returns) == 1 and not matches and (at_once := _AT_ONCE.match(tail)):
        matches = [at_once]
    if not said or None in said or len(matches) != len(schema.returns):
        return ""
    ends = [match.start() for match in matches[1:]] + [len(tail)]
    returned = [(m[1], tail[m.start() : end].partition("\n\n")[0]) for m, end in zip(matches, ends, strict=True)]
    shapes = [_prose_what(dims, text) for dims, text in (*said, *returned)]
    return "" if None in shapes else _text(tensors, shapes, schema)


def _line_of_shapes(docstring: str, schema: Schema) -> str:
    """The first line that gives the shape of every tensor as --shapes does, or an empty string."""
    for line in (line.strip().strip("`") for line in docstring.splitlines() if "->" in line):
        try:
            parse(line, schema)
        except ShapesError:
            continue
        return line
    return ""


def dtypes(docstring: str, schema: Schema) -> dict[str, str]:
    """The dtypes of tensors of integers, truth values and numbers of 8 bits that a docstring says, by name: in the
    description of an argument, or in a sentence as "q: int8 (M, N), scale: (M, 1)"."""
    head, _, _ = _split(docstring)
    said = {}
    for name in (argument.name for argument in schema.arguments if argument.type.is_tensor):
        word = re.escape(name)
        in_sentence = re.search(rf"\b{word}(?:, \w+)*: *([^;\n]*?)(?=, \w+(?:, \w+)*:|;|\n|$)", head)
        described = re.search(rf"\b{word} *\(([^()\n]*)\) *:", head)
        for match in filter(None, (in_sentence, described)):
            if dtype := _OTHER_DTYPE.search(match[1]):
                said.setdefault(name, dtype[0])
    return said


def _split(docstring: str) -> tuple[str, bool, str]:
    """A docstring before and after where it begins to say what is returned."""
    match = _RETURNS.search(docstring)
    if match is None:
        return docstring, False, ""
    tail = re.split(r"^\s*(?:Raises|Notes?|Examples?):?\s*$", docstring[match.end() :], flags=re.MULTILINE)[0]
    return docstring[: match.start()], True, tail.replace("-------", "")


def _described(text: str, name: str) -> tuple[str, str] | None:
    """The dimensions that a docstring gives an argument, and all that it says of it."""
    start = re.search(rf"^([ \t]*)(?::param\s+(?:\w+\s+)?)?{re.escape(name)}\b[ \t]*(?=[:(])", text, re.MULTILINE)
    if start is None:
        return None
    lines = text[start.end() :].split("\n")
    deeper = re.compile(rf"{start[1]}[ \t]+\S")
    count = next((i for i, line in enumerate(lines[1:], 1) if not deeper.match(line)), len(lines))
    described = "\n".join(lines[:count])
    match = _IN_PROSE.search(described) or _AT_ONCE.match(described.partition(":")[2])
    return (match[1], described) if match else None


def _prose_what(dims: str, text: str) -> str | None:
    words = [re.sub(r"\s", "", word) for word in dims.split(",") if word.strip()]
    words = ["..." if word in ("*", "…") else word for word in words]
    dtype = _DTYPE.search(text)
    return _what(dtype[0] if dtype else "", words, iter(()))


def _text(tensors: Sequence[str], shapes: Sequence[str], schema: Schema) -> str:
    arguments = "; ".join(f"{name}: {shape}" for name, shape in zip(tensors, shapes, strict=False))
    results = shapes[len(tensors) :]
    if any(result.name for result in schema.returns):
        results = [f"{r.name}: {shape}" for r, shape in zip(schema.returns, results, strict=True)]
        return f"{arguments} -> {'; '.join(results)}"
    return f"{arguments} -> {', '.join(results)}"
