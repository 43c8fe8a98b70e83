"""A graph with reductions of rows as lines of C++: each reduction and the results are passes over the row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula.expressions import FLOAT8
from kernelgen.scaffold.formula.graph import COORDINATES_OF_ROW, FormulaGraph, Name, Node, Number, Value
from kernelgen.scaffold.formula.lines import WIDTH, Writer, free_name

_PASSES = {
    "row_sum": "sum",
    "row_amax": "max",
    "row_amin": "min",
    "row_argmax": "argmax",
    "row_argmin": "argmin",
    "row_prod": "product",
}
# Running totals, and the pass that computes and uses them.
_RUNNING = {
    "running_sum": "write_running_sums",
    "running_sum_back": "write_running_sums_back",
    "running_product": "write_running_products",
    "running_product_back": "write_running_products_back",
    "running_max": "write_running_maxima",
    "running_max_back": "write_running_maxima_back",
    "running_min": "write_running_minima",
    "running_min_back": "write_running_minima_back",
    "running_log_sum": "write_running_log_sums",
    "running_log_sum_back": "write_running_log_sums_back",
}
# Functions that are worth keeping between passes on a CPU, which computes a pass after another; and about how many
# instructions they take on a GPU, where any other operator takes one.
_FUNCTIONS = {
    **dict.fromkeys(("exp", "exp2"), 3),
    **dict.fromkeys(("tanh", "log1p"), 10),
    **dict.fromkeys(("log", "log2", "log10"), 12),
    **dict.fromkeys(("pow", "sin", "cos", "erf"), 20),
    "sigmoid": 5,
    "expm1": 8,
    "erfc": 30,
    "quotient": 6,
    "cancelled": 4,
}
_KEPT_FUNCTIONS = _FUNCTIONS.keys() - {"quotient", "cancelled"}
# So many instructions of functions, or all else, are many: a GPU holds what is kept in registers if it has so many, and
# passes compute fewer others again; else it computes it again too. On an H100 a divergence of whose terms half was held
# took 1.15 of its time.
_MANY = 10
# The row whose passes take what is kept of an element first.
_KEPT = "kept"
# How the row takes results that are not of elements, but numbers of rows.
_CALLS = {"term": "add", "total": "put_total", "wide total": "put_wide_total", "wide row": "put_wide"}
_CALLS |= {"saved row": "save", "saved total": "save"}
_CALLS_BY_DTYPE = {"int": "put_place", "int64": "put_place", "bool": "put_flag"}
# Numbers of the rows themselves, by the names that formulas have for them.
_OF_ROWS = {"columns": "size", "row_count": "count", "batch": "batch", "line": "line"}
# What a row calls its numbers, and those that all rows have in common.
_MEMBERS = ("number", "wide_number", "saved", "place", "flag", "given", "wide_given", "saved_total", "total")
# The most sums of one pass.
_MOST_SUMS = 4
# The deepest indentation of a pass's lines.
_INNER = 8
# The names that a formula of rows uses.
_USED = ("row", "Row", "place", _KEPT, *_OF_ROWS)
# The place of an element in its row, among the names of a graph, and as a number.
PLACE = "place"
_PLACES = {PLACE, COORDINATES_OF_ROW[-1].text}


@dataclass
class Part:
    """What a pass computes: values, from those that are known before it."""

    outputs: list[Value]
    known: frozenset[int] = frozenset()

    def nodes(self) -> list[Node]:
        reached: dict[int, Node] = {}
        pending = list(self.outputs)
        while pending:
            value = pending.pop()
            if isinstance(value, Node) and value.index not in reached and value.index not in self.known:
                reached[value.index] = value
                pending += value.arguments
        return [reached[index] for index in sorted(reached)]


def lines(
    graph: FormulaGraph,
    inputs: Sequence[str],
    results: Sequence[tuple[str, str]],
    row_inputs: Sequence[tuple[str, str]],
    taken: Iterable[str],
) -> list[str]:
    """The body of a function of a row.

    Args:
        inputs: the C++ names of the tensors, in the order in which the row passes their elements on.
        results: the C++ name of each of the graph's outputs, and its kind: element, row for a number or a place of each
            row, term for what the row adds to a sum over all, or total for what is computed of such sums; wide before
            row or total: of float32, whatever the elements are; saved before them: for the gradient alone.
        row_inputs: the names of the tensors with a number, or a place, for each row, and of numbers that all rows have
            in common; and how the row calls them: number, place, flag, given or total, and
            wide_number or wide_given where they are of float32, whatever the elements are; saved or saved_total where
            the forward saved them.
        taken: names that variables cannot have.
    """
    return _Rows(graph, inputs, results, row_inputs, taken).write()


def reductions(body: Iterable[str]) -> int:
    """How many passes over a row the lines of a function are, beside the one that writes results."""
    return sum(
        len(re.findall(r"\b(?:row|kept)\.(?:sums?|max|min|argmax|argmin|product|write_running_\w+)\(", line))
        for line in body
    )


def holds(body: Iterable[str]) -> bool:
    """Whether the lines of a function have a GPU's registers hold what is computed of each element."""
    return any("row.hold" in line for line in body)


