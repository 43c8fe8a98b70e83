"""Learns the shapes of a function by calls with small tensors, and says what it returns for arguments of given shapes.

The request has the `source` of a file, the `function` in it and its `arguments` (a schema's entry). Orders are `learn`,
`results`, `gradients`, `bounded` and `independent`; lab/shapes.py gives them.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelgen.errors import LabError
from kernelgen.worker.protocol import Emit, in_a_line
from kernelgen.worker.quiet import quiet
from kernelgen.worker.trace.function import bare, module_scope, versions, written
from kernelgen.worker.trace.undifferentiated import Undifferentiated

# The sizes of three samples, by the names that learned shapes use: of the last dimension first. The last are odd.
_SAMPLES = (
    {"N": 28, "M": 10, "H": 6, "B": 4, "K": 22},
    {"N": 44, "M": 14, "H": 10, "B": 6, "K": 26},
    {"N": 31, "M": 13, "H": 5, "B": 3, "K": 19},
)
# What a tensor's shape may be: the plain ones first.
_FIRST = ("M N", "B M N", "N", "B H M N")
_OTHERS = ("M N", "N", "M", "B M N", "B H M N", "N K", "K N", "B N K", "B M", "M N/2", "()")
# What they may be beside the first: of these one at least is a matrix, with a size of its own.
_OF_PRODUCTS = ("N K", "K N", "K", "N")
_MOST_TRIES = 3000
# The dtypes that results are looked at in.
_FLOATS = (torch.float32, torch.float64, torch.bfloat16)


class WrittenError(Exception):
    """The function writes to the arguments of these names."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names


class NotLearnedError(Exception):
    """The message is a sentence without its end: what was in the way."""


def work(request: dict[str, Any], emit: Emit) -> "Orders":
    scope = module_scope()
    try:
        with quiet():
            exec(compile(request["source"], "reference.py", "exec"), scope)
    except Exception as error:
        raise LabError(f"a {in_a_line(error)}, when its file was run") from error
    plain = scope[request["function"]]
    return Orders(lambda *args, **kwargs: bare(plain(*args, **kwargs)), request["arguments"])


