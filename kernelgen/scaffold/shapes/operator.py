"""One operator of an op, forward or backward, with its shapes and the names that its sources use."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from kernelgen.errors import UsageError
from kernelgen.scaffold.schema.identifiers import CPP_WORDS, PYTHON_WORDS, identifiers
from kernelgen.scaffold.schema.model import Argument, Return, Schema
from kernelgen.scaffold.schema.types import Type
from kernelgen.scaffold.shapes.binding import Step, Tensor, steps
from kernelgen.scaffold.shapes.dtypes import CLASSES, ELEMENTS, is_floating
from kernelgen.scaffold.shapes.expressions import Size, named
from kernelgen.scaffold.shapes.parser import Shape, Shapes

# What the glue and the kernels call things.
_USED = CPP_WORDS | {"sizes", "first", "context", "kernel", "type", "forward", "backward", "stream", "leading", "error"}
_USED |= {
    "T",
    "I",
    "Tuned",
    "Sizes",
    "tuned_values",
    "threads",
    "blocks",
    "rows",
    "row",
    "lane",
    "warp",
    "warps",
    "begin",
}
_USED |= {"end", "i", "j", "n", "checks", "dtypes", "widen", "none", "elements", "grain"}
_USED_IN_PYTHON = PYTHON_WORDS | {"check", "leading"}


@dataclass(frozen=True)
class Value:
    """A tensor argument or a result: its names in the sources, its shape, and the type of its elements in kernels
    (`kernel`) and in glue (`glue`): T or I where the dtype is of a class.

    `needed` is the name of the bool that asks for a gradient, in C++; `kind` as in the schema's entry.
    """

    name: str
    cpp: str
    python: str
    shape: Shape
    kind: str = "tensor"
    mutated: bool = False
    needed: str = ""

    @property
    def dtype(self) -> str:
        return self.shape.dtype

    @property
    def kernel(self) -> str:
        return CLASSES[self.dtype].parameter if self.dtype in CLASSES else ELEMENTS[self.dtype].kernel

    @property
    def glue(self) -> str:
        return CLASSES[self.dtype].parameter if self.dtype in CLASSES else ELEMENTS[self.dtype].glue

    @property
    def is_list(self) -> bool:
        return "list" in self.kind

    @property
    def may_lack(self) -> bool:
        return self.kind == "optional_tensor"

    @property
    def dims(self) -> list[Size]:
        """Its dimensions in kernels, where the leading ones are one."""
        return [named("leading")] * self.shape.leading + list(self.shape.dims)


@dataclass(frozen=True)
class KernelScalar:
    """A number that is passed to the kernels: its C++ parameters, and the expressions that the glue passes."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Operator:
    """`direction` is forward or backward; `name` the operator's, NAME or NAME_backward."""

    op: str
    direction: str
    shapes: Shapes
    needed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.op if self.direction == "forward" else f"{self.op}_backward"

    @property
    def schema(self) -> Schema:
        return self.shapes.schema

    @cached_property
    def steps(self) -> list[Step]:
        return steps(self.shapes)

    @cached_property
    def entry(self) -> dict:
        return self.schema.entry()

    @cached_property
    def _names(self) -> dict[str, tuple[str, str]]:
        """The C++ and the Python name of each argument and result."""
        names = [e["name"] for e in (*self.entry["arguments"], *self.entry["returns"])]
        pairs = zip(identifiers(names, frozenset(_USED)), identifiers(names, frozenset(_USED_IN_PYTHON)), strict=True)
        return dict(zip(names, pairs, strict=True))

    def cpp(self, name: str) -> str:
        return self._names[name][0]

    def python(self, name: str) -> str:
        return self._names[name][1]

    @cached_property
    def tensors(self) -> list[Value]:
        return [
            Value(a.name, self.cpp(a.name), self.python(a.name), self.shapes.arguments[a.name], a.type.kind, a.mutated)
            for a in self.schema.arguments
            if a.type.is_tensor
        ]

    @cached_property
    def results(self) -> list[Value]:
        values = []
        for i, (entry, shape) in enumerate(zip(self.entry["returns"], self.shapes.results, strict=True)):
            needed = self.needed[i] if self.needed else ""
            name = entry["name"]
            values.append(Value(name, self.cpp(name), self.python(name), shape, needed=needed and self.cpp(needed)))
        return values

    @cached_property
    def written(self) -> list[Value]:
        """What the kernels write: the tensors that are written to, then the results."""
        return [tensor for tensor in self.tensors if tensor.mutated] + self.results

    @cached_property
    def read(self) -> list[Value]:
        return [tensor for tensor in self.tensors if not tensor.mutated]

    @cached_property
    def first(self) -> Value:
        """The tensor that gives the device."""
        return next(tensor for tensor in self.tensors if tensor.kind == "tensor")

    def check(self) -> None:
        """Raises UsageError for a schema that has no glue of this kind."""
        if all(tensor.kind != "tensor" for tensor in self.tensors):
            raise UsageError(f"{self.schema.text} takes no tensor that is always given, which --shapes needs.")
        by_name = [a.name for a in self.schema.arguments if a.keyword_only and a.type.kind == "tensor"]
        if by_name:
            raise UsageError(f"{by_name[0]} is a tensor that is passed by name alone; write it before the '*'.")
        if any(tensor.mutated and tensor.kind != "tensor" for tensor in self.tensors):
            raise UsageError("--shapes describes a tensor that is written to only where it is always given, and alone.")

    @cached_property
    def size_names(self) -> list[str]:
        """The members of Sizes: what the leading dimensions have together, and the named sizes."""
        from kernelgen.scaffold.shapes.cases import sizes_of

        return list(sizes_of(self.shapes).names)

    @cached_property
    def scalars(self) -> list[KernelScalar]:
        """The numbers among the arguments, but those that are sizes and those that ask for a gradient."""
        scalars = []
        for argument in self.schema.arguments:
            type, name = argument.type, self.cpp(argument.name)
            if type.is_list or type.base not in ("int", "SymInt", "float", "bool") or argument.name in self.needed:
                continue
            if argument.name in self.size_names:
                continue
            if type.optional:
                parameters = (("bool", f"has_{name}"), (_plain(type), name))
                scalars.append(KernelScalar(argument.name, parameters, (f"{name}.has_value()", f"{name}.value_or(0)")))
            else:
                scalars.append(KernelScalar(argument.name, ((type.cpp, name),), (name,)))
        return scalars

    @cached_property
    def unpassed(self) -> list[Argument]:
        """The arguments that no kernel is passed: words, dtypes, lists of numbers and the like."""
        passed = {scalar.name for scalar in self.scalars} | {tensor.name for tensor in self.tensors}
        return [a for a in self.schema.arguments if a.name not in {*passed, *self.needed, *self.size_names}]

    @cached_property
    def classes(self) -> list[str]:
        """The dtype classes of tensors that are always given, as kernels take them for type parameters."""
        present = {tensor.dtype for tensor in self.tensors if tensor.kind == "tensor"}
        return [name for name in CLASSES if name in present]

    def is_later(self, tensor: Value, other: Value) -> bool:
        """Whether `tensor` is looked at after `other`."""
        order = [step.argument.name for step in self.steps if isinstance(step, Tensor)]
        return order.index(tensor.name) > order.index(other.name)

    def representative(self, dtype_class: str) -> Value:
        """The tensor that gives the dtype of a class."""
        return next(t for t in self.tensors if t.kind == "tensor" and t.dtype == dtype_class)