def read_by_reductions(graph: FormulaGraph) -> set[str]:
    """The C++ names of the tensors that some reduction reads."""
    read: set[str] = set()
    for node in graph.nodes():
        if node.op in _PASSES or node.op in _RUNNING:
            nodes = Part([node.arguments[0]]).nodes()
            values = [node.arguments[0], *(argument for inner in nodes for argument in inner.arguments)]
            read |= {value.text for value in values if isinstance(value, Name)}
    return read


@dataclass
class Place:
    """The element of a row at a place, of which a value is computed; `otherwise` where the row has no such place."""

    place: Value
    value: Value
    otherwise: Value


def place_of(node: Node) -> Place | None:
    """What a sum takes of one element, if it is a choice by the place: others are 0, or what tells of a bad place."""
    chosen = node.arguments[0] if node.op == "row_sum" else None
    if not isinstance(chosen, Node) or chosen.op != "where":
        return None
    is_there, value, otherwise = chosen.arguments
    if not isinstance(is_there, Node) or is_there.op != "eq":
        return None
    is_zero = isinstance(otherwise, Number) and otherwise.value == 0
    if not is_zero and not (isinstance(otherwise, Node) and otherwise.op == "checked_zero"):
        return None
    places = [a for a in is_there.arguments if isinstance(a, Name) and a.text == PLACE]
    others = [a for a in is_there.arguments if a not in places and a.kind == "row" and a.dtype == "int"]
    return Place(others[0], value, otherwise) if places and others else None


def is_pass(node: Node) -> bool:
    """Whether it is a reduction of a row, rather than a choice of one of its elements."""
    return node.op in _PASSES and place_of(node) is None


def _last_opening(call: str) -> int:
    """Where the arguments of a call begin whose last one is a lambda: all of them, if others are short names."""
    lambda_at = call.index("[")
    before = call[:lambda_at]
    return call.index("(") + 1 if before.endswith(", ") and before.count(",") == 1 else lambda_at


def _call(kind: str, value: Value) -> str:
    """The member of a row that takes a result of this kind."""
    return _CALLS.get(kind) or _CALLS_BY_DTYPE.get(value.dtype, "put")


def _type_of_result(value: Value) -> str:
    """The type of a result in a formula: rows on a CPU take a code as a number, those on a GPU as the byte it is."""
    return "auto" if value.dtype in ("int8", "uint8", *FLOAT8) else "Number"


