"""When a result counts as right: the rule of worker/reference_check.py, in tensor_comparison.py and tolerance.py."""

import contextlib
import math

import pytest
import torch

from kernelgen.errors import LabError
from kernelgen.worker import reference_check, tensor_comparison, tolerance
from kernelgen.worker.cases import complete
from kernelgen.worker.evaluation import Evaluation, copies
from kernelgen.worker.mismatch import MismatchError

from . import same_process
from .test_fuzz import an_op, fault_of


def test_elements_are_counted_in_the_worst_draw():
    fault = fault_of(lambda a, b: a - b, rows=2, columns=2)
    assert fault
    assert "; 4 of 4 elements are wrong, in 25 of 25 draws" in fault


def test_a_difference_of_large_numbers_that_should_be_0_is_rounding_alone():
    """In float64 the reference rounds as well: another right way to compute a gradient of 0 gives another rounding."""

    def centred(x):
        x = x - x.mean(-1, keepdim=True)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True))

    # Three times the input gives the same result by other roundings.
    op = an_op(centred, lambda x: centred(x * 3), inputs=lambda make, rows, columns: (make((rows, columns)),))
    case = complete(op, {"rows": 1, "columns": 2, "dtype": "float64", "values": "huge"})
    for seed in range(10):
        assert same_process.run_case(op, case, seed) is None


def test_the_reference_in_float64_has_exact_constants():
    """PyTorch's kernel multiplies by 1/6 in float32: 3e-8 of the gradient of hardsigmoid."""
    op = an_op(lambda a, b: (a + 3).clamp(0, 6) / 6 + b, lambda a, b: torch.nn.functional.hardsigmoid(a) + b)
    assert same_process.run_case(op, complete(op, {"rows": 5, "columns": 7, "dtype": "float64"}), 1) is None


def test_where_the_reference_overflows_inside_roundings_to_its_16_bits_are_allowed():
    def scaled_late(a, b):
        return ((a + 1000) * 1000 - 1e6) / 1000 + b  # 1e6 is beyond float16.

    case = complete(an_op(), {"rows": 33, "columns": 33, "dtype": "float16"})
    for wrong_by, passes in ((0, True), (8, False)):
        op = an_op(lambda a, b, more=wrong_by: (a + 1000) - 1000 + (b + more), scaled_late, gradient=False)
        assert (same_process.run_case(op, case, 1) is None) == passes


def test_a_wrong_8_bit_result_is_a_fault_of_the_op_and_none_of_the_lab():
    def codes(a, b):
        return (a * 8).clamp(-448, 448).to(torch.float8_e4m3fn)

    case = complete(an_op(), {"rows": 33, "columns": 33, "dtype": "float16"})
    for wrong_by, passes in ((1, True), (2, False)):
        op = an_op(lambda a, b, factor=wrong_by: codes(a * factor, b), codes, gradient=False)
        fault = same_process.run_case(op, case, 1)
        assert (fault is None) == passes
        assert passes or fault.check == "output 0"


_counter = iter(range(10**9))


def test_a_tolerance_for_sums_by_atomics():
    def jitter(a, b):
        return (a + b) * (1 + next(_counter) % 2 * 1.2e-7)

    case = complete(an_op(), {"rows": 5, "columns": 7})
    assert same_process.run_case(an_op(jitter), case, 0)
    assert same_process.run_case(an_op(jitter, repeatable=1e-6), case, 0) is None
    assert (
        same_process.run_case(an_op(jitter, repeatable=lambda rows, columns: 1e-6 if rows == 5 else True), case, 0)
        is None
    )
    assert same_process.run_case(an_op(jitter, repeatable=lambda rows, columns: True if rows == 5 else 1e-6), case, 0)
    with pytest.raises(LabError, match=r"add/lab\.py: REPEATABLE should give True or a tolerance, not None"):
        same_process.run_case(an_op(jitter, repeatable=lambda **_: None), case, 0)


