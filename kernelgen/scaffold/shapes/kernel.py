"""The skeleton of an operator's kernel, for CUDA and for the CPU: the rows that it visits, where each tensor's part of
a row lies, and loops with their bounds. The mathematics is left to write."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kernelgen.scaffold.schema.identifiers import identifiers
from kernelgen.scaffold.shapes import lines
from kernelgen.scaffold.shapes.dtypes import CLASSES, ELEMENTS
from kernelgen.scaffold.shapes.expressions import ONE, Size, operation, product
from kernelgen.scaffold.shapes.glue import member
from kernelgen.scaffold.shapes.operator import Operator, Value

TO_WRITE = "To be written"


@dataclass(frozen=True)
class Visit:
    """What a warp, or a turn of the CPU's loop, works on: a row for each place in `rows`; or, without `rows`, an
    element of all that is written (`flat`)."""

    operator: Operator

    @cached_property
    def rows(self) -> list[Size]:
        """The dimensions that the first tensor, but for its last dimension, and all that is written begin with."""
        shapes = [value.dims for value in self.operator.written]
        if self.operator.first not in self.operator.written:
            shapes.append(self.operator.first.dims[:-1])
        rows = shapes[0]
        for dims in shapes:
            rows = _common(rows, dims)
        if not rows and not self._is_alike:
            # The gradients of a tensor and of a vector of it: the rows are the tensor's.
            rows = _common(shapes[0][:-1], self.operator.first.dims)
        if rows and all(value.dims == rows for value in self.operator.written) and self.operator.first.dims == rows:
            rows = rows[:-1]
        # Each size is a name of its own, so that the place along it has one too.
        plain = next((i for i, dim in enumerate(rows) if not dim.name or dim in rows[:i]), len(rows))
        return rows[:plain]

    @cached_property
    def _is_alike(self) -> bool:
        return all(value.dims == self.operator.written[0].dims for value in self.operator.written)

    @cached_property
    def flat(self) -> bool:
        return not self.rows and self._is_alike and bool(self.operator.written[0].dims)

    @cached_property
    def places(self) -> dict[str, str]:
        """The variable that holds the place along each dimension of the rows."""
        taken = self._taken
        places: dict[str, str] = {}
        for name in dict.fromkeys(dim.name for dim in self.rows):
            short = name.lower()
            places[name] = short if short not in taken | set(places.values()) else f"{name}_place"
        return places

    def row_of(self, value: Value) -> tuple[str, set[str]] | None:
        """The offset of a tensor's part of the row, and the places that it needs; None where there is no offset."""
        dims = value.dims
        if self.rows and dims[: len(self.rows)] == self.rows:
            rest = dims[len(self.rows) :]
            return (f"row * {_factor(product(rest))}" if rest else "row"), set()
        visited = next((i for i, dim in enumerate(dims) if dim.name not in self.places), len(dims))
        if not visited:
            return None
        offset = self.places[dims[0].name]
        for dim in dims[1:visited]:
            inner = f"({offset})" if " " in offset and "+" in offset else offset
            offset = f"{inner} * {member(dim.name)} + {self.places[dim.name]}"
        rest = product(dims[visited:])
        if rest != ONE:
            offset = f"({offset})" if " " in offset else offset
            offset = f"{offset} * {_factor(rest)}"
        return offset, {self.places[dim.name] for dim in dims[:visited]}

    @cached_property
    def row_names(self) -> dict[str, str]:
        """The variable that points to each tensor's part of the row."""
        values = [value.cpp for value in self.operator.read + self.operator.written]
        names = identifiers([f"{value.rstrip('_')}_row" for value in values], frozenset(self._taken))
        return dict(zip(values, names, strict=True))

    @cached_property
    def _taken(self) -> set[str]:
        """Names that mean something else in a kernel."""
        taken = {value.cpp for value in self.operator.tensors + self.operator.results}
        taken |= {name for scalar in self.operator.scalars for _, name in scalar.parameters}
        return taken | {
            "i",
            "j",
            "n",
            "t",
            "row",
            "rows",
            "lane",
            "sizes",
            "step",
            "begin",
            "end",
            *self.operator.size_names,
        }

    def has_rows(self, value: Value) -> bool:
        """Whether each row is a part of the tensor."""
        return value.dims[: len(self.rows)] == self.rows

    def inner(self, value: Value) -> Size | None:
        """How many elements of a row a tensor has; None for a number of each row."""
        rest = value.dims[len(self.rows) :]
        return product(rest) if rest else None


