"""What is assumed of a function's arguments, and samples of them to trace it with."""

import ast
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelgen.worker.trace.graph import RefusedError, Sample

# Shapes and values that differ from sample to sample, so that a number that depends on them is seen to.
_LEADING = ((2, 3), (3, 4), (5, 2), (4, 6))
_COLUMNS = (8, 11, 14, 9)
_FLOATS = ((0.37, 0.59, 0.23, 0.71), (1.43, 1.29, 1.81, 1.67), (2.13, 2.31, 2.57, 2.05), (3.23, 3.07, 3.11, 3.41))
_INTEGERS = ((3, 2, 5, 4), (4, 7, 6, 2), (7, 3, 2, 6), (2, 5, 4, 9))
# Where functions like to take another path.
_SPECIAL = {"float": (0.0, 1.0, -1.0, 2.0), "int": (0, 1, -1, 2)}
_MOST_TENSORS = 8
_MOST_FLAGS = 2


@dataclass(frozen=True)
class Assumption:
    """What each tensor is: `dtypes` are float or bool, `kinds` element, column (a vector of the last dimension) or row
    (without the last dimension)."""

    recipe: str
    arguments: tuple[dict[str, Any], ...]
    dtypes: dict[str, str]
    kinds: dict[str, str]
    flags: dict[str, bool]

    def as_dict(self) -> dict[str, Any]:
        return {"recipe": self.recipe, "dtypes": self.dtypes, "kinds": self.kinds}

    def sample(self, k: int) -> Sample:
        """The k-th of four samples."""
        return self._sample(k, {})

    def special_samples(self, numbers: Iterable[float] = ()) -> Iterator[Sample]:
        """Samples with each scalar at values where functions like to take another path, then at its default.

        Args:
            numbers: those that stand in the function's source: `if alpha > 3.7` is seen by 3.7 and its neighbours.
        """
        for argument in self.arguments:
            base = _base(argument)
            for value in (*_SPECIAL.get(base, ()), *(near for n in numbers for near in _near(base, n))):
                yield self._sample(0, {argument["name"]: value})
        defaults = {a["name"]: _literal(a) for a in self.arguments if _base(a) in ("float", "int") and a["default"]}
        yield self._sample(0, defaults)

    def large_sample(self) -> Sample:
        """One with so many elements that rare ones are among them, and each scalar at its default."""
        defaults = {a["name"]: _literal(a) for a in self.arguments if _base(a) in ("float", "int") and a["default"]}
        sample = self._sample(0, defaults)
        shapes = {"element": (8, 8, 32), "column": (32,), "row": (8, 8)}
        large = {
            name: _tensor(self.dtypes[name], shapes[self.kinds[name]], seed) for seed, name in enumerate(self.dtypes)
        }
        return replace(sample, values={**sample.values, **large})

    def with_flags(self) -> Iterator["Assumption"]:
        """The same with each choice of its bool arguments."""
        names = list(self.flags)
        for chosen in itertools.product((True, False), repeat=len(names)):
            yield replace(self, flags=dict(zip(names, chosen, strict=True)))

    def _sample(self, k: int, chosen: dict[str, Any]) -> Sample:
        shapes = {
            "element": (*_LEADING[k], _COLUMNS[k]),
            "column": (_COLUMNS[k],),
            "row": _LEADING[k],
        }
        values, position = {}, 0
        for argument in self.arguments:
            name, base = argument["name"], _base(argument)
            if argument["kind"] == "tensor":
                values[name] = _tensor(self.dtypes[name], shapes[self.kinds[name]], seed=100 * k + len(values))
            elif base in ("float", "int"):
                values[name] = chosen.get(name, _number(base, position, k))
                position += 1
            else:
                values[name] = self.flags[name]
        return Sample(values, self.kinds, _COLUMNS[k], shapes["element"])


def assumptions(arguments: list[dict[str, Any]], recipes: list[str]) -> Iterator[Assumption]:
    """What may be assumed, from the plain case on. Raises RefusedError where no kernel could take an argument."""
    tensors = []
    for argument in arguments:
        if argument["kind"] == "tensor" and not argument["mutated"] and not argument["keyword_only"]:
            tensors.append(argument["name"])
        elif argument["kind"] != "other" or argument["type"] not in ("float", "int", "SymInt", "bool"):
            raise RefusedError(f"{argument['name']}, which is a {argument['type']}")
        elif argument["keyword_only"]:
            raise RefusedError(f"{argument['name']}, which is given by name alone")
    if not tensors:
        raise RefusedError("that it takes no tensor")
    if len(tensors) > _MOST_TENSORS:
        raise RefusedError(f"that it takes more than {_MOST_TENSORS} tensors")
    flags = {argument["name"]: True for argument in arguments if argument["type"] == "bool"}
    if len(flags) > _MOST_FLAGS:
        raise RefusedError(f"that it takes more than {_MOST_FLAGS} bools, each of which may be another path")
    for recipe in recipes:
        for count in range(min(2, len(tensors) - 1) + 1):
            for masks in itertools.combinations(tensors, count):
                dtypes = {name: "bool" if name in masks else "float" for name in tensors}
                for kinds in _kinds(recipe, tensors):
                    yield Assumption(recipe, tuple(arguments), dtypes, kinds, flags)


def _kinds(recipe: str, tensors: list[str]) -> Iterator[dict[str, str]]:
    """For the recipe row_wise also vectors of the last dimension, and numbers of each row."""
    plain = dict.fromkeys(tensors, "element")
    yield plain
    if recipe == "row_wise" and len(tensors) > 1:
        for kinds in itertools.product(("element", "column"), repeat=len(tensors) - 1):
            if any(kind != "element" for kind in kinds):
                yield dict(zip(tensors, ("element", *kinds), strict=True))


def _number(base: str, position: int, k: int) -> float | int:
    """The scalar at a position among the arguments, in the k-th sample: another number for each."""
    numbers = _FLOATS if base == "float" else _INTEGERS
    value = numbers[position % len(numbers)][k]
    turn = position // len(numbers)
    return value + 0.0137 * turn * (k + 2) if base == "float" else value + turn * (7 + 4 * k)


def _near(base: str, number: float) -> tuple[float | int, ...]:
    """A number and its neighbours, for a scalar of this type."""
    if base == "float":
        distance = 1e-3 * (abs(number) or 1)
        return number, number - distance, number + distance
    if base == "int" and abs(number) < 2**31:
        return math.floor(number) - 1, math.floor(number), math.floor(number) + 1
    return ()


def _base(argument: dict[str, Any]) -> str:
    return {"SymInt": "int"}.get(argument["type"], argument["type"])


def _literal(argument: dict[str, Any]) -> Any:
    """The default of a scalar, whose Python source is a literal."""
    return ast.literal_eval(argument["default"])


def _tensor(dtype: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=torch.float32)
    return values > 0 if dtype == "bool" else values