class _Rows:
    def __init__(
        self,
        graph: FormulaGraph,
        inputs: Sequence[str],
        results: Sequence[tuple[str, str]],
        row_inputs: Sequence[tuple[str, str]],
        taken: Iterable[str],
    ) -> None:
        self.graph, self.inputs, self.results, self.row_inputs = graph, inputs, results, row_inputs
        self.taken = {*taken, *_USED}
        self.of_row = [node for node in graph.nodes() if node.kind in ("row", "scalar", "total")]
        self.writer = Writer(Part(self._values_of_row()), self.taken, 2)
        self.names: dict[int, str] = {}
        self.text: list[str] = []
        self.kept = self._worth_keeping()

    def write(self) -> list[str]:
        for name, member in _OF_ROWS.items():
            if name in self.graph.names():
                self.text.append(f"const Number {name} = row.{member}();")
        for member in _MEMBERS:
            kind = {"place": "int64_t", "flag": "bool"}.get(member, "Number")
            for i, name in enumerate(name for name, called in self.row_inputs if called == member):
                self.text.append(f"const {kind} {name} = row.{member}({i});")
        for nodes in self._steps():
            if len(nodes) > 1:
                self._several_sums(nodes)
            elif place := place_of(nodes[0]):
                self._at(nodes[0], place)
            elif nodes[0].op in _PASSES:
                self._reduction(nodes[0])
            elif self._is_needed_by_elements(nodes[0]):
                self._declare(nodes[0])
        self._element_results()
        pairs = zip(self.results, self.graph.outputs, strict=True)
        calls = [(_call(kind, value), value) for (_, kind), value in pairs if kind != "element"]
        for call in dict.fromkeys(("put", "put_place", "put_flag", *_CALLS.values())):
            for i, value in enumerate(value for chosen, value in calls if chosen == call):
                expression = self.writer.shared(value, 16)
                self.text += [*self.writer.take(), f"row.{call}({i}, {expression.text});"]
        return self.text

    def _steps(self) -> list[list[Node]]:
        """The numbers of a row in the order in which they are computed; sums that need no other of them are a step."""
        level: dict[int, int] = {}
        for node in self.graph.nodes():
            below = max((level[a.index] for a in node.arguments if isinstance(a, Node)), default=0)
            level[node.index] = below + is_pass(node)
        self._join_sums(level)
        ordered = sorted(self.of_row, key=lambda node: (level[node.index], not is_pass(node), node.index))
        steps: list[list[Node]] = []
        for node in ordered:
            last = steps[-1] if steps else []
            has_room = 0 < len(last) < _MOST_SUMS and all(n.op == "row_sum" and is_pass(n) for n in (node, last[0]))
            if has_room and level[node.index] == level[last[0].index]:
                last.append(node)
            else:
                steps.append([node])
        return steps

    def _join_sums(self, level: dict[int, int]) -> None:
        """Moves the sums of a level to a later one that has room for them, before anybody needs them: a pass less."""
        sums = [node for node in self.graph.nodes() if node.op == "row_sum" and is_pass(node)]
        for first in sorted({level[node.index] for node in sums}):
            moving = [node for node in sums if level[node.index] == first]
            users = {user.index: user for node in moving for user in self._users_of(node)}.values()
            needed = min((level[user.index] for user in users if is_pass(user)), default=None)
            later = [level[node.index] for node in sums if level[node.index] > first]
            room = [
                place
                for place in later
                if later.count(place) + len(moving) <= _MOST_SUMS and (needed is None or place < needed)
            ]
            if moving and room:
                # What stands between a sum and the passes that need it moves along.
                for node in (*moving, *(user for user in users if not is_pass(user))):
                    level[node.index] = max(level[node.index], min(room))

    def _users_of(self, node: Node) -> list[Node]:
        """All nodes that need it, near or far."""
        reached = {node.index}
        users = []
        for other in self.graph.nodes():
            if any(isinstance(a, Node) and a.index in reached for a in other.arguments):
                reached.add(other.index)
                users.append(other)
        return users

    def _worth_keeping(self) -> Node | None:
        """What passes compute of an element again whose functions take most instructions, and of such the least."""
        nodes = self.graph.nodes()
        if _PLACES & self.graph.names() or any(node.op in _RUNNING for node in nodes):
            return None
        needs = self._needs()
        again = {
            node.index: (sum(node.index in needed for needed in needs) - 1) * self._instructions(node)
            for node in nodes
            if node.kind == "element" and node.dtype == "float" and self._has_function(node)
        }
        most = max(again.values(), default=0)
        return next((node for node in nodes if most > 0 and again.get(node.index) == most), None)

    def _needs(self) -> list[set[int]]:
        """What each pass computes of an element, by the indices of the nodes."""
        reductions = [step for step in self._steps() if is_pass(step[0])]
        passes = [[node.arguments[0] for node in step] for step in reductions]
        passes.append([v for (_, kind), v in zip(self.results, self.graph.outputs, strict=True) if kind == "element"])
        return [{node.index for node in Part(values, self._indices_of_row()).nodes()} for values in passes]

    def _is_worth_registers(self, node: Node) -> bool:
        needs, kept = self._needs(), {n.index for n in Part([node], self._indices_of_row()).nodes()}
        others = [n for n in self.graph.nodes() if n.index not in kept and sum(n.index in need for need in needs) > 1]
        return self._instructions(node) >= _MANY and sum(_FUNCTIONS.get(n.op, 1) for n in others) < _MANY

    def _has_function(self, node: Node) -> bool:
        return any(inner.op in _KEPT_FUNCTIONS for inner in Part([node], self._indices_of_row()).nodes())

    def _instructions(self, node: Node) -> int:
        """Those of its functions."""
        return sum(_FUNCTIONS.get(inner.op, 0) for inner in Part([node], self._indices_of_row()).nodes())

    def _row_of(self, values: list[Value]) -> str:
        """The row that a pass over these values is a call of."""
        if self.kept is None or self.kept not in self._part(values).nodes():
            return "row"
        if self.kept.index not in self.names:
            self._keep(self.kept)
        return _KEPT

    def _keep(self, node: Node) -> None:
        """Writes what is kept of an element; if no number of its row decides it, rows may have it in common."""
        name = self.writer.reserve(node)
        body = self._body([node], lambda texts: [f"return {texts[0]};"])
        arguments = [a for inner in Part([node], self._indices_of_row()).nodes() for a in inner.arguments]
        read = {argument.text for argument in arguments if isinstance(argument, Name)}
        places = [place for place, tensor in enumerate(self.inputs) if tensor in read]
        is_of_row = any(isinstance(a, Name | Node) and a.kind in ("row", "total") for a in arguments)
        parameters = ", ".join(f"Number {self.inputs[place]}" for place in places)
        member = ("hold" if self._is_worth_registers(node) else "keep") + ("" if is_of_row else "_for_rows")
        inputs = f"Inputs<{', '.join(map(str, places))}>()"
        self._call(f"auto {_KEPT} = row.{member}({inputs}, [&]({parameters}) {{", body)
        self.names[node.index] = name

    def _indices_of_row(self) -> frozenset[int]:
        return frozenset(node.index for node in self.of_row)

    def _part(self, values: list[Value]) -> Part:
        """What a pass computes, with what is kept, if it needs that."""
        return Part(values, frozenset(self.names) - ({self.kept.index} if self.kept else set()))

    def _values_of_row(self) -> list[Value]:
        """What is computed once a row: the results of the row, and what passes over elements need."""
        outputs = [v for (_, kind), v in zip(self.results, self.graph.outputs, strict=True) if kind != "element"]
        needed = [node for node in self.of_row if node.op in _PASSES or self._is_needed_by_elements(node)]
        values: list[Value] = [*outputs, *needed]
        for node in needed:
            if node.op not in _PASSES:
                values += node.arguments
        return values

    def _is_needed_by_elements(self, node: Node) -> bool:
        users = [other for other in self.graph.nodes() if node in other.arguments]
        return any(user.kind == "element" or user.op in _PASSES for user in users)

    def _declare(self, node: Node) -> None:
        expression = self.writer.declare(node)
        self.text += self.writer.take()
        self.names[node.index] = expression.text

    def _reduction(self, node: Node) -> None:
        row = self._row_of([node.arguments[0]])
        name = self.writer.reserve(node)
        body = self._body([node.arguments[0]], lambda expressions: [f"return {expressions[0]};"])
        kind = "int64_t" if node.dtype == "int" else "Number"
        start = f"const {kind} {name} = {row}.{_PASSES[node.op]}([&]({self._parameters([node.arguments[0]])}) {{"
        self._call(start, body)
        self.writer.known(node, name)
        self.names[node.index] = name

    def _at(self, node: Node, place: Place) -> None:
        """A value of one element, which is no pass."""
        name = self.writer.reserve(node)
        arguments = [self.writer.expression(value, 16).text for value in (place.place, place.otherwise)]
        body = self._body([place.value], lambda expressions: [f"return {expressions[0]};"])
        parameters = self._parameters([place.value])
        self.text += self.writer.take()
        self._call(f"const Number {name} = row.at({', '.join(arguments)}, [&]({parameters}) {{", body)
        self.writer.known(node, name)
        self.names[node.index] = name

    def _several_sums(self, nodes: Sequence[Node]) -> None:
        """One pass for all of them."""
        values = [node.arguments[0] for node in nodes]
        row = self._row_of(values)
        names = [self.writer.reserve(node) for node in nodes]
        terms = [f"{name}_term" for name in names]
        body = self._body(values, lambda texts: [f"{n} = {t};" for n, t in zip(terms, texts, strict=True)])
        given = self._parameters(values)
        parameters = ", ".join([*([given] if given else []), *(f"Number& {term}" for term in terms)])
        self.text.append(f"Number {', '.join(names)};")
        self._call(f"{row}.sums({', '.join(names)}, [&]({parameters}) {{", body)
        for node, name in zip(nodes, names, strict=True):
            self.writer.known(node, name)
            self.names[node.index] = name

    def _element_results(self) -> None:
        chosen = [(n, v) for (n, kind), v in zip(self.results, self.graph.outputs, strict=True) if kind == "element"]
        if not chosen:
            return
        names, values = [name for name, _ in chosen], [value for _, value in chosen]
        if running := self._running(values):
            self._with_running_totals(running, names, values)
            return
        row = self._row_of(values)
        assigned = self._body(values, lambda texts: [f"{n} = {t};" for n, t in zip(names, texts, strict=True)])
        given = self._parameters(values)
        results = [f"{_type_of_result(v)}& {name}" for name, v in zip(names, values, strict=True)]
        parameters = ", ".join([*([given] if given else []), *results])
        self._call(f"{row}.write([&]({parameters}) {{", assigned)

    def _running(self, values: list[Value]) -> Node | None:
        """The running total that results of elements are computed of.

        Raises:
            KernelgenError: there are several, or something else needs one.
        """
        every = [node for node in self.graph.nodes() if node.op in _RUNNING]
        if not every:
            return None
        before = Part([argument for node in every for argument in node.arguments]).nodes()
        of_passes = Part([node.arguments[0] for node in self.graph.nodes() if node.op in _PASSES]).nodes()
        if len(every) > 1 or any(node.op in _RUNNING for node in (*before, *of_passes)):
            raise KernelgenError("a running total beside another, or one of which something else is computed")
        return every[0] if every[0] in Part(values).nodes() else None

    def _with_running_totals(self, running: Node, names: list[str], values: list[Value]) -> None:
        """A running total and the results that are computed of it, in one pass."""
        term, total = free_name("term", self.taken), self.writer.reserve(running)
        argument = running.arguments[0]
        self.taken |= {term, total}
        body = self._body([argument], lambda texts: [f"return {texts[0]};"])
        self._call(f"const auto {term} = [&]({self._parameters([argument])}) {{", body, end="};")
        self.names[running.index] = total
        assigned = self._body(values, lambda texts: [f"{n} = {t};" for n, t in zip(names, texts, strict=True)])
        given = self._parameters(values)
        results = [f"{_type_of_result(v)}& {name}" for name, v in zip(names, values, strict=True)]
        parameters = ", ".join([*([given] if given else []), f"Number {total}", *results])
        self._call(f"row.{_RUNNING[running.op]}({term}, [&]({parameters}) {{", assigned)

    def _body(self, values: list[Value], finish: Callable[[list[str]], list[str]]) -> list[str]:
        """The lines of a lambda over elements."""
        part = Part(values, frozenset(self.names))
        writer = Writer(part, {*self.taken, *self.names.values(), *self.inputs}, _INNER)
        for index, name in self.names.items():
            writer.known_index(index, name)
        body: list[str] = []
        texts = []
        for value in values:
            expression = writer.shared(value, 24)
            body += writer.take()
            texts.append(expression.text)
        return [*body, *finish(texts)]

    def _parameters(self, values: list[Value]) -> str:
        part = Part(values, frozenset(self.names))
        used = {argument.text for node in part.nodes() for argument in node.arguments if isinstance(argument, Name)}
        used |= {value.text for value in values if isinstance(value, Name)}
        parameters = [f"Number {name}" if name in used else "Number" for name in self.inputs]
        if self.kept and self.kept.index in self.names and self.kept in self._part(values).nodes():
            parameters.insert(0, f"Number {self.names[self.kept.index]}")
        return ", ".join([*(["int64_t place"] if _PLACES & used else []), *parameters])

    def _call(self, start: str, body: list[str], end: str = "});") -> None:
        """A call with a lambda, or a lambda alone, in the form that clang-format chooses."""
        line = f"{start} {body[0]} {end}"
        before, assigned, call = line.partition("= ") if line.startswith(("const", "auto")) else (line, "", "")
        if len(body) == 1 and len(line) + 2 <= WIDTH:
            self.text.append(line)
        elif len(body) == 1 and assigned and len(call) + 6 <= WIDTH:
            self.text += [f"{before}=", f"    {call}"]
        elif len(body) == 1 and len(line) - _last_opening(line) + 6 <= WIDTH:
            self.text += [line[: _last_opening(line)].rstrip(), f"    {line[_last_opening(line) :]}"]
        elif len(start) + 2 <= WIDTH:
            self.text += [start, *(f"  {line}" for line in body), end]
        else:
            before, _, parameters = start.partition("[")
            head = f"    [{parameters}"
            call, _, arguments = before.removesuffix(", ").partition("(")
            if len(head) + 2 > WIDTH:
                self._call_of_many(call, arguments, parameters, body)
                return
            if before.endswith(", "):
                joined = f"    {arguments}, [{parameters}"
                if len(joined) + 2 <= WIDTH:
                    self.text += [f"{call}(", joined, *(f"      {line}" for line in body), "    });"]
                    return
                self.text += [f"{call}(", *(f"    {argument}," for argument in arguments.split(", "))]
            else:
                self.text.append(before)
            self.text += [head, *(f"      {line}" for line in body), "    });"]

    def _call_of_many(self, call: str, arguments: str, parameters: str, body: list[str]) -> None:
        """A call with a lambda of which the parameters take a line each; so do the arguments before it."""
        indent = "    " if arguments else ""
        start = f"{indent}[" if arguments else f"{call}(["
        if arguments:
            self.text += [f"{call}(", *(f"    {argument}," for argument in arguments.split(", "))]
        opening = " " * (len(start) + parameters.index("(") + 1)
        self.text += f"{start}{parameters}".replace(", ", f",\n{opening}").split("\n")
        self.text += [*(f"{indent}  {line}" for line in body), f"{indent}}});"]