def _common(left: Sequence[Size], right: Sequence[Size]) -> list[Size]:
    count = next((i for i, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), None)
    return list(left[: min(len(left), len(right)) if count is None else count])


def _factor(size: Size) -> str:
    text = size.cpp(member)
    return f"({text})" if size.operation in ("+", "-", "/", "//") else text


# ---- Parts that CUDA and the CPU share


def _places(visit: Visit, needed: set[str]) -> list[str]:
    """The place along each dimension of the rows that an offset needs."""
    if len(visit.rows) == 1:
        place = visit.places[visit.rows[0].name]
        return [f"const int64_t {place} = row;"] if place in needed else []
    declared, inner = [], ONE
    for i, dim in reversed(list(enumerate(visit.rows))):
        place = visit.places[dim.name]
        if place in needed:
            divided = (
                "row" if inner == ONE else f"row / {inner.cpp(member) if inner.name else '(' + inner.cpp(member) + ')'}"
            )
            declared.append(f"const int64_t {place} = {divided}{f' % {member(dim.name)}' if i else ''};")
        inner = dim if inner == ONE else operation("*", dim, inner)
    return list(reversed(declared))


def _rows(visit: Visit, indent: str, glue: bool) -> list[str]:
    """Where each tensor's part of the row begins."""
    pointers, needed = [], set()
    operator = visit.operator
    for value in operator.read + operator.written:
        offset = None if value.is_list else visit.row_of(value)
        if offset is None:
            continue
        text, places = offset
        needed |= places
        pointer = f"{value.cpp} + {text}"
        if value.may_lack or value.needed:
            pointer = f"{value.cpp} ? {pointer} : nullptr"
        const = "" if value in operator.written else "[[maybe_unused]] const "
        pointers.append(f"{const}{{{value.cpp}}}* const {visit.row_names[value.cpp]} = {pointer};")
    typed = _typed(_places(visit, needed) + pointers, operator, glue)
    return [part for line in typed for part in lines.declared(indent + line)]


def _typed(texts: list[str], operator: Operator, glue: bool) -> list[str]:
    """Lines with the type of each tensor's elements in place of `{name}`."""
    types = {f"{{{v.cpp}}}": v.glue if glue else v.kernel for v in operator.tensors + operator.results}
    for placeholder, type in types.items():
        texts = [text.replace(placeholder, type) for text in texts]
    return texts


def _zero(value: Value) -> str:
    if value.dtype in CLASSES:
        return f"{{{value.cpp}}}({'0.0f' if value.dtype == 'float' else '0'})"
    return f"{{{value.cpp}}}(0.0f)" if ELEMENTS[value.dtype].is_floating else "0"


def _writes(visit: Visit, indent: str, loop: str, single: str) -> list[str]:
    """Loops over what is written of a row, one for all tensors that are alike; `loop` is their head, of `{n}`."""
    written = visit.operator.written
    groups: dict[Size | None, list[Value]] = {}
    for value in (value for value in written if visit.has_rows(value)):
        groups.setdefault(visit.inner(value), []).append(value)
    body = []
    for inner, values in groups.items():
        pointers = {v.cpp: visit.row_names[v.cpp] if visit.row_of(v) else v.cpp for v in values}
        if inner is None:
            for value in values:
                pointer = pointers[value.cpp]
                conditions = [*([single] if single else []), *([pointer] if value.needed else [])]
                guard = f"if ({' && '.join(conditions)}) " if conditions else ""
                body.append(f"{indent}{guard}*{pointer} = {_zero(value)};")
            continue
        body.append(indent + loop.replace("{n}", inner.cpp(member)))
        for value in values:
            pointer = pointers[value.cpp]
            guard = f"if ({pointer}) " if value.needed else ""
            body.append(f"{indent}  {guard}{pointer}[j] = {_zero(value)};")
        body.append(f"{indent}}}")
    others = [value for value in written if not visit.has_rows(value)]
    return body + [f"{indent}// {value.cpp}, {value.shape}, has no part of its own in the row." for value in others]