class Orders:
    def __init__(self, function: Callable[..., Any], arguments: list[dict[str, Any]]) -> None:
        self.function, self.arguments = function, arguments

    def learn(self) -> dict[str, Any]:
        """`shapes` in the language of `add-op --shapes`, and how many tensors were `returned`; or `reason`, why none
        was learned; or `written`, the names of arguments that the function writes to."""
        with quiet(), torch.no_grad():
            try:
                shapes, returned = Learner(self.function, self.arguments).shapes()
                return {"shapes": shapes, "returned": returned}
            except NotLearnedError as error:
                return {"reason": str(error)}
            except WrittenError as error:
                return {"written": error.names}

    def results(self, calls: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """For each call, the `shapes` and `dtypes` of the results; or the `error` that it raised; or `written`, the
        names of arguments that it wrote to.

        An argument is a `tensor` or a `list` of them, with a `shape`, a `dtype` and what whole numbers are `below`; or
        the Python source of a value, under `sample`.
        """
        with quiet(), torch.no_grad():
            return {"results": [self._result(call) for call in calls]}

    def gradients(self, call: list[dict[str, Any]]) -> dict[str, Any]:
        """The `names` of the tensors that the results' gradients reach, if the arguments are as in `results`, and of
        those that may not require one, `refused`."""
        names = [argument["name"] for argument, value in zip(self.arguments, call, strict=True) if _is_floating(value)]
        with quiet():
            try:
                return {"names": self._reached(call, names), "refused": []}
            except RuntimeError:  # PyTorch refuses the gradient of some, such as the running mean of a batch norm.
                refused = [name for name in names if self._is_refused(call, name)]
                allowed = [name for name in names if name not in refused]
                return {"names": self._reached(call, allowed), "refused": refused}

    def _is_refused(self, call: list[dict[str, Any]], name: str) -> bool:
        try:
            self._reached(call, [name])
        except RuntimeError:
            return True
        return False

    def _reached(self, call: list[dict[str, Any]], names: list[str]) -> list[str]:
        """Those of the tensors with these names that a gradient comes to, if all of them require one."""
        values = [_made(argument, torch.Generator().manual_seed(0)) for argument in call]
        leaves = {
            argument["name"]: value.requires_grad_()
            for argument, value in zip(self.arguments, values, strict=True)
            if argument["name"] in names
        }
        results = pytree.tree_leaves(_call(self.function, self.arguments, values, nullcontext()))
        results = [result for result in results if result.requires_grad]
        if not results or not leaves:
            return []
        grads = torch.autograd.grad([r.sum() for r in results], list(leaves.values()), allow_unused=True)
        return [name for name, grad in zip(leaves, grads, strict=True) if grad is not None]

    def bounded(self, call: list[dict[str, Any]]) -> dict[str, Any]:
        """The `names` of the tensors whose numbers have to lie between 0 and 1, as variances do: with others the
        results are not finite."""
        names = [argument["name"] for argument, value in zip(self.arguments, call, strict=True) if _is_floating(value)]
        with quiet(), torch.no_grad():
            if self._is_finite(call, []) or not self._is_finite(call, names):
                return {"names": []}
            for name in list(names):
                fewer = [other for other in names if other != name]
                names = fewer if self._is_finite(call, fewer) else names
            return {"names": names}

    def _is_finite(self, call: list[dict[str, Any]], bounded: Collection[str]) -> bool:
        values = [_made(argument, torch.Generator().manual_seed(0)) for argument in call]
        values = [
            value.sigmoid() if argument["name"] in bounded else value
            for argument, value in zip(self.arguments, values, strict=True)
        ]
        try:
            results = pytree.tree_leaves(_call(self.function, self.arguments, values))
        except RuntimeError:  # Of a matrix that has no such factors, for one.
            return False
        return all(bool(result.isfinite().all()) for result in results)

    def independent(self, call: list[dict[str, Any]], places: list[int]) -> dict[str, Any]:
        """Whether each part along the first dimension of the arguments at `places` gives its part of the results."""
        with quiet(), torch.no_grad():
            values = [_made(argument, torch.Generator().manual_seed(0)) for argument in call]
            return {"holds": _is_independent(self.function, self.arguments, values, places)}

    def _result(self, call: list[dict[str, Any]]) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(0)
        try:
            values = [_made(argument, generator) for argument in call]
            results = pytree.tree_leaves(_call_of_pure(self.function, self.arguments, values))
        except WrittenError as error:
            return {"written": error.names}
        except Exception as error:
            return {"error": in_a_line(error)}
        if not all(isinstance(result, Tensor) for result in results):
            return {"error": "it returns something else than tensors"}
        return {"shapes": [list(r.shape) for r in results], "dtypes": [_name(r.dtype) for r in results]}


def _call(
    function: Callable[..., Any],
    arguments: list[dict[str, Any]],
    values: Sequence[Any],
    mode: AbstractContextManager[Any] | None = None,
) -> Any:
    pairs = list(zip(arguments, values, strict=True))
    by_name = {argument["name"]: value for argument, value in pairs if argument["keyword_only"]}
    with mode or Undifferentiated():
        return function(*(value for argument, value in pairs if not argument["keyword_only"]), **by_name)


def _call_of_pure(function: Callable[..., Any], arguments: list[dict[str, Any]], values: Sequence[Any]) -> Any:
    """The results of a function that writes to none of its arguments.

    Raises:
        WrittenError: it does.
    """
    named = {argument["name"]: value for argument, value in zip(arguments, values, strict=True)}
    before = versions(named)
    results = _call(function, arguments, values)
    if names := written(before, named):
        raise WrittenError(names)
    return results


def _is_independent(
    function: Callable[..., Any], arguments: list[dict[str, Any]], values: Sequence[Any], places: Sequence[int]
) -> bool:
    def part(value: Any, i: int) -> Any:
        return [item[i] for item in value] if isinstance(value, list) else value[i]

    try:
        whole = pytree.tree_leaves(_call(function, arguments, values))
        for i in range(len(whole[0])):
            parts = [part(value, i) if place in places else value for place, value in enumerate(values)]
            results = pytree.tree_leaves(_call(function, arguments, parts))
            pairs = zip(results, whole, strict=True)
            if not all(torch.allclose(own, of[i], rtol=1e-4, atol=1e-5, equal_nan=True) for own, of in pairs):
                return False
    except Exception:  # It does not take such arguments.
        return False
    return True


def _is_floating(argument: dict[str, Any]) -> bool:
    """Whether an argument of a call is a tensor, not a list of them, of a dtype that has gradients."""
    return not argument.get("list", True) and getattr(torch, argument["dtype"]).is_floating_point


def _made(argument: dict[str, Any], generator: torch.Generator) -> Any:
    if "sample" in argument:
        return eval(argument["sample"], {"torch": torch})
    tensor = _tensor(argument["shape"], getattr(torch, argument["dtype"]), argument.get("below", 2), generator)
    return [tensor, tensor.clone()] if argument["list"] else tensor


def _tensor(shape: Sequence[int], dtype: torch.dtype, below: int, generator: torch.Generator) -> Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float32).to(dtype)
    return torch.randint(max(below, 1), shape, generator=generator).to(dtype)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---- Learning