class _LosesGradients(torch.autograd.Function):
    """A sum whose second gradient is off by 0.01."""

    @staticmethod
    def forward(ctx, a, b):
        return a + b

    @staticmethod
    def backward(ctx, grad):
        return grad, grad + 0.01


def test_what_hardware_loses_is_allowed_beside_roundings():
    def at_most(error):
        return lambda a, b, cotangents: {"output 0": error * b.abs(), "gradient 1": 0.011 + 0 * cotangents[0]}

    def lossy(a, b):
        return _LosesGradients.apply(a, b) + 0.1 * b.detach()

    for takes_gradient in ("1", None):  # The second input's gradient is the first or the second of all.
        case = {"rows": 5, "columns": 7} | ({"requires_grad": takes_gradient} if takes_gradient else {})
        right, too_far = (an_op(lossy, allowed_error=at_most(error)) for error in (0.11, 0.09))
        assert same_process.run_case(right, complete(right, case), 3) is None
        assert same_process.run_case(too_far, complete(too_far, case), 3).check == "output 0"
    assert fault_of(lossy).startswith("output 0: ")


def test_what_hardware_loses_may_depend_on_the_dtype():
    def allowed(a, b, dtype):
        return {"output 0": 0.1 * (dtype == torch.float32)}

    op = an_op(lambda a, b: a + b + 0.09, allowed_error=allowed)
    assert same_process.run_case(op, complete(op, {"rows": 5, "columns": 7, "dtype": "float32"}), 3) is None
    wrong = same_process.run_case(op, complete(op, {"rows": 5, "columns": 7, "dtype": "float64"}), 3)
    assert wrong.check == "output 0"


@pytest.mark.parametrize("given", [0.1, {"result 0": 0.1}, {"output 0": "0.1"}])
def test_what_hardware_loses_is_given_by_result(given):
    op = an_op(lambda a, b: a + b + 1, allowed_error=lambda a, b: given)
    with pytest.raises(LabError, match=r"ALLOWED_ERROR should give a number or a tensor for 'output 0'"):
        same_process.run_case(op, complete(op, {"rows": 5, "columns": 7}), 3)


def test_whole_numbers_have_to_be_equal():
    def most(a, b):
        return (a + b).argmax()

    case = complete(an_op(), {"rows": 3, "columns": 3})
    assert same_process.run_case(an_op(most, most, gradient=False), case, 0) is None
    wrong = an_op(lambda a, b: most(a, b) + 1, most, gradient=False)
    assert same_process.run_case(wrong, case, 0).check == "output 0"


@pytest.mark.parametrize(
    ("result", "allowed_error", "right"), [("inf", 3e5, True), ("inf", 2e5, False), ("-inf", 0.0, True)]
)
def test_infinity_of_either_sign_is_right_where_so_much_is_allowed(result, allowed_error, right):
    """As of a sum in 8 bits that cancels: the float64 reference is below what float16 holds, and a right sum above."""
    exact = torch.tensor([-145474.0], dtype=torch.float64)
    allowed = torch.tensor([allowed_error], dtype=torch.float64)
    ours = torch.tensor([float(result)], dtype=torch.float64)
    plain = torch.tensor([-float("inf")], dtype=torch.float64)
    assert bool(tolerance.is_right(torch.float16, ours, plain, exact, allowed)) == right


def test_an_infinity_of_what_cancels_may_have_either_sign_or_be_nan_where_roundings_decide():
    """As of a batch norm with a constant cotangent and an infinite weight: its gradient is 0 times infinity."""
    infinity, nan = float("inf"), float("nan")
    exact = torch.tensor([infinity, -infinity, infinity, 1.0], dtype=torch.float64)
    moved = torch.tensor([-infinity, nan, infinity, 1.0], dtype=torch.float64)
    allowed = [([moved], [exact])]
    for first, second in ((infinity, nan), (-infinity, infinity), (nan, -infinity)):
        result = torch.tensor([first, second, infinity, 1.0], dtype=torch.float64)
        tensor_comparison.compare("gradient 0", [result], [exact], [exact], allowed)
    for wrong in (
        [3.0, nan, infinity, 1.0],
        [nan, nan, -infinity, 1.0],
        [nan, nan, nan, 1.0],
        [nan, nan, infinity, nan],
    ):
        result = torch.tensor(wrong, dtype=torch.float64)
        with pytest.raises(MismatchError):
            tensor_comparison.compare("gradient 0", [result], [exact], [exact], allowed)


