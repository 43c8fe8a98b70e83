"""The reference as a function that tells which of its variables holds which tensor, so that kernels keep the names."""

import ast
import dataclasses
import math
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.trace.checks import checked_lines
from kernelgen.worker.trace.cost import Cost
from kernelgen.worker.trace.scalars import SOURCE, index, literal, notes_functions, sliced
from kernelgen.worker.trace.undifferentiated import Undifferentiated

_CUTTING = {
    *("cross", "cat", "chunk", "concat", "concatenate", "glu", "hsplit", "hstack", "narrow", "roll", "select", "split"),
    *("split_with_sizes", "stack", "tensor_split", "unbind", "unflatten", "unsafe_chunk", "unsafe_split"),
}
_INDEXING = {"arange", "eye", "tril", "triu"}
# What splits a dimension into groups.
_SPLITTING = {"view", "reshape", "unflatten", "group_norm"}
_MOST_GROUPS = 1024
# The largest place in a dimension that a function is called beyond.
_LARGEST_BOUND = 4096
# What reads neighbours, beside slices.
_SHIFTING = {
    *(f"{kind}Pad{dims}d" for kind in ("Circular", "Constant", "Reflection", "Replication", "Zero") for dims in (1, 2)),
    *(
        "AvgPool1d",
        "AvgPool2d",
        "avg_pool1d",
        "avg_pool2d",
        "diff",
        "flip",
        "fliplr",
        "flipud",
        "gradient",
        "pad",
        "roll",
        "select_scatter",
    ),
    "slice_scatter",
}
# What changes the order of dimensions.
_PERMUTING = {"mT", "movedim", "permute", "swapaxes", "swapdims", "transpose"}
# What gives a tensor dimensions of size 1.
_WIDENING = {"unsqueeze", "reshape", "view"}
# Decorators of helpers that do not change what these compute, and that a trace cannot pass.
_RUNNING = {
    *("_dynamo", "beartype", "cache", "compile", "compiler", "custom_op", "ignore", "jaxtyped", "lru_cache", "script"),
    *("script_if_tracing", "typechecked", "unused"),
}
# The most numbers that a point has.
_MOST_OF_POINT = 4
# What asks where tensors lie.
_DEVICES = {"is_cpu", "is_cuda", "is_meta", "get_device"}
# The function that the instrumented source calls after each assignment.
_NOTE = "__kernelgen_note__"
# The one that a float in it is an argument of.
_LITERAL = "__kernelgen_literal__"
# The one that an index is.
_INDEX = "__kernelgen_index__"
# Indices that scalars may have a part in.
_COMPUTED = (ast.Attribute, ast.BinOp, ast.Call, ast.IfExp, ast.Name, ast.Subscript, ast.UnaryOp)
# The one that takes a part of a list.
_SLICE = "__kernelgen_slice__"


class Function:
    """A function; while `on_name` is set, it is called with each variable's name and tensor."""

    def __init__(self) -> None:
        self.source = ""
        self.numbers: list[float] = []  # That stand in the source, where a branch may depend on them.
        self.largest_bound = 0  # The largest whole number that stands where a dimension is cut.
        self.may_cut = False  # Whether something in the source may cut a dimension into parts, or join parts.
        self.may_shift = False  # Whether something may read neighbours of elements.
        self.point_size = 0  # How many numbers the source takes an argument's last dimension apart into; 0: no such.
        self.may_index = False  # Whether something may compute with the coordinates of elements.
        # The arguments that the source gives dimensions of size 1, to repeat them along others.
        self.repeated: list[str] = []
        self.may_permute = False  # Whether something may change the order of dimensions.
        self.may_split = False  # Whether something may split a dimension into groups.
        # An index that cuts a dimension counted from the front, with the one that counts from the end.
        self.cut_from_front: tuple[str, str] | None = None
        self.checked_lines: set[int] = set()  # Those of conditions that only refuse arguments.
        self.asks_device: int | None = None  # The line in which it asks where its tensors lie.
        self.asks_rank = False  # Whether something asks how many dimensions there are.
        self.takes_classes = False  # Whether it has a loss that takes classes as well as probabilities.
        self.tables: dict[str, Tensor] = {}  # The tensors of several numbers that its file holds.
        self.breaks_ties = False  # Whether something may choose among equal numbers in a way that nobody documents.
        self.is_derived = True  # Whether its gradient is looked at.
        self.on_name: Callable[[str, Tensor], None] | None = None
        self.call: Callable[..., Any]

    @property
    def counts(self) -> list[int]:
        """The numbers in the source that may say how many groups there are, or how large these are."""
        whole = [int(number) for number in self.numbers if number == int(number) and 1 < number <= _MOST_GROUPS]
        return whole if self.may_split else []

    def line(self, number: int) -> str:
        """A line of the source, counted from 1."""
        return self.source.splitlines()[number - 1].strip()

    def results(self, values: Mapping[str, Any]) -> list[Tensor]:
        """What it returns for these arguments, which are in its order."""
        results = self.call(*values.values())
        return list(results) if isinstance(results, (tuple, list)) else [results]

    def drop_gradient(self) -> None:
        """Its results have none from here on."""
        self.is_derived, self.call = False, torch.no_grad()(self.call)

    def note(self, name: str, value: Any) -> None:
        if self.on_name is not None and isinstance(value, Tensor):
            self.on_name(name, value)