@dataclass(frozen=True)
class Assumption:
    """A shape, in words such as `M N/2`, and a dtype, float, int64 or bool, for each tensor that is always given."""

    shapes: tuple[str, ...]
    dtypes: tuple[str, ...]
    leading: tuple[int, ...] | None = None  # in place of M where a shape begins with it
    before: tuple[int, ...] = ()  # in front of every shape

    def shape(self, words: str, sizes: dict[str, int]) -> tuple[int, ...]:
        shape = [] if words == "()" else words.split()
        if self.leading is not None and shape[:1] == ["M"]:
            return (*self.leading, *(_size(word, sizes) for word in shape[1:]))
        return (*self.before, *(_size(word, sizes) for word in shape))


class Learner:
    def __init__(self, function: Callable[..., Any], arguments: list[dict[str, Any]]) -> None:
        self.function, self.arguments = function, arguments
        kinds = {argument["name"]: argument["kind"] for argument in arguments}
        self.required = [name for name, kind in kinds.items() if kind == "tensor"]
        self.optional = [name for name, kind in kinds.items() if kind not in ("tensor", "other")]
        self.scalars = [a["name"] for a in arguments if a["type"] in ("int", "SymInt") and a["kind"] == "other"]
        names = {argument["name"] for argument in arguments}
        if clash := names & set(_SAMPLES[0]):
            raise NotLearnedError(f"that {clash.pop()}, which is an argument, would be the name of a size too")
        if not self.required:
            raise NotLearnedError("that no tensor is always given")
        if any(argument["mutated"] for argument in arguments):
            raise NotLearnedError("that it writes to its arguments")

    def shapes(self) -> tuple[str, int]:
        """Shapes in the language of `add-op --shapes`, and the number of results."""
        error: Exception | None = None
        for assumption in itertools.islice(self.assumptions(), _MOST_TRIES):
            try:
                results = [self.outputs(assumption, i) for i in range(2)]
            except (NotLearnedError, WrittenError):
                raise
            except Exception as reason:  # It does not take such arguments.
                error = error or reason
                continue
            return self.described(assumption, results), len(results[0])
        raise NotLearnedError(f"that it takes no tensors of the shapes that were tried ({in_a_line(error)})")

    def assumptions(self) -> Iterator[Assumption]:
        count = len(self.required)
        for dtypes in self.dtypes():
            yield Assumption((_FIRST[0],) * count, dtypes)
            # Products take vectors too, and matrices are what most callers pass.
            for others in itertools.product(_OF_PRODUCTS, repeat=count - 1):
                if set(others) & {"N K", "K N"}:
                    yield Assumption((_FIRST[0], *others), dtypes)
            for first in _FIRST:
                yield Assumption((first,) * count, dtypes)
                for others in itertools.product(_OTHERS, repeat=count - 1):
                    yield Assumption((first, *others), dtypes)
            yield Assumption(("()",) * count, dtypes)

    def dtypes(self) -> Iterator[tuple[str, ...]]:
        """All of floating-point numbers, or one of them indices or a mask, or all of them."""
        plain = ("float",) * len(self.required)
        yield plain
        for other in ("int64", "bool"):
            for i in reversed(range(len(plain))):
                yield (*plain[:i], other, *plain[i + 1 :])
        if len(plain) > 1:
            yield from ((other,) * len(plain) for other in ("int64", "bool"))

    def outputs(
        self,
        assumption: Assumption,
        sample: int,
        dtype: torch.dtype = torch.float32,
        optional: dict[str, tuple[str, str]] | None = None,
        fill: str = "",
        number: int = 0,
    ) -> list[Tensor]:
        """The results of a call, with the tensor `fill` full of a number."""
        values = self.values(assumption, sample, dtype, optional, fill, number)
        results = _call_of_pure(self.function, self.arguments, values)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        if not all(isinstance(result, Tensor) for result in results):
            raise NotLearnedError("that it returns something else than tensors")
        return results

    def values(
        self,
        assumption: Assumption,
        sample: int,
        dtype: torch.dtype = torch.float32,
        optional: dict[str, tuple[str, str]] | None = None,
        fill: str = "",
        number: int = 0,
    ) -> list[Any]:
        """The arguments of such a call."""
        sizes = self.sizes(sample)
        generator = torch.Generator().manual_seed(sample)
        values: list[Any] = []
        said = dict(zip(self.required, zip(assumption.shapes, assumption.dtypes, strict=True), strict=True))
        said |= optional or {}
        for argument in self.arguments:
            name = argument["name"]
            if name in said:
                shape, kind = said[name]
                of = dtype if kind == "float" else getattr(torch, kind)
                tensor = _tensor(assumption.shape(shape, sizes), of, 2, generator)
                if name == fill:
                    tensor.fill_(number)
                values.append([tensor, tensor.clone()] if "list" in argument["kind"] else tensor)
            elif argument["kind"] != "other":
                values.append([] if argument["kind"] in ("tensor_list", "optional_tensor_list") else None)
            elif name in self.scalars:
                values.append(sizes[name])
            else:
                values.append(eval(argument["sample"], {"torch": torch}))
        return values

    def sizes(self, sample: int) -> dict[str, int]:
        """With the int arguments: their default, or 2, in the first sample, another number in the others."""
        samples = {name: eval(next(a for a in self.arguments if a["name"] == name)["sample"]) for name in self.scalars}
        return _SAMPLES[sample] | {name: value + sample for name, value in samples.items()}

    # ---- What is said of the assumption that holds

    def described(self, assumption: Assumption, results: list[list[Tensor]]) -> str:
        self.refuse_other_shapes(assumption, results[0])
        odd = self.tried(assumption, 2)
        samples = [(self.sizes(i), outs) for i, outs in enumerate([*results, *([odd] if odd else [])])]
        outputs = []
        for number in range(len(results[0])):
            shapes = [(sizes, list(outs[number].shape)) for sizes, outs in samples]
            dims = _dims(shapes, [*_SAMPLES[0], *self.scalars])
            if dims is None:
                got = " and ".join(str(tuple(shape)) for _, shape in shapes[:2])
                raise NotLearnedError(f"that result {number + 1} has sizes that follow from no other ({got})")
            outputs.append(dims)
        dtypes = [self.dtype_of(assumption, number) for number in range(len(results[0]))]
        shapes = list(assumption.shapes)
        optional = {name: self.of_optional(name, assumption, results[0]) for name in self.optional}
        of_leading = self.leading(assumption, outputs, results[0])
        shapes, outputs = [of_leading(shape) for shape in shapes], [of_leading(output) for output in outputs]
        optional = {name: of_leading(shape) for name, shape in optional.items()}
        groups = [
            f"{name}: {shape}{'' if dtype == 'float' else f' {dtype}{self.bound(name, assumption)}'}"
            for name, shape, dtype in zip(self.required, shapes, assumption.dtypes, strict=True)
        ]
        groups += [f"{name}: {shape}" for name, shape in optional.items()]
        ends = [f"{o}{'' if dtype == 'float' else f' {dtype}'}" for o, dtype in zip(outputs, dtypes, strict=True)]
        return f"{'; '.join(groups)} -> {', '.join(ends)}"

    def refuse_other_shapes(self, assumption: Assumption, results: list[Tensor]) -> None:
        """Raises NotLearnedError where a bool, or a list of whole numbers, decides over the shapes of the results."""
        others = {"bool": lambda sample: str(not eval(sample)), "int[]": lambda _: "[0]", "SymInt[]": lambda _: "[0]"}
        for argument in self.arguments:
            if argument["type"] not in others:
                continue
            changed = {**argument, "sample": others[argument["type"]](argument["sample"])}
            arguments = [changed if other is argument else other for other in self.arguments]
            try:
                outputs = Learner(self.function, arguments).outputs(assumption, 0)
            except Exception:  # It does not take that.
                continue
            if [output.shape for output in outputs] != [result.shape for result in results]:
                raise NotLearnedError(f"{argument['name']}, which decides over shapes")

    def tried(self, assumption: Assumption, sample: int) -> list[Tensor] | None:
        try:
            return self.outputs(assumption, sample)
        except Exception:  # It does not take such arguments.
            return None

    def dtype_of(self, assumption: Assumption, number: int) -> str:
        """The dtype of a result: float where it follows that of the arguments."""
        dtypes = []
        for dtype in _FLOATS:
            try:
                dtypes.append((dtype, self.outputs(assumption, 0, dtype)[number].dtype))
            except Exception:  # A dtype that it does not take says nothing.
                continue
        if "float" in assumption.dtypes and all(got == dtype for dtype, got in dtypes):
            return "float"
        if len({got for _, got in dtypes}) == 1:
            return _name(dtypes[0][1])
        said = ", ".join(f"{_name(got)} for {_name(dtype)}" for dtype, got in dtypes)
        raise NotLearnedError(f"the dtype of result {number + 1} ({said})")

    def of_optional(self, name: str, assumption: Assumption, results: list[Tensor]) -> str:
        """The first shape with which the results have the shapes that they have without the tensor."""
        expected = [result.shape for result in results]
        for shape in dict.fromkeys([*assumption.shapes, "N", "M", "M N", "()"]):
            try:
                outputs = self.outputs(assumption, 0, optional={name: (shape, "float")})
            except Exception:  # It does not take such a tensor.
                continue
            if [output.shape for output in outputs] == expected and self.tried(assumption, 0):
                return shape
        raise NotLearnedError(f"{name}, whose shape could not be learned")

    def bound(self, name: str, assumption: Assumption) -> str:
        """What the whole numbers of a tensor are below, if it is one of the sizes."""
        if assumption.dtypes[self.required.index(name)] != "int64":
            return ""
        for size_name, size in self.sizes(0).items():
            try:
                self.outputs(assumption, 0, fill=name, number=size - 1)
            except Exception:  # It is too large already.
                continue
            try:
                self.outputs(assumption, 0, fill=name, number=size)
            except Exception:  # As an index that is out of range.
                return f" < {size_name}"
        return ""

    def leading(self, assumption: Assumption, outputs: list[str], results: list[Tensor]) -> Callable[[str], str]:
        """How shapes are spelled where any leading dimensions will do: in place of M, or in front of all."""
        shapes, optional = assumption.shapes, bool(self.optional)
        fits = all(shape.split()[0] == "M" or shape in ("N", "()") for shape in (*shapes, *outputs))
        if fits and shapes[0].startswith("M") and all(output.split()[0] == "M" for output in outputs):
            sizes = ((), (3, 2), (2, 2, 3))
            expected = [[(*more, *result.shape[1:]) for result in results] for more in sizes]
            begin = [name for name, shape in zip(self.required, shapes, strict=True) if shape.split()[0] == "M"]
            several = replace(assumption, leading=(3, 2))
            if self.is_independent(several, begin) and self.gives(
                [replace(assumption, leading=more) for more in sizes], expected
            ):
                return lambda shape: f"...{shape[1:]}" if shape.split()[0] == "M" else shape
        if not optional and len(set(shapes)) == 1 and shapes[0] == "M N":
            more_dims = ((2,), (3, 2))
            expected = [[(*more, *result.shape) for result in results] for more in more_dims]
            several = replace(assumption, before=(3, 2))
            if self.is_independent(several, self.required) and self.gives(
                [replace(assumption, before=more) for more in more_dims], expected
            ):
                return lambda shape: "..." if shape == "()" else f"... {shape}"
        return lambda shape: shape

    def is_independent(self, assumption: Assumption, names: Sequence[str]) -> bool:
        """Whether the parts along the first dimension of these tensors have nothing to do with one another."""
        places = [i for i, argument in enumerate(self.arguments) if argument["name"] in names]
        return _is_independent(self.function, self.arguments, self.values(assumption, 0), places)

    def gives(self, assumptions: list[Assumption], expected: list[list[tuple[int, ...]]]) -> bool:
        """Whether the results have these shapes."""
        for assumption, shapes in zip(assumptions, expected, strict=True):
            try:
                results = self.outputs(assumption, 0)
            except Exception:  # It does not take such arguments.
                return False
            if [tuple(result.shape) for result in results] != shapes:
                return False
        return True