def test_infinity_and_the_largest_number_may_differ_by_rounding():
    limits = torch.finfo(torch.float16)
    edge = torch.tensor([65519.0], dtype=torch.float64)
    infinite, largest = (torch.tensor([v], dtype=torch.float16) for v in (float("inf"), limits.max))
    tensor_comparison.compare("output 0", [infinite], [largest], [edge])
    with pytest.raises(Exception, match="inf"):
        tensor_comparison.compare("output 0", [infinite], [largest / 2], [edge / 2])
    with pytest.raises(Exception, match="65504"):
        tensor_comparison.compare("output 0", [largest], [infinite], [edge * 1000])


def test_a_coarse_comparison_sees_what_is_wrong_by_far_and_nothing_less():
    inf, nan = float("inf"), float("nan")
    plain = torch.tensor([1.0, -16.0, inf, nan, 0.0])
    tensor_comparison.compare_coarsely("output 0", plain + torch.tensor([0.001, -0.001, 0.0, 0.0, 0.001]), plain)
    for place, value in enumerate((1.002, -16.002, -inf, 1.0, nan)):
        wrong = plain.clone()
        wrong[place] = value
        with pytest.raises(MismatchError, match=rf"element {place} of 5"):
            tensor_comparison.compare_coarsely("output 0", wrong, plain)
    for exact in (torch.tensor([], dtype=torch.float16), torch.tensor([3, -4]), torch.tensor([True, False])):
        tensor_comparison.compare_coarsely("output 0", exact, exact.clone())
    with pytest.raises(MismatchError, match="element 1 of 2"):
        tensor_comparison.compare_coarsely("output 0", torch.tensor([100, 5]), torch.tensor([100, 4]))


def test_an_infinity_will_do_where_the_reference_has_nan():
    """Which of the two comes of infinite inputs depends on the order of operations; a number never comes of them."""
    nan, inf, finite = (torch.tensor([1.0, value]) for value in (float("nan"), float("inf"), 1.0))
    tensor_comparison.compare("output 0", [inf], [nan], [nan.double()])
    for wrong in ([finite], [nan], [nan.double()]), ([nan], [inf], [inf.double()]):
        with pytest.raises(MismatchError):
            tensor_comparison.compare("output 0", *wrong)


def test_where_the_reference_is_right_by_luck_a_rounding_of_the_inputs_is_allowed():
    exact = torch.tensor([0.294275, 1e-9], dtype=torch.float64)
    lucky = exact.half()
    near, far = (torch.tensor([value, 0.0], dtype=torch.float16) for value in (0.2937, 0.2900))
    with pytest.raises(MismatchError):
        tensor_comparison.compare("gradient 0", [near], [lucky], [exact])
    shaken = exact * (1 + 2**-10)
    beside = tensor_comparison.Beside()
    tensor_comparison.compare("gradient 0", [near], [lucky], [exact], [[[shaken], [exact]]], beside=beside)
    # What was allowed once stays so, with nothing kept of the results that showed it.
    tensor_comparison.compare("gradient 0", [near], [lucky], [exact], beside=beside)
    with pytest.raises(MismatchError):
        tensor_comparison.compare("gradient 0", [far], [lucky], [exact], [[[shaken], [exact]]])


def test_the_reference_is_not_right_by_luck_at_neighbours_of_the_inputs():
    def lucky(a):
        return a + 256 - 256  # In float16 it keeps quarters, and nothing between them.

    a = (torch.arange(1, 41) / 4).half()
    expected = reference_check.Expected(an_op(reference=lucky), torch.float16, "normal")
    expected.add((a,), [])
    errors = [pair for seed in range(8) for pair in expected._allowed_errors(seed, overflows=False)]
    pairs = [[[evaluation.outputs[0] for evaluation in some] for some in pair] for pair in errors]
    for off, passes in ((0.015, True), (0.1, False)):
        draws = "output 0", [a + off], [lucky(a)], [a.double()]
        with pytest.raises(MismatchError):
            tensor_comparison.compare(*draws)
        with contextlib.nullcontext() if passes else pytest.raises(MismatchError):
            tensor_comparison.compare(*draws, pairs)


