"""The tests of every op, written once. An op's own test file says what the op takes, and inherits the tests:

    class TestScale(OpSuite):
        op = staticmethod(scale)
        reference = staticmethod(reference.scale)
        dtypes = (torch.float32, torch.float64)
        cases = ((4, 33), (6, 20), (1,), (0, 5), (100, 101))

        def inputs(self, case, make):
            return make(case), 0.5

        def refusals(self, make):
            yield (make((3,)).int(), 0.5), "scale: x has dtype int32; it takes float32, float64"

A test fails where the op lacks what the test is about. An op that is to go without it says so, and why, in `lacks`.
`op.py` holds what a test class may say; the tests are in one module a topic.
"""

from .backends import TOO_LARGE, backend_of, compute_capability, cuda_devices, devices_under_test, is_too_large
from .broadcast import (
    broadcast_cases,
    changed,
    flat_cases,
    part_cases,
    plane_cases,
    row_cases,
    row_huge_cases,
    with_size,
)
from .devices import DeviceTests
from .evaluation import evaluate
from .gradients import GradientTests
from .inputs import LAYOUTS, Make, by_name, copies, on_copies, tensors
from .layouts import LayoutTests
from .op import OPTIONAL, REFUSED, check_declaration
from .refusals import RefusalTests, refusal
from .tolerances import assert_accurate, assert_equal
from .tracing import TracingTests
from .transforms import TransformTests
from .unwritten import UnwrittenTests
from .values import ValueTests

__all__ = [
    "LAYOUTS",
    "OPTIONAL",
    "REFUSED",
    "TOO_LARGE",
    "Make",
    "OpSuite",
    "assert_accurate",
    "assert_equal",
    "backend_of",
    "broadcast_cases",
    "by_name",
    "changed",
    "compute_capability",
    "copies",
    "cuda_devices",
    "devices_under_test",
    "evaluate",
    "flat_cases",
    "is_too_large",
    "on_copies",
    "part_cases",
    "plane_cases",
    "refusal",
    "row_cases",
    "row_huge_cases",
    "tensors",
    "with_size",
]


class OpSuite(
    # pytest runs the last one's tests first.
    *(DeviceTests, TransformTests, TracingTests, RefusalTests, GradientTests, LayoutTests, ValueTests, UnwrittenTests)
):
    """Every test of one op."""

    def __init_subclass__(cls) -> None:
        check_declaration(cls, inherited=OpSuite)