def _size(word: str, sizes: dict[str, int]) -> int:
    name, slash, divisor = word.partition("/")
    return sizes[name] // int(divisor) if slash else sizes[name]


def _dims(samples: list[tuple[dict[str, int], list[int]]], names: list[str]) -> str | None:
    """A result's shape in words that hold in every sample."""
    if len({len(shape) for _, shape in samples}) > 1:
        return None
    words = []
    for i in range(len(samples[0][1])):
        pairs = [(sizes, shape[i]) for sizes, shape in samples]
        word = next((w for w, of in _words(names, samples[0][1][i]) if all(of(s) == size for s, size in pairs)), None)
        if word is None:
            return None
        words.append(word)
    return " ".join(words) or "()"


def _words(names: list[str], size: int) -> Iterator[tuple[str, Callable[[dict[str, int]], int]]]:
    """Expressions of sizes, the plain ones first."""
    for name in names:
        yield name, lambda sizes, name=name: sizes[name]
    yield str(size), lambda sizes: size
    for name in names:
        for factor in (2, 3, 4):
            # With an even number of elements alone where the function takes no odd one.
            yield f"{name}/{factor}", lambda s, n=name, f=factor: s[n] // f if s[n] % f == 0 else -1
            yield f"{name}//{factor}", lambda s, n=name, f=factor: s[n] // f
            yield f"({name}+{factor - 1})//{factor}", lambda s, n=name, f=factor: (s[n] + f - 1) // f
            yield f"{factor}*{name}", lambda s, n=name, f=factor: s[n] * f
        for more in (1, 2):
            yield f"{name}+{more}", lambda s, n=name, m=more: s[n] + m
            yield f"{name}-{more}", lambda s, n=name, m=more: s[n] - m
    for left, right in itertools.combinations(names, 2):
        yield f"{left}*{right}", lambda s, a=left, b=right: s[a] * s[b]
        yield f"{left}+{right}", lambda s, a=left, b=right: s[a] + s[b]
        yield f"{left}-{right}+1", lambda s, a=left, b=right: s[a] - s[b] + 1
