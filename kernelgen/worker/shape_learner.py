"""Tries small tensors of plausible shapes until a function takes some, and finds how its results' shapes follow."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.protocol import in_a_line
from kernelgen.worker.small_calls import (
    WrittenError,
    call_of_pure,
    is_independent,
    name_of,
    random_tensor,
)

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


class UnlearnableError(Exception):
    """The message is a sentence without its end: what was in the way."""


@dataclass(frozen=True)
class TriedShapes:
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
            raise UnlearnableError(f"that {clash.pop()}, which is an argument, would be the name of a size too")
        if not self.required:
            raise UnlearnableError("that no tensor is always given")
        if any(argument["mutated"] for argument in arguments):
            raise UnlearnableError("that it writes to its arguments")

    def shapes(self) -> tuple[str, int]:
        """Shapes in the language of `add-op --shapes`, and the number of results."""
        error: Exception | None = None
        for assumption in itertools.islice(self.assumptions(), _MOST_TRIES):
            try:
                results = [self.outputs(assumption, i) for i in range(2)]
            except (UnlearnableError, WrittenError):
                raise
            except Exception as reason:  # It does not take such arguments.
                error = error or reason
                continue
            return self.described(assumption, results), len(results[0])
        raise UnlearnableError(f"that it takes no tensors of the shapes that were tried ({in_a_line(error)})")

    def assumptions(self) -> Iterator[TriedShapes]:
        count = len(self.required)
        for dtypes in self.dtypes():
            yield TriedShapes((_FIRST[0],) * count, dtypes)
            # Products take vectors too, and matrices are what most callers pass.
            for others in itertools.product(_OF_PRODUCTS, repeat=count - 1):
                if set(others) & {"N K", "K N"}:
                    yield TriedShapes((_FIRST[0], *others), dtypes)
            for first in _FIRST:
                yield TriedShapes((first,) * count, dtypes)
                for others in itertools.product(_OTHERS, repeat=count - 1):
                    yield TriedShapes((first, *others), dtypes)
            yield TriedShapes(("()",) * count, dtypes)

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
        assumption: TriedShapes,
        sample: int,
        dtype: torch.dtype = torch.float32,
        optional: dict[str, tuple[str, str]] | None = None,
        fill: str = "",
        number: int = 0,
    ) -> list[Tensor]:
        """The results of a call, with the tensor `fill` full of a number."""
        values = self.values(assumption, sample, dtype, optional, fill, number)
        results = call_of_pure(self.function, self.arguments, values)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        if not all(isinstance(result, Tensor) for result in results):
            raise UnlearnableError("that it returns something else than tensors")
        return results

    def values(
        self,
        assumption: TriedShapes,
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
                tensor = random_tensor(assumption.shape(shape, sizes), of, 2, generator)
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

    def described(self, assumption: TriedShapes, results: list[list[Tensor]]) -> str:
        self.refuse_other_shapes(assumption, results[0])
        odd = self.tried(assumption, 2)
        samples = [(self.sizes(i), outs) for i, outs in enumerate([*results, *([odd] if odd else [])])]
        outputs = []
        for number in range(len(results[0])):
            shapes = [(sizes, list(outs[number].shape)) for sizes, outs in samples]
            dims = _dims(shapes, [*_SAMPLES[0], *self.scalars])
            if dims is None:
                got = " and ".join(str(tuple(shape)) for _, shape in shapes[:2])
                raise UnlearnableError(f"that result {number + 1} has sizes that follow from no other ({got})")
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

    def refuse_other_shapes(self, assumption: TriedShapes, results: list[Tensor]) -> None:
        """Raises UnlearnableError where a bool, or a list of whole numbers, decides over the shapes of the results."""
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
                raise UnlearnableError(f"{argument['name']}, which decides over shapes")

    def tried(self, assumption: TriedShapes, sample: int) -> list[Tensor] | None:
        try:
            return self.outputs(assumption, sample)
        except Exception:  # It does not take such arguments.
            return None

    def dtype_of(self, assumption: TriedShapes, number: int) -> str:
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
            return name_of(dtypes[0][1])
        said = ", ".join(f"{name_of(got)} for {name_of(dtype)}" for dtype, got in dtypes)
        raise UnlearnableError(f"the dtype of result {number + 1} ({said})")

    def of_optional(self, name: str, assumption: TriedShapes, results: list[Tensor]) -> str:
        """The first shape with which the results have the shapes that they have without the tensor."""
        expected = [result.shape for result in results]
        for shape in dict.fromkeys([*assumption.shapes, "N", "M", "M N", "()"]):
            try:
                outputs = self.outputs(assumption, 0, optional={name: (shape, "float")})
            except Exception:  # It does not take such a tensor.
                continue
            if [output.shape for output in outputs] == expected and self.tried(assumption, 0):
                return shape
        raise UnlearnableError(f"{name}, whose shape could not be learned")

    def bound(self, name: str, assumption: TriedShapes) -> str:
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

    def leading(self, assumption: TriedShapes, outputs: list[str], results: list[Tensor]) -> Callable[[str], str]:
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

    def is_independent(self, assumption: TriedShapes, names: Sequence[str]) -> bool:
        """Whether the parts along the first dimension of these tensors have nothing to do with one another."""
        places = [i for i, argument in enumerate(self.arguments) if argument["name"] in names]
        return is_independent(self.function, self.arguments, self.values(assumption, 0), places)

    def gives(self, assumptions: list[TriedShapes], expected: list[list[tuple[int, ...]]]) -> bool:
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
