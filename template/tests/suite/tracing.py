"""torch.compile and torch.export see one operator, whose fake says what the real one does."""

import io
import itertools
import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .evaluation import evaluate
from .inputs import Make, tensors
from .op import OpUnderTest
from .tolerances import assert_equal


class TracingTests(OpUnderTest):
    """PyTorch's own checks of an operator, compilation, export."""

    def test_opcheck(self, device: str) -> None:
        every = ("schema", "autograd_registration", "faketensor", "aot_dispatch_static", "aot_dispatch_dynamic")
        lacking = set()
        for dtype in self.dtypes[:2]:
            # The gradient's gradient is PyTorch's, which takes another order of operations while it is traced.
            tolerances = {"rtol": 0.05, "atol": 1e-3} if self.gradient and dtype.itemsize == 2 else {}
            for operator, args, kwargs in self.calls(device, dtype):
                if not self.is_traced(operator, args):
                    torch.library.opcheck(operator, args, kwargs, test_utils=("test_schema", "test_faketensor"))
                    continue
                # PyTorch's test of the schema compares arguments by arithmetic, which those of 8 bits do not have.
                has_8_bits = any(map(is_of_8_bits, tensors(args)))
                names = [f"test_{name}" for name in every[has_8_bits:]]
                if self.gradient and not tensors(operator(*args, **kwargs))[0].is_floating_point():
                    # PyTorch's tests of gradients add up all results in the dtype of the first.
                    names = [name for name in names if "aot_dispatch" not in name]
                if dtype.itemsize == 2 and has_nan_gradients(operator, args, kwargs):
                    # PyTorch's tests of gradients take no NaN for another. The reference's second derivative may have
                    # some: a product of a 0 with what 16 bits do not hold.
                    names = [name for name in names if "aot_dispatch" not in name]
                # PyTorch compares numbers of 8 bits by their bits alone.
                allowed = {} if any(map(is_of_8_bits, tensors(operator(*args, **kwargs)))) else tolerances
                try:
                    torch.library.opcheck(operator, args, kwargs, test_utils=names, **allowed)
                except Exception as error:
                    lack = what_torch_lacks(error)
                    if not lack:
                        raise
                    lacking.add(lack)
                    names.remove("test_aot_dispatch_dynamic")
                    torch.library.opcheck(operator, args, kwargs, test_utils=names, **allowed)
        if lacking:
            pytest.skip(f"dynamic shapes: torch {torch.__version__} has {' and '.join(sorted(lacking))}")

    def is_traced(self, operator: Any, args: Sequence[Any]) -> bool:
        """Whether a call of the operator can be part of a graph: a query's answer is a constant there."""
        results = [str(result.type) for result in operator._schema.returns]
        return "torch.compile" not in self.lacks and bool(tensors(args) or any("Tensor" in type_ for type_ in results))

    def test_compile(self, device: str) -> None:
        """One graph, forward and backward, that serves other sizes without compiling again."""
        self.need("torch.compile")
        torch._dynamo.reset()
        # On the CPU everything but the last step, which would need a C++ compiler at run time.
        backend = "inductor" if device.startswith("cuda") else "aot_eager"
        compiled = torch.compile(self.op, fullgraph=True, dynamic=True, backend=backend)
        for case, again in zip(self.cases[:2], (False, True), strict=True):
            args = self.inputs(case, Make(device, self.dtypes[0], requires_grad=self.gradient))
            if not tensors(args) and not tensors(self.op(*args)):
                # A query's answer is a constant of the graph, so another question is another graph.
                assert compiled(*args) == self.op(*args)
                continue
            # A number of type int is a constant of the graph, unlike the sizes of tensors.
            with torch._dynamo.config.patch(error_on_recompile=again and bool(tensors(args))):
                torch.testing.assert_close(evaluate(compiled, args), evaluate(self.op, args))

    def test_export(self, device: str) -> None:
        """Saved, loaded and run on other sizes."""
        self.need("torch.export")
        first, second = (self.inputs(case, Make(device, self.dtypes[0])) for case in self.cases[:2])
        # A dtype or a device is no input of an exported graph, but part of it.
        is_input = [not any(map(is_constant, pytree.tree_leaves(arg))) for arg in first]

        def inputs(args: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(itertools.compress(args, is_input))

        def of_inputs(*arguments: Any) -> Any:
            rest = iter(arguments)
            return self.op(*(next(rest) if chosen else arg for arg, chosen in zip(first, is_input)))

        class Module(torch.nn.Module):
            forward = staticmethod(of_inputs)

        varies = torch.export.Dim.AUTO

        def dims(arg: Any) -> Any:
            # Numbers vary where there is no tensor whose sizes do.
            of_number = varies if type(arg) is int and not tensors(first) else None
            return [varies] * arg.ndim if isinstance(arg, Tensor) else of_number

        sizes = pytree.tree_map(dims, inputs(first))
        file = io.BytesIO()
        torch.export.save(torch.export.export(Module(), inputs(first), dynamic_shapes=(sizes,)), file)
        file.seek(0)
        loaded = torch.export.load(file).module()
        for args in (first, second):
            assert_equal(tensors(loaded(*inputs(args))), tensors(self.op(*args)))


def is_of_8_bits(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dtype.itemsize == 1


def what_torch_lacks(error: Exception) -> str:
    """What a torch older than 2.14 lacks for dynamic shapes of a gradient's gradient, the reference's; else ""."""
    if torch.__version__ >= (2, 14):
        return ""
    if "RegisterZeroTensor" in str(error):
        return "no zero tensors of symbolic shapes; 2.14 has"
    # It passes a symbolic size on as a number, which is the address of the symbol.
    if re.search(r"shape as normalized_shape, .* normalized_shape = \[-\d+\]", str(error)):
        return "no fused rms_norm of symbolic shapes"
    return ""


def has_nan_gradients(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether PyTorch's tests would compare NaN: the gradients of the results' sum."""
    leaves = [tensor for tensor in tensors((args, kwargs)) if tensor.requires_grad]
    outputs = [output for output in tensors(operator(*args, **kwargs)) if output.requires_grad] if leaves else []
    if not outputs:
        return False
    grads = torch.autograd.grad([output.sum() for output in outputs], leaves, allow_unused=True)
    return any(grad is not None and bool(grad.isnan().any()) for grad in grads)


def is_constant(value: Any) -> bool:
    """Whether an exported graph takes a value as a part of itself, not as an input."""
    return isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format))