def test_neighbours_are_off_by_a_rounding():
    x = torch.ones(3, 5, dtype=torch.float16, requires_grad=True)
    ((twice, again), other) = reference_check._moved(copies(((x, x), torch.ones(40))), 2**-10, seed=0)
    assert twice is again
    assert twice.requires_grad
    assert sorted(set((twice.detach().double() - 1).flatten().tolist())) == [-(2**-10), 2**-10]
    assert torch.equal(x.detach(), torch.ones(3, 5, dtype=torch.float16))
    assert not torch.equal(other, reference_check._moved(torch.ones(40), 2**-10, seed=1))


@pytest.mark.parametrize(
    ("dtype", "wrong_by", "passes"), [("float64", 0, True), ("float64", 1e-9, False), ("float32", 1e-9, False)]
)
def test_an_operator_may_lose_digits_that_another_way_keeps(dtype, wrong_by, passes):
    """Far below 0 the approximation of a GELU by tanh is x times the difference of almost equal numbers.

    By a sigmoid it is not. That excuses no larger error, and none in a dtype for which the reference has digits to
    spare.
    """

    def by_tanh(x):
        return torch.nn.functional.gelu(x / 100 - 7, approximate="tanh")

    def by_sigmoid(x):
        z = x / 100 - 7
        return z * torch.sigmoid(math.sqrt(8 / math.pi) * (z + 0.044715 * z**3)) + wrong_by

    op = an_op(by_sigmoid, by_tanh, inputs=lambda make, rows, columns: (make((rows, columns)),))
    case = complete(op, {"rows": 1, "columns": 1, "dtype": dtype})
    assert (same_process.run_case(op, case, 1) is None) == passes


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(("wrong_by", "passes"), [(1.0, True), (1e30, False)])
def test_the_reference_has_digits_to_spare_but_not_endlessly(dtype, wrong_by, passes):
    """So far below 0 that the reference's result is 0, in float64 too; by a sigmoid it is a number of about 1e-37."""

    def by_tanh(x):
        return torch.nn.functional.gelu(x * 0 - 10, approximate="tanh")

    def by_sigmoid(x):
        z = x.float() * 0 - 10
        return (z * torch.sigmoid(math.sqrt(8 / math.pi) * (z + 0.044715 * z**3)) * wrong_by).to(x.dtype)

    op = an_op(by_sigmoid, by_tanh, inputs=lambda make, rows, columns: (make((rows, columns)),))
    case = complete(op, {"rows": 3, "columns": 5, "dtype": dtype})
    assert (same_process.run_case(op, case, 1) is None) == passes


@pytest.mark.parametrize(("dtype", "step"), [(torch.float16, 2.0**-24), (torch.float32, 2.0**-149)])
def test_a_rounding_of_the_smallest_numbers_may_repeat_otherwise(dtype, step):
    """As a share of such numbers it is more than REPEATABLE allows."""
    first, second, third = (Evaluation([torch.tensor([10 * step, i * step], dtype=dtype)], []) for i in range(3))
    tensor_comparison.agree(1e-3, "repeat", "again", first, second)
    with pytest.raises(MismatchError, match="more than REPEATABLE allows"):
        tensor_comparison.agree(1e-3, "repeat", "again", first, third)
    with pytest.raises(MismatchError, match="differs in 1 of 2"):
        tensor_comparison.agree(True, "repeat", "again", first, second)


def _divergence(a, b):
    return (a.softmax(-1) * (a.log_softmax(-1) - b.log_softmax(-1))).sum(-1)


