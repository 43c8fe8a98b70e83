"""The Python of an op with shapes: its checks, its fake and its docstring."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence

from kernelgen.scaffold.shapes import lines
from kernelgen.scaffold.shapes.binding import OWN, Divisible, Scalar, Tensor
from kernelgen.scaffold.shapes.cases import LEADING
from kernelgen.scaffold.shapes.dtypes import CLASSES
from kernelgen.scaffold.shapes.operator import Operator, Value
from kernelgen.scaffold.shapes.parser import Condition


def dtypes_text(value: Value) -> str:
    return ", ".join(CLASSES[value.dtype].dtypes if value.dtype in CLASSES else (value.dtype,))


# ---- Checks


def checks(operator: Operator) -> list[str]:
    """The function that refuses what the operator does not take, and returns the sizes that its results have."""
    head = lines.python(f"def {_function('check', operator)}(", _parameters(operator), ") -> Any:")
    tensors = sorted(operator.tensors, key=lambda tensor: tensor.name != operator.first.name)
    pairs = [
        f'**{{"{tensor.name}": {tensor.python}}}'
        if keyword.iskeyword(tensor.name)
        else f"{tensor.name}={tensor.python}"
        for tensor in tensors
    ]
    head += lines.python(f'    check = _shaped.Check("{operator.name}", ', pairs, ")")
    returned = f"    return {lines.tuple_of(_sizes_of_results(operator))}"
    blocks = [_step(operator, step) for step in operator.steps] + [[returned]]
    # A size that nothing below needs has no name.
    body: list[str] = []
    for i, block in enumerate(blocks):
        below = "\n".join(line for other in blocks[i:] for line in other)
        body += [_without_unused(line, below) for line in block]
    return [*head, *body]


def _parameters(operator: Operator) -> list[str]:
    """The parameters of a hook: with the defaults, which PyTorch leaves out of a call."""
    parameters, keyword_only = [], False
    for argument in operator.schema.arguments:
        if argument.keyword_only and not keyword_only:
            parameters.append("*")
            keyword_only = True
        default = f" = {argument.default.python}" if argument.default else ""
        parameters.append(f"{operator.python(argument.name)}: Any{default}")
    return parameters


def _function(what: str, operator: Operator) -> str:
    return f"_{what}" if operator.direction == "forward" else f"_{what}_backward"


def _without_unused(line: str, text: str) -> str:
    """An assignment with `_` for each name that the text has no other place for."""
    targets, equals, value = line.partition(" = check.")
    if not equals:
        return line

    code = re.sub(r'"[^"]*"', "", text)

    def kept(match: re.Match[str]) -> str:
        return match[0] if len(re.findall(rf"\b{match[0]}\b", code)) > 1 else "_"

    targets = re.sub(r"\w+", kept, targets)
    return f"    check.{value}" if re.fullmatch(r"[\s(_,*)]*", targets) else targets + equals + value


def _step(operator: Operator, step: Scalar | Divisible | Condition | Tensor) -> list[str]:
    if isinstance(step, Scalar):
        return [f'    {step.name} = check.size("{step.name}", {operator.python(step.name)})']
    if isinstance(step, Divisible):
        of = step.of or operator.first.name
        items = [f'"{of}"', f'"{step.dividend}"', step.dividend.python(), step.divisor.python()]
        return lines.python("    check.multiple(", items, ")")
    if isinstance(step, Condition):
        function = "at_least" if step.symbol == ">=" else "at_most"
        items = [f'"{step.left}"', step.left, f'"{step.right}"', step.right.python()]
        return lines.python(f"    check.{function}(", items, ")")
    return _tensor(operator, step)


def _tensor(operator: Operator, step: Tensor) -> list[str]:
    value = next(t for t in operator.tensors if t.name == step.argument.name)
    shape, body = step.shape, []
    accepted = CLASSES[value.dtype].dtypes if value.dtype in CLASSES else (value.dtype,)
    representative = operator.representative(value.dtype) if value.dtype in CLASSES else value
    if representative.name == value.name or operator.is_later(representative, value):
        dtypes = [f"torch.{dtype}" for dtype in accepted]
        body += lines.python("    check.dtype(", [f'"{value.name}"', *dtypes], ")")
    if representative.name != value.name:
        body.append(f'    check.same_dtype("{value.name}", "{representative.name}")')
    if step.binds or step.is_first or not step.is_checked:
        body += _sizes(value, step)
    if step.is_checked:
        dims = ([f"*{LEADING}"] if shape.leading else []) + [dim.python() for dim in shape.dims]
        body += lines.python("    check.shape(", [f'"{value.name}"', lines.tuple_of(dims), f'"{shape}"'], ")")
    return body


def _sizes(value: Value, step: Tensor) -> list[str]:
    """The sizes that a tensor gives, out of its shape."""
    shape = step.shape
    by_dim = {dim: (name, solution) for dim, name, solution in step.binds}
    targets, solved = [], []
    for i in range(len(shape.dims)):
        name, solution = by_dim.get(i, ("_", None))
        if solution is not None and solution.name != OWN:
            solved.append(f"    {name} = {solution.python(lambda n, name=name: f'{name}_size' if n == OWN else n)}")
            name = f"{name}_size"
        targets.append(name)
    if shape.leading:
        targets.insert(0, f"*{LEADING}" if step.is_first else "*_")
    call = f'check.{"trailing" if shape.leading else "sizes"}("{value.name}", {len(shape.dims)}, "{shape}")'
    if not targets:
        return [f"    {call}"]
    joined = f"({targets[0]},)" if len(targets) == 1 else ", ".join(targets)
    return [f"    {joined} = {call}", *solved]


def _sizes_of_results(operator: Operator) -> list[str]:
    names = [LEADING] if any(result.shape.leading for result in operator.results) else []
    return list(dict.fromkeys([*names, *(n for r in operator.results for dim in r.shape.dims for n in dim.names)]))


# ---- The fake


def fake(operator: Operator) -> list[str]:
    """Results without data: what torch.compile traces."""
    names = [
        f"{a.name}={operator.python(a.name)}" if a.keyword_only else operator.python(a.name)
        for a in operator.schema.arguments
    ]
    body = lines.python(f"def {_function('fake', operator)}(", _parameters(operator), ") -> Any:")
    sizes = _sizes_of_results(operator)
    targets = f"({sizes[0]},) = " if len(sizes) == 1 else f"{', '.join(sizes)} = " if sizes else ""
    body += lines.python(f"    {targets}{_function('check', operator)}(", names, ")")
    results = [_empty(operator, result) for result in operator.results]
    if len(results) > 1:
        return [*body, *lines.collection("    return (", results, ")")]
    return [*body, *(f"    return {result}" for result in results)]


def _empty(operator: Operator, result: Value) -> str:
    dims = ([f"*{LEADING}"] if result.shape.leading else []) + [dim.python() for dim in result.shape.dims]
    shape = lines.tuple_of(dims)
    if result.needed:
        flag = operator.python(operator.needed[operator.results.index(result)])
        shape = f"{shape} if {flag} else (0,)"
    if result.dtype in CLASSES:
        return f"{operator.representative(result.dtype).python}.new_empty({shape})"
    return f"{operator.first.python}.new_empty({shape}, dtype=torch.{result.dtype})"


# ---- The public function's docstring


def docstring(operator: Operator, given: str) -> list[str]:
    """The lines of the docstring: the function's own, with what the op takes where that does not say so."""
    body = (given or "Say in one line what it returns.").split("\n")
    body = [line.replace("\\", "\\\\").replace('"""', '\\"\\"\\"') for line in body]
    if not all(f"{argument.name}:" in given for argument in operator.schema.arguments):
        body += ["", "Args:", *(f"    {line}" for line in _described(operator))]
    if "Raises:" not in given:
        body += ["", "Raises:", "    RuntimeError: an argument is not as above."]
    return body


