"""The suite's helpers under their old name: ops that were stamped before tests/suite/ import them from here."""

from suite import LAYOUTS, Make, assert_accurate, assert_equal, copies, evaluate, on_copies, refusal, tensors
from suite.evaluation import Recorder, much_memory, poisoned_memory
from suite.gradients import forward_derivative, nothing_needless, with_tangent
from suite.inputs import flattened
from suite.layouts import significant_strides
from suite.tracing import is_constant
from suite.transforms import no_vmap_fallback, part, whole

__all__ = [
    "LAYOUTS",
    "Make",
    "Recorder",
    "assert_accurate",
    "assert_equal",
    "copies",
    "evaluate",
    "flattened",
    "forward_derivative",
    "is_constant",
    "much_memory",
    "no_vmap_fallback",
    "nothing_needless",
    "on_copies",
    "part",
    "poisoned_memory",
    "refusal",
    "significant_strides",
    "tensors",
    "whole",
    "with_tangent",
]