def parameters(operator: Operator, glue: bool = False, restrict: bool = False) -> list[str]:
    """Those of the kernel, of its launcher and of the CPU's loop."""
    # A tensor that is written to may be read as another argument too.
    word = " __restrict__" if restrict and operator.schema.functional else ""
    items = []
    for tensor in operator.read:
        type = tensor.glue if glue else tensor.kernel
        items.append(_list(type) + tensor.cpp if tensor.is_list else f"const {type}*{word} {tensor.cpp}")
    items += [f"{value.glue if glue else value.kernel}*{word} {value.cpp}" for value in operator.written]
    items += [f"{type} {name}" for scalar in operator.scalars for type, name in scalar.parameters]
    return [*items, "const Sizes& sizes"]


def _list(type: str) -> str:
    return f"const std::vector<const {type}*>& "


def template(operator: Operator, more: Sequence[str] = ()) -> list[str]:
    names = [*more, *(f"typename {CLASSES[name].parameter}" for name in operator.classes)]
    return [f"template <{', '.join(names)}>"] if names else []


def _unwritten_note(operator: Operator, what: str) -> list[str]:
    reads = ", ".join(f"{value.cpp}: {value.shape}" for value in operator.read)
    writes = ", ".join(f"{value.cpp}: {value.shape}" for value in operator.written)
    return _comment([what, "", f"{reads} -> {writes}."])


def _comment(paragraphs: list[str]) -> list[str]:
    wrapped = [line for text in paragraphs for line in textwrap.wrap(text, lines.WIDTH - 3) or [""]]
    return [f"// {line}".rstrip() for line in wrapped]


# ---- CUDA


def cuda(operator: Operator) -> list[str]:
    """The kernel of kernel.cu."""
    visit = Visit(operator)
    lists = [tensor for tensor in operator.tensors if tensor.is_list]
    own = [item for item in parameters(operator, restrict=True) if not item.startswith("const std::vector")]
    own[-1] = "Sizes sizes"
    head = template(operator, ["typename Tuned"])
    name = f"{operator.op}_{operator.direction}"
    bounds = "__global__ void __launch_bounds__(Tuned::threads)"
    in_line, below = lines.cpp(f"{bounds} {name}(", own, ") {"), lines.cpp(f"    {name}(", own, ") {")
    head += [bounds, *below] if len(in_line) > 1 and len(below) == 1 else in_line
    if visit.flat:
        note = _unwritten_note(operator, f"{TO_WRITE}: each thread computes an element at a time.")
        count = product(operator.written[0].dims).cpp(member)
        body = [
            *lines.declared(f"  const int64_t n = {count};"),
            "  const int64_t step = int64_t(gridDim.x) * Tuned::threads;",
            "  for (int64_t i = int64_t(blockIdx.x) * Tuned::threads + threadIdx.x; i < n; i += step) {",
            *(f"    {_guard(v)}{v.cpp}[i] = {_zero(v)};" for v in operator.written),
            "  }",
        ]
    else:
        note = _unwritten_note(operator, f"{TO_WRITE}: each warp computes a row at a time; {_row_is(visit)}.")
        body = [
            "  const int lane = threadIdx.x % kWarp;",
            *lines.declared(f"  const int64_t rows = {product(visit.rows).cpp(member)};"),
            "  const int64_t warps = Tuned::threads / kWarp;",
            "  const int64_t first = blockIdx.x * warps + threadIdx.x / kWarp;",
            "  for (int64_t row = first; row < rows; row += gridDim.x * warps) {",
            *_rows(visit, "    ", glue=False),
            *_writes(visit, "    ", "for (int64_t j = lane; j < {n}; j += kWarp) {", "lane == 0"),
            "  }",
        ]
    if lists:
        note += _comment([f"The launcher has {', '.join(t.cpp for t in lists)}: pass a kernel what it needs of it."])
    return [*note, *head, *_typed(body, operator, glue=False), "}"]


def _guard(value: Value) -> str:
    return f"if ({value.cpp}) " if value.needed else ""


def _row_is(visit: Visit) -> str:
    names = ", ".join("the leading dimensions" if name == "leading" else name for name in visit.places)
    return f"a row is a place along {names}" if names else "there is one row"


