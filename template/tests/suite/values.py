"""Values and gradients are those of the reference, at every size; inputs stay as they are."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from .evaluation import ExactConstants, evaluate, much_memory, poisoned_memory
from .inputs import Make, copies, nearby, others, tensors
from .op import OpUnderTest
from .tolerances import assert_accurate, assert_equal, largest_error, largest_number

NEIGHBOURS = 8
# Where a result has few elements, so many neighbours that the largest error is that of about as many numbers.
NUMBERS = 64
# By which inputs in float64 are moved: a kernel makes a few inside.
ROUNDINGS = 8
# By which all numbers of an input in another dtype are moved at most.
TOGETHER = 8


class ValueTests(OpUnderTest):
    """Against the reference in float64."""

    def check_accuracy(self, case: Any, make: Make, draws: int) -> None:
        """Compares outputs and gradients with the reference, over so many draws of the inputs taken together."""
        compared: dict[Any, tuple[list[Tensor], list[Tensor], list[Tensor]]] = {}
        drawn: list[tuple[Any, list[Tensor]]] = []
        for _ in range(draws):
            args = self.inputs(case, make)
            exact_args, plain_args = copies(args, torch.float64), copies(args)
            with ExactConstants():
                exact = self.reference(*exact_args)
            cotangents = [make(out.shape) if out.is_floating_point() else out for out in tensors(exact)]
            drawn.append((copies(args), cotangents))
            with poisoned_memory():
                result = evaluate(self.op, args, cotangents)
            plain = evaluate(type(self).baseline or self.reference, plain_args, cotangents)
            with ExactConstants():
                oracle = evaluate(lambda *_: exact, exact_args, cotangents)  # noqa: B023
            evaluations = [outputs + grads for outputs, grads in (result, plain, oracle)]
            for i, triple in enumerate(zip(*evaluations, strict=True)):
                assert [value is None for value in triple] in ([True] * 3, [False] * 3), f"gradient {i} is missing"
                for collected, value in zip(compared.setdefault(i, ([], [], [])), triple, strict=True):
                    if value is not None:
                        collected.append(value.detach())
        for i, triple in compared.items():
            try:
                if triple[0]:
                    assert_accurate(*triple)
            except AssertionError:
                if not triple[0][0].is_floating_point():
                    raise
                elements = sum(tensor.numel() for tensor in triple[1])
                neighbours = max(NEIGHBOURS, NUMBERS // max(1, elements))
                assert_accurate(*triple, error_nearby=self.error_nearby(i, drawn * neighbours))

    def error_nearby(self, i: int, drawn: list[tuple[Any, list[Tensor]]]) -> float:
        """The largest error that PyTorch makes in a result where each input is a rounding off.

        PyTorch may be nearly exact by luck: where few numbers decide, as in a softmax over three keys, and where terms
        cancel. In float64, beside which nothing is more exact, it is what a few roundings of the inputs change. Where
        the result is 0 whatever the inputs are, equal terms cancel, of which a compiler may round one only (a * b - c
        in one instruction): it is a rounding of the largest term.
        """
        largest, is_zero, term, eps = 0.0, True, 0.0, 0.0
        for args, cotangents in drawn:
            is_exact = {t.dtype for t in tensors(args) if t.is_floating_point()} == {torch.float64}
            plain_args = nearby(args, ROUNDINGS) if is_exact else nearby(args, together=TOGETHER)
            exact_args = copies(args if is_exact else plain_args, torch.float64)
            plain = evaluate(type(self).baseline or self.reference, plain_args, cotangents)
            with ExactConstants():
                oracle = evaluate(self.reference, exact_args, cotangents)
            value, exact = ((outputs + grads)[i] for outputs, grads in (plain, oracle))
            largest = max(largest, float(largest_error(value.dtype, value.double(), exact.double(), exact)))
            is_zero, eps = is_zero and not exact.any(), torch.finfo(value.dtype).eps
            term = max(term, largest_number(cotangents) * max(1, largest_number(tensors(plain_args))))
        return max(largest, eps * term) if is_zero else largest

    def test_accuracy(self, device: str, dtype: torch.dtype, case: Any) -> None:
        make = Make(device, dtype, requires_grad=self.gradient)
        elements = max((tensor.numel() for tensor in tensors(self.inputs(case, make))), default=0)
        # The error of a few elements is luck; that of a thousand is not.
        self.check_accuracy(case, make, draws=min(25, 1000 // max(1, elements) + 1))

    def test_defaults(self) -> None:
        """What is left out means what it means in the reference: cases mostly give every argument."""
        of_op, of_reference = (inspect.signature(function).parameters for function in (self.op, self.reference))
        for name in of_op.keys() & of_reference.keys():
            default, expected = (of[name].default for of in (of_op, of_reference))
            default, expected = (tuple(v) if isinstance(v, list) else v for v in (default, expected))
            assert default == expected, f"{name} is {default} if left out; in reference.py it is {expected}"

    def test_results_that_are_no_tensors(self, device: str, case: Any) -> None:
        """Numbers, strings and the like: as the reference's."""
        args = self.inputs(case, Make(device, self.dtypes[0]))
        expected = others(self.reference(*copies(args)))
        if expected in ([], [None]):
            pytest.skip("it returns tensors alone")
        assert others(self.op(*args)) == expected

    def test_cases_cover_the_edges(self) -> None:
        shapes = [
            tensor.shape for case in self.cases for tensor in tensors(self.inputs(case, Make("cpu", torch.float32)))
        ]
        sizes = [shape.numel() for shape in shapes]
        assert "empty inputs" in self.lacks or 0 in sizes, "add a case without elements"
        assert "one element" in self.lacks or 1 in sizes, "add a case of one element"
        assert "many elements" in self.lacks or max(sizes) >= 10_000, "add a case of ten thousand elements or more"
        has_odd_row = any(shape and shape[-1] > 16 and shape[-1] % 2 for shape in shapes)
        assert "odd rows" in self.lacks or has_odd_row, "add a case with an odd row"

    def test_inputs_are_left_as_they_are(self, device: str) -> None:
        self.need("unchanged inputs")
        args = self.typical(device)
        before = tensors(copies(args))
        evaluate(self.op, args)
        assert_equal(tensors(args), before)

    def test_same_result_twice(self, device: str) -> None:
        self.need("repeatable results")
        for case in self.cases_here():
            args = self.inputs(case, Make(device, self.dtypes[0], requires_grad=self.gradient))
            self.assert_same(*evaluate(self.op, args), evaluate(self.op, args))

    @pytest.mark.slow
    def test_huge(self, gpu: str, huge: Any) -> None:
        """Rows at the start, where 32-bit indices turn negative, and at the end."""
        dtype = min(self.dtypes, key=lambda dtype: dtype.itemsize)
        with much_memory():
            try:
                self.check_huge(huge, Make(gpu, dtype, requires_grad=self.gradient))
                return
            except RuntimeError as error:
                if "out of memory" not in str(error):
                    raise
        pytest.skip("needs more GPU memory")

    def check_huge(self, case: Any, make: Make) -> None:
        args = self.inputs(case, make)
        with poisoned_memory():
            outputs, grads = evaluate(self.op, args)
        assert max(tensor.numel() for tensor in tensors(args)) > 2**31, "this is no huge case"
        output, leaves = outputs[0], [tensor for tensor in tensors(args) if tensor.requires_grad]
        row = max(1, output[0].numel())
        for start in (0, 2**31 // row - 2, len(output) - 4):
            few_args = copies(self.rows(args, output, start, start + 4))
            few_outputs, few_grads = evaluate(type(self).baseline or self.reference, few_args)
            # A number of 8 bits may be the next one: a step is up to a quarter of it.
            output_part, tolerance = output[start : start + 4], 0.25 if output.dtype.itemsize == 1 else 1e-2
            torch.testing.assert_close(output_part.float(), few_outputs[0].float(), atol=2e-2, rtol=tolerance)
            for leaf, grad, few_grad in zip(leaves, grads, few_grads, strict=True):
                if leaf.ndim and len(leaf) == len(output):
                    torch.testing.assert_close(grad[start : start + 4], few_grad, atol=2e-2, rtol=1e-2)
        # A sum over so many rows may well be infinite.
        assert not any(grad.isnan().any() for grad in grads if grad is not None and grad.numel() < 2**31)