def _divergence_of_probabilities(a, b, wrong_by=0.0):
    p = (a - a.amax(-1, keepdim=True)).exp()
    p = p / p.sum(-1, keepdim=True)
    return (p * (p.log2() * math.log(2) * (1 + wrong_by) - b.log_softmax(-1))).sum(-1)


def test_roundings_that_all_terms_of_a_sum_have_in_common_are_allowed():
    """Of equal numbers all terms are 0 in PyTorch; a logarithm that is rounded in another step moves all of them alike,
    where roundings that differ average out."""
    case = {"rows": 1, "columns": 70001, "values": "zeros"}
    for wrong_by, passes in ((0, True), (1e-5, False)):
        op = an_op(lambda a, b, by=wrong_by: _divergence_of_probabilities(a, b, by), _divergence, gradient=False)
        fault = same_process.run_case(op, complete(op, case), 1)
        assert (fault is None) == passes, (wrong_by, fault)


@pytest.mark.parametrize("values", ["equal", "large mean"])
@pytest.mark.parametrize(("wrong_by", "passes"), [(0, True), (1e-3, False)])
def test_a_mean_may_be_more_exact_than_pytorchs(values, wrong_by, passes):
    """Its batch and instance norms add up float64 numbers one after the other, and subtract the mean inside."""

    def exact_norm(x):
        centred = x - x.mean((-1, -2), keepdim=True)
        centred = centred - centred.mean((-1, -2), keepdim=True)
        return centred * (centred.square().mean((-1, -2), keepdim=True) + 1e-5).rsqrt() + wrong_by

    def inputs(make, rows, columns):
        return (make((rows, 2, 3, columns)),)

    op = an_op(exact_norm, torch.nn.functional.instance_norm, inputs=inputs)
    case = complete(op, {"rows": 3, "columns": 1025, "dtype": "float64", "values": values})
    assert (same_process.run_case(op, case, 1) is None) == passes


def test_the_gradient_of_what_has_no_elements_is_0_whatever_the_reference_makes_of_a_nan():
    """A sum over no rows is 0; PyTorch's derivative multiplies it by the NaN of a tensor that rows have in common."""

    def shifted(a, b):
        return a + b.log_softmax(-1)

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b, of_none):
            ctx.of_none = of_none
            ctx.save_for_backward(b)
            return shifted(a, b)

        @staticmethod
        def backward(ctx, grad):
            (b,) = ctx.saved_tensors
            of_rows = grad - b.softmax(-1) * grad.sum(-1, keepdim=True)
            return grad, of_rows.sum(0) + ctx.of_none, None

    def inputs(make, rows, columns):
        return make((rows, columns)), make((columns,))

    for of_none, passes in ((0.0, True), (1.0, False)):
        op = an_op(lambda a, b, added=of_none: Own.apply(a, b, added), shifted, inputs=inputs)
        case = complete(op, {"rows": 0, "columns": 5, "values": "nan"})
        faults = [same_process.run_case(op, case, seed) for seed in range(5)]
        assert all(fault is None for fault in faults) == passes, (of_none, faults)


@pytest.mark.parametrize(
    ("count", "error", "passes"), [(1, 1.0, True), (2, 1.0, True), (2, 1.5, False), (3, 1.5, True), (3, 2.0, False)]
)
def test_the_gradient_of_what_several_arguments_are_has_a_rounding_of_each(count, error, passes):
    """In steps of the smallest numbers; also where the reference's own gradient is NaN, and allows nothing."""
    step = tolerance.smallest(torch.float16)
    result = torch.full((1,), 2 * step, dtype=torch.float16)
    nan, exact = torch.full((1,), math.nan, dtype=torch.float16), result.double() - error * step
    draw = [Evaluation([], [gradient]) for gradient in (result, nan, exact)]
    shared, other = (torch.ones(1, dtype=torch.float16, requires_grad=True) for _ in range(2))
    terms = reference_check._terms_of_gradients((*(shared,) * count, other))
    with contextlib.nullcontext() if passes else pytest.raises(MismatchError):
        reference_check._compare_draws([draw], terms, [])