def load(source: str, name: str, arguments: list[dict[str, Any]], cost: Cost | None = None) -> Function:
    """The function `name` of a source, to be called with these arguments in their order; others have their defaults.
    What its calls cost is added to `cost`."""
    cost = cost or Cost()
    function = Function()
    function.source = source
    function.numbers = _numbers(ast.parse(source))
    function.may_cut = _may_cut(ast.parse(source))
    function.may_shift = function.may_cut or bool(_words(ast.parse(source)) & _SHIFTING)
    function.point_size = _point_size(ast.parse(source), [argument["name"] for argument in arguments])
    function.largest_bound = max(_bounds(ast.parse(source)), default=0)
    function.may_index = bool(_words(ast.parse(source)) & _INDEXING)
    function.repeated = _repeated(ast.parse(source), [argument["name"] for argument in arguments])
    function.may_permute = bool(_words(ast.parse(source)) & _PERMUTING)
    function.may_split = bool(_words(ast.parse(source)) & _SPLITTING)
    function.cut_from_front = _cut_from_front(ast.parse(source))
    function.checked_lines = checked_lines(ast.parse(source))
    function.asks_device = _asks_device(ast.parse(source), function.checked_lines)
    function.asks_rank = bool(_words(ast.parse(source)) & {"ndim", "dim", "ndimension", "len"})
    function.takes_classes = "cross_entropy" in _words(ast.parse(source))
    function.breaks_ties = "topk" in _words(ast.parse(source))
    tree = ast.fix_missing_locations(_Notes().visit(ast.parse(source)))
    scope = module_scope()
    scope |= {_NOTE: function.note, _LITERAL: literal, _INDEX: index, _SLICE: sliced}
    exec(compile(tree, SOURCE, "exec"), scope)
    notes_functions(scope)
    function.tables = {name: value for name, value in scope.items() if isinstance(value, Tensor) and value.numel() != 1}
    plain = scope[name]
    names = [argument["name"] for argument in arguments]

    def call(*values: Any) -> Any:
        with Undifferentiated(cost):
            return bare(plain(**dict(zip(names, values, strict=True))))

    function.call = call
    return function


def written(before: Mapping[str, int], values: Mapping[str, Any]) -> list[str]:
    """The names of the tensors, or lists of them, that were written to since `before`, which versions() gave."""
    return [name for name, version in versions(values).items() if version != before[name]]


def versions(values: Mapping[str, Any]) -> dict[str, int]:
    """How often each tensor, or list of them, was written to."""
    lists = {name: value if isinstance(value, (list, tuple)) else [value] for name, value in values.items()}
    return {name: sum(item._version for item in items if isinstance(item, Tensor)) for name, items in lists.items()}


def module_scope() -> dict[str, Any]:
    """Where the reference's file is run: the names of a module that can be found, as dataclasses ask for."""
    module = types.ModuleType("reference_of_an_op")
    sys.modules[module.__name__] = module
    return vars(module)


def bare(results: Any) -> Any:
    """Results without the dataclass that a function returns them in."""
    if not dataclasses.is_dataclass(results):
        return results
    values = tuple(getattr(results, field.name) for field in dataclasses.fields(results))
    return values if len(values) > 1 else values[0]


def _numbers(tree: ast.AST) -> list[float]:
    """The finite numbers in a source, with both signs: which of them have one does not matter here."""
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    values = {abs(float(c)) for c in constants if isinstance(c, (int, float)) and not isinstance(c, bool)}
    return sorted({sign * value for value in values if math.isfinite(value) for sign in (1, -1)})