def launcher(operator: Operator) -> list[str]:
    """The launcher at the end of kernel.cu."""
    visit = Visit(operator)
    count = product(operator.written[0].dims if visit.flat else visit.rows).cpp(member)
    own = [value.cpp for value in operator.read + operator.written if not value.is_list]
    own += [name for scalar in operator.scalars for _, name in scalar.parameters] + ["sizes"]
    types = ", ".join(["Tuned", *(CLASSES[name].parameter for name in operator.classes)])
    what, per_block = ("elements", "Tuned::threads") if visit.flat else ("rows", "Tuned::threads / kWarp")
    return [
        *template(operator),
        *lines.cpp(f"cudaError_t {operator.direction}(", [*parameters(operator), "cudaStream_t stream"], ") {"),
        f"  return tuned::{operator.op}::visit<Defaults>([&](auto tuned_values) {{",
        "    using Tuned = decltype(tuned_values);",
        *lines.declared(f"    const int64_t {what} = {count};"),
        f"    const int64_t per_block = {per_block};",
        f"    const int64_t blocks = std::clamp<int64_t>(({what} + per_block - 1) / per_block, 1, kMaxBlocks);",
        f"    const auto kernel = {operator.op}_{operator.direction}<{types}>;",
        *lines.cpp("    kernel<<<blocks, Tuned::threads, 0, stream>>>(", own, ");"),
        "    return cudaGetLastError();",
        "  });",
        "}",
    ]


def instantiation(operator: Operator) -> list[str]:
    """The launcher for the types that the build compiles a file for."""
    if not operator.classes:
        return []
    items = []
    instances = {CLASSES[name].parameter: f"INSTANCE_{CLASSES[name].parameter}" for name in operator.classes}
    for tensor in operator.read:
        type = instances.get(tensor.kernel, tensor.kernel)
        items.append(_list(type).rstrip() if tensor.is_list else f"const {type}*")
    items += [f"{instances.get(value.kernel, value.kernel)}*" for value in operator.written]
    items += [type for scalar in operator.scalars for type, _ in scalar.parameters]
    return lines.cpp(f"template cudaError_t {operator.direction}(", [*items, "const Sizes&", "cudaStream_t"], ");")


def declaration(operator: Operator) -> list[str]:
    """The launcher in kernel.h."""
    end = [*parameters(operator), "cudaStream_t stream"]
    return [*template(operator), *lines.cpp(f"cudaError_t {operator.direction}(", end, ");")]


# ---- The CPU


def cpu(operator: Operator) -> list[str]:
    """The loop of cpu.cpp."""
    visit = Visit(operator)
    head = [*template(operator), *lines.cpp(f"void {operator.direction}(", parameters(operator, glue=True), ") {")]
    if visit.flat:
        note = _unwritten_note(operator, f"{TO_WRITE}: each turn computes an element.")
        body = [
            *lines.declared(f"  const int64_t n = {product(operator.written[0].dims).cpp(member)};"),
            "  torch::stable::parallel_for(0, n, grain(), [&](int64_t begin, int64_t end) {",
            "    for (int64_t i = begin; i < end; ++i) {",
            *(f"      {_guard(v)}{v.cpp}[i] = {_zero(v)};" for v in operator.written),
        ]
    else:
        note = _unwritten_note(operator, f"{TO_WRITE}: each turn computes a row; {_row_is(visit)}.")
        work = max((v.dims[len(visit.rows) :] for v in operator.written), key=len)
        elements = product(work).cpp(member)
        body = [
            *lines.declared(f"  const int64_t rows = {product(visit.rows).cpp(member)};"),
            *lines.declared(f"  const int64_t elements = {elements};"),
            "  const int64_t rows_per_thread = std::max<int64_t>(1, grain() / std::max<int64_t>(1, elements));",
            "  torch::stable::parallel_for(0, rows, rows_per_thread, [&](int64_t begin, int64_t end) {",
            "    for (int64_t row = begin; row < end; ++row) {",
            *_rows(visit, "      ", glue=True),
            *_writes(visit, "      ", "for (int64_t j = 0; j < {n}; ++j) {", ""),
        ]
    return [*note, *head, *_typed(body, operator, glue=True), "    }", "  });", "}"]