def _described(operator: Operator) -> list[str]:
    values = {tensor.name: tensor for tensor in operator.tensors}
    described = []
    for argument in operator.schema.arguments:
        name, value = operator.python(argument.name), values.get(argument.name)
        if value is None:
            described.append(f"{name}: say what it is.")
            continue
        said = f"{'tensors, each ' if value.is_list else ''}{value.shape}, of {dtypes_text(value)}"
        said += f", numbers from 0 to below {value.shape.below}" if value.shape.below else ""
        described.append(f"{name}: {said}.{' It is written to.' if value.mutated else ''}")
    return described


def summary(given: str, name: str) -> str:
    """The first line of the module's docstring."""
    first = given.partition("\n")[0].strip() or "say in one line what it computes."
    first = first.replace("\\", "\\\\").replace('"""', "'''")
    text = f"{name}: {first}"
    return text if len(text) <= lines.WIDTH - 6 else f"{name}: {_cut(first, lines.WIDTH - 8 - len(name) - 2)}"


def _cut(text: str, width: int) -> str:
    return text[:width].rpartition(" ")[0] + "…"


def sizes_in(names: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Names, with `_` before those that no text needs."""
    return [name if any(re.search(rf"\b{name}\b", text) for text in texts) else f"_{name}" for name in names]