def _may_cut(tree: ast.AST) -> bool:
    """Whether a call or an index in a source may cut a dimension into parts, or join parts."""
    indices = [node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    items = [index.elts if isinstance(index, ast.Tuple) else [index] for index in indices]
    return any(map(_picks, items)) or bool(_words(tree) & _CUTTING) or any(map(_has_several, ast.walk(tree)))


def _has_several(node: ast.AST) -> bool:
    """Whether a node is a tensor that is written with several numbers, as one for each coordinate or colour."""
    if not isinstance(node, ast.Call) or not _words(node.func) & {"tensor", "as_tensor", "new_tensor"}:
        return False
    return bool(node.args) and isinstance(node.args[0], (ast.List, ast.Tuple)) and len(node.args[0].elts) > 1


def _bounds(tree: ast.AST) -> list[int]:
    """The whole numbers of at most _LARGEST_BOUND in indices, and in calls that cut a dimension or join parts: written
    there, or held by a variable or as the default of an argument."""
    nodes: list[ast.AST] = [node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _words(node.func) & _CUTTING:
            nodes += [*node.args, *node.keywords]
    held = _held_numbers(tree)
    parts = [part for node in nodes for part in ast.walk(node) if isinstance(part, ast.expr)]
    numbers = [_largest(part, held) for part in parts if _is_number(part)]
    return [n for n in numbers if n <= _LARGEST_BOUND]


def _largest(node: ast.AST, held: dict[str, list[ast.AST]]) -> int:
    """A number that what is computed of whole ones does not exceed."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) and not isinstance(node.value, bool) else 0
    if isinstance(node, ast.Name):
        others = {name: values for name, values in held.items() if name != node.id}
        return max((_largest(value, others) for value in held.get(node.id, [])), default=0)
    terms = [abs(_largest(term, held)) for term in ast.iter_child_nodes(node) if isinstance(term, ast.expr)]
    return terms[0] if len(terms) == 1 else math.prod(1 + term for term in terms) - 1


def _held_numbers(tree: ast.AST) -> dict[str, list[ast.AST]]:
    """What variables, and arguments with defaults, hold that is computed of numbers and of such variables alone."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    pairs = [(name, node.value) for node in assigned for target in node.targets for name in _names(target)]
    others = {name for name, value in pairs if not _is_number(value)}
    held: dict[str, list[ast.AST]] = {}
    for name, value in pairs:
        if _is_number(value) and not _names_in(value) & others:
            held.setdefault(name, []).append(value)
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            by_position = [*node.posonlyargs, *node.args]
            arguments = [*by_position[len(by_position) - len(node.defaults) :], *node.kwonlyargs]
            for argument, default in zip(arguments, [*node.defaults, *node.kw_defaults], strict=True):
                if default is not None and _is_number(default):
                    held.setdefault(argument.arg, []).append(default)
    return held


def _is_number(node: ast.AST) -> bool:
    parts = (ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)
    return all(isinstance(inner, parts) for inner in ast.walk(node))


def _picks(items: list[ast.expr]) -> bool:
    """Whether an index with slices picks some elements: `x[:, None]` and `x[..., None]` have all."""
    slices = [item for item in items if isinstance(item, ast.Slice)]
    others = [item for item in items if item not in slices and not _is_none(item) and not _is_ellipsis(item)]
    has_bounds = any(part is not None for item in slices for part in (item.lower, item.upper, item.step))
    return has_bounds or bool(others and (slices or any(map(_is_ellipsis, items))))


def _point_size(tree: ast.AST, names: list[str]) -> int:
    """How many numbers the last dimension of an argument is taken apart into, as by `box[..., 3]` or `p.unbind(-1)`; 0
    where it is not, or into more than points have."""
    sizes = [0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and _names_in(node.value) & {*names}:
            *others, last = node.slice.elts
            place = ast.unparse(last)
            is_of_last = isinstance(node.value, ast.Name) and len(others) == 1 and _is_ellipsis(others[0])
            if is_of_last and place.lstrip("-").isdecimal():
                sizes.append(-int(place) if place.startswith("-") else int(place) + 1)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and "unbind" in _words(node.value.func):
            taken = node.value.args[:1] if ast.unparse(node.value.func) == "torch.unbind" else [node.value.func]
            is_whole = all(ast.unparse(item).removesuffix(".unbind") in names for item in taken)
            sizes += [len(_names(target)) for target in node.targets if is_whole]
    return max(sizes) if 1 < max(sizes) <= _MOST_OF_POINT else 0


def _cut_from_front(tree: ast.AST) -> tuple[str, str] | None:
    """The first index such as `x[:, 2]`, and `x[..., 2]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            *whole, last = node.slice.elts
            if all(ast.unparse(item) == ":" for item in whole) and _picks([*whole, last]):
                return ast.unparse(node), f"{ast.unparse(node.value)}[..., {ast.unparse(last)}]"
    return None


def _is_device(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "device"


def _asks_device(tree: ast.AST, checked: set[int]) -> int | None:
    """The first line that asks on which device a tensor lies, but to refuse it, or to switch autocast off there; None
    where there is none."""
    of_autocast = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and "autocast" in _words(node.func)]
    assigned = [
        node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_only_for(tree, node, of_autocast)
    ]
    excepted = {inner for node in (*of_autocast, *assigned) for inner in ast.walk(node)}
    lines = [
        node.lineno
        for node in ast.walk(tree)
        if node not in excepted
        and (
            (isinstance(node, ast.Attribute) and node.attr in _DEVICES)
            or (isinstance(node, ast.Attribute) and node.attr == "type" and "device" in _words(node.value))
            or (isinstance(node, ast.Compare) and any(map(_is_device, (node.left, *node.comparators))))
        )
    ]
    return min((line for line in lines if line not in checked), default=None)


def _is_only_for(tree: ast.AST, assignment: ast.Assign, calls: list[ast.Call]) -> bool:
    """Whether all that is read of a variable is read in these calls."""
    inside = {node for call in calls for node in ast.walk(call)}
    own = {name for target in assignment.targets for name in _names(target)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in own]
    read = [node for node in names if isinstance(node.ctx, ast.Load)]
    own_values = {node for node in ast.walk(tree) if isinstance(node, ast.Assign) and own & {*_names(node.targets[0])}}
    inside |= {node for value in own_values for node in ast.walk(value)}
    return bool(read) and inside.issuperset(read)


def _repeated(tree: ast.AST, names: list[str]) -> list[str]:
    """The arguments in what an index with None, unsqueeze and the like, or einsum give more dimensions."""
    widened: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and any(_is_none(item) for item in ast.walk(node.slice)):
            widened.append(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _WIDENING:
            is_function = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
            widened += node.args[:1] if is_function else [node.func.value]
        elif isinstance(node, ast.Call) and "einsum" in _words(node.func):
            widened += node.args[1:]
    used = set().union(*map(_names_in, widened))
    # And those whose parts the source has variables for, as in `shift, scale = params.chunk(2, -1)`.
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _words(node.value.func) & _CUTTING:
            targets = {name for target in node.targets for name in _names(target)}
            used |= _names_in(node.value) if targets & used else set()
    return [name for name in names if name in used]


def _names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _words(tree: ast.AST) -> set[str]:
    """The attributes in a source, and the names that it does not bind itself: an argument may be called `narrow`."""
    nodes = list(ast.walk(tree))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | ({node.id for node in nodes if isinstance(node, ast.Name)} - own)


class _Notes(ast.NodeTransformer):
    """Adds a call of the note after each assignment to a plain name inside a function, and has floats note what they
    meet."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list = [decorator for decorator in node.decorator_list if not _words(decorator) & _RUNNING]
        self.generic_visit(node)
        return node

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        self.generic_visit(node)
        names = [name for target in node.targets for name in _names(target)]
        return [node, *map(_note, names)]

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, float):
            return node
        return ast.copy_location(ast.Call(ast.Name(_LITERAL, ast.Load()), [node], []), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Slice):
            bounds = [node.slice.lower, node.slice.upper, node.slice.step]
            given = [node.value, *(bound or ast.Constant(None) for bound in bounds)]
            return ast.copy_location(ast.Call(ast.Name(_SLICE, ast.Load()), given, []), node)
        if isinstance(node.ctx, ast.Load) and isinstance(node.slice, _COMPUTED):
            node.slice = ast.copy_location(ast.Call(ast.Name(_INDEX, ast.Load()), [node.slice], []), node.slice)
        return node

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.MatchValue:
        return node  # No call may stand there.

    def visit_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        self.generic_visit(node)
        return [node, *map(_note, _names(node.target))] if node.value else [node]

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        self.generic_visit(node)
        return [node, *map(_note, _names(node.target))]


def _names(target: ast.expr) -> list[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [name for item in target.elts for name in _names(item)]
    return [target.id] if isinstance(target, ast.Name) else []


def _note(name: str) -> ast.stmt:
    values: list[ast.expr] = [ast.Constant(name), ast.Name(name, ast.Load())]
    return ast.Expr(ast.Call(ast.Name(_NOTE, ast.Load()), values, []))
