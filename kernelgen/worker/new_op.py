"""Holds the function of a new op: traces it, learns its shapes by calls with small tensors, and says what it returns
for arguments of given shapes.

The request has the `source` of a file, the `function` in it and its `arguments` (a schema's entry). Orders are `trace`,
which lab/new_op/trace.py gives, and `learn`, `results`, `gradients`, `bounded` and `independent`, which are
lab/new_op/shapes.py's.
"""

from collections.abc import Callable, Collection
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelgen.errors import LabError
from kernelgen.worker.protocol import Emit, in_a_line
from kernelgen.worker.quiet import quiet
from kernelgen.worker.shape_learner import Learner, UnlearnableError
from kernelgen.worker.small_calls import (
    WrittenError,
    call_of_pure,
    call_with,
    is_floating,
    is_independent,
    made,
    name_of,
)
from kernelgen.worker.trace import traced
from kernelgen.worker.trace.function import bare, module_scope
from kernelgen.worker.trace.refusals import RefusedError


def work(request: dict[str, Any], emit: Emit) -> "Orders":
    return Orders(request["source"], request["function"], request["arguments"])


class Orders:
    def __init__(self, source: str, name: str, arguments: list[dict[str, Any]]) -> None:
        self.source, self.name, self.arguments = source, name, arguments

    @cached_property
    def function(self) -> Callable[..., Any]:
        plain = self.run_file()[self.name]
        return lambda *args, **kwargs: bare(plain(*args, **kwargs))

    def run_file(self) -> dict[str, Any]:
        """The names in the function's file.

        Raises:
            LabError: it cannot be run.
        """
        scope = module_scope()
        try:
            with quiet():
                exec(compile(self.source, "reference.py", "exec"), scope)
        except Exception as error:
            raise LabError(f"a {in_a_line(error)}, when its file was run") from error
        return scope

    def trace(self, **options: Any) -> dict[str, Any]:
        """What kernels are written from, as kernelgen/worker/trace/ says, which has the `options` too; or `refused`, a
        phrase that names what was in the way."""
        request = {"source": self.source, "function": self.name, "arguments": self.arguments, **options}
        self.run_file()
        try:
            return traced(request)
        except RefusedError as refused:
            return {"refused": str(refused)}

    def learn(self) -> dict[str, Any]:
        """`shapes` in the language of `add-op --shapes`, and how many tensors were `returned`; or `reason`, why none
        was learned; or `written`, the names of arguments that the function writes to."""
        with quiet(), torch.no_grad():
            try:
                shapes, returned = Learner(self.function, self.arguments).shapes()
                return {"shapes": shapes, "returned": returned}
            except UnlearnableError as error:
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
        names = [argument["name"] for argument, value in zip(self.arguments, call, strict=True) if is_floating(value)]
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
        values = [made(argument, torch.Generator().manual_seed(0)) for argument in call]
        leaves = {
            argument["name"]: value.requires_grad_()
            for argument, value in zip(self.arguments, values, strict=True)
            if argument["name"] in names
        }
        results = pytree.tree_leaves(call_with(self.function, self.arguments, values, nullcontext()))
        results = [result for result in results if result.requires_grad]
        if not results or not leaves:
            return []
        grads = torch.autograd.grad([r.sum() for r in results], list(leaves.values()), allow_unused=True)
        return [name for name, grad in zip(leaves, grads, strict=True) if grad is not None]

    def bounded(self, call: list[dict[str, Any]]) -> dict[str, Any]:
        """The `names` of the tensors whose numbers have to lie between 0 and 1, as variances do: with others the
        results are not finite."""
        names = [argument["name"] for argument, value in zip(self.arguments, call, strict=True) if is_floating(value)]
        with quiet(), torch.no_grad():
            if self._is_finite(call, []) or not self._is_finite(call, names):
                return {"names": []}
            for name in list(names):
                fewer = [other for other in names if other != name]
                names = fewer if self._is_finite(call, fewer) else names
            return {"names": names}

    def _is_finite(self, call: list[dict[str, Any]], bounded: Collection[str]) -> bool:
        values = [made(argument, torch.Generator().manual_seed(0)) for argument in call]
        values = [
            value.sigmoid() if argument["name"] in bounded else value
            for argument, value in zip(self.arguments, values, strict=True)
        ]
        try:
            results = pytree.tree_leaves(call_with(self.function, self.arguments, values))
        except RuntimeError:  # Of a matrix that has no such factors, for one.
            return False
        return all(bool(result.isfinite().all()) for result in results)

    def independent(self, call: list[dict[str, Any]], places: list[int]) -> dict[str, Any]:
        """Whether each part along the first dimension of the arguments at `places` gives its part of the results."""
        with quiet(), torch.no_grad():
            values = [made(argument, torch.Generator().manual_seed(0)) for argument in call]
            return {"holds": is_independent(self.function, self.arguments, values, places)}

    def _result(self, call: list[dict[str, Any]]) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(0)
        try:
            values = [made(argument, generator) for argument in call]
            results = pytree.tree_leaves(call_of_pure(self.function, self.arguments, values))
        except WrittenError as error:
            return {"written": error.names}
        except Exception as error:
            return {"error": in_a_line(error)}
        if not all(isinstance(result, Tensor) for result in results):
            return {"error": "it returns something else than tensors"}
        return {"shapes": [list(r.shape) for r in results], "dtypes": [name_of(r.dtype) for r in results]}