def _plain(type: Type) -> str:
    return replace(type, optional=False).cpp


def backward_of(forward: Operator, differentiable: Collection[str] | None = None) -> tuple[Operator, list[int]]:
    """The operator NAME_backward: it takes the gradients of the results, all arguments, and where there are several
    gradients a bool for each; and the positions of the op's arguments that have a gradient.

    `differentiable`: the arguments that gradients reach, if that is known.

    Raises UsageError where no gradient can be.
    """
    schema, shapes = forward.schema, forward.shapes
    places = [
        i
        for i, a in enumerate(schema.arguments)
        if a.type.kind in ("tensor", "optional_tensor")
        and not a.keyword_only
        and shapes.arguments[a.name].dtype == "float"
    ]
    if differentiable is not None:
        places = [i for i in places if schema.arguments[i].name in differentiable]
    floating = [i for i, shape in enumerate(shapes.results) if is_floating(shape.dtype)]
    if not schema.functional or not places or not floating:
        reason = (
            "writes to its arguments" if not schema.functional else "has no argument or no result that gradients reach"
        )
        raise UsageError(f"{forward.op} {reason}, so it has no gradient; write --backward none.")
    taken = {a.name for a in schema.arguments}

    def unused(name: str) -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    returns = forward.entry["returns"]
    grads = [unused(f"grad_{returns[i]['name']}") for i in floating]
    names = [schema.arguments[i].name for i in places]
    flags = [unused(f"needs_{name}") for name in names] if len(names) > 1 else []
    arguments = [Argument(name, Type("Tensor")) for name in grads]
    arguments += [replace(a, default=None, keyword_only=False) for a in schema.arguments]
    arguments += [Argument(name, Type("bool")) for name in flags]
    results = tuple(Return(Type("Tensor"), unused(f"grad_{name}")) for name in names)
    said = {name: replace(shapes.results[i], below=None) for name, i in zip(grads, floating, strict=True)}
    said |= shapes.arguments
    result_shapes = tuple(replace(shapes.arguments[name], below=None) for name in names)
    derived = Shapes(Schema(tuple(arguments), results), said, result_shapes, shapes.conditions)
    return Operator(forward.op, "backward", derived, tuple(flags)), places
