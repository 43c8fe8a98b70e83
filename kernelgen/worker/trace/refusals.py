"""Why no kernel can be written of a function, in phrases that end a sentence."""

import re

from kernelgen.worker.trace.undifferentiated import ProductError

TAKES_INTEGERS = "that it takes integers where floating-point numbers were assumed; write their dtype as --shapes"
# How far a trace came that met an operator that is unknown here.
UNKNOWN_OPERATOR = 2


# An operator that is hardly meant of floating-point numbers.
_UNDERIVED = "the operator aten.{}, which has no derivative in PyTorch"
# After which integers are assumed.
OF_INTEGERS = (TAKES_INTEGERS, _UNDERIVED.format("floor_divide"))


class RefusedError(Exception):
    """No kernel can be written; the message names what was in the way, and `progress` how far the trace came.
    `is_of_gradient`: a kernel of the gradient, while the function itself can be written. `sums_all`: what was in
    the way is a sum of all elements, beside what else is computed of rows."""

    def __init__(self, reason: str, progress: int = 0) -> None:
        super().__init__(reason)
        self.progress = progress
        self.is_of_gradient = self.sums_all = False


class UnknownOperatorError(RefusedError):
    """An operator that no kernel has. `weight`: how much that tells of other assumptions; 0 where these may do without
    it."""

    def __init__(self, reason: str, weight: int) -> None:
        super().__init__(reason, UNKNOWN_OPERATOR)
        self.weight = weight


class NeighboursError(RefusedError):
    """What no kernel does of neighbours of elements."""


class PathError(RefusedError):
    """The function takes another path for other sizes or scalars than those of the samples."""


class FinalError(RefusedError):
    """Whatever else is assumed of the arguments, the reason stays."""


class ReducesError(RefusedError):
    """The function reduces something, so that it is not pointwise whatever the dtypes are."""


class UnderivedError(FinalError):
    """PyTorch has no derivative of an operator of the function, and raises where a gradient is asked for."""


class AnySizeError(RefusedError):
    """The function takes more numbers than a point was assumed to have."""


class OtherRowsError(RefusedError):
    """The function reduces other dimensions than those that were taken for a row."""

    def __init__(self, reason: str, dims: tuple[int, ...]) -> None:
        super().__init__(reason, UNKNOWN_OPERATOR)
        self.dims = dims


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:160]


def raised(error: Exception, when: str) -> str:
    """A phrase that says what a function raised while it was called, or traced."""
    name, text = type(error).__name__, _first_line(error)
    if "not implemented for 'Float'" in text:
        return TAKES_INTEGERS
    article = "an" if name[0] in "AEIOU" else "a"
    return f"{article} {name} while it was {when}" + (f" ({text})" if text else "")


def of_call(error: Exception, cut_from_front: tuple[str, str] | None) -> RefusedError:
    """Why a function was not called with samples, which have three dimensions. Those of integers hold 0, which divides
    no integer. `cut_from_front`: an index that cuts a dimension counted from the front, and the one to write."""
    if "is being modified inplace" in str(error):
        return FinalError(f"a write that PyTorch has no gradient of ({_first_line(error)})", 7)
    if isinstance(error, ProductError):
        return RefusedError(f"the operator {error}")
    if "ZeroDivisionError" in str(error):
        return RefusedError("a tensor of integers that may hold 0 among the divisors", UNKNOWN_OPERATOR + 1)
    if isinstance(error, IndexError) and cut_from_front:
        own, general = cut_from_front
        return RefusedError(f"{own}, which takes matrices alone; {general} cuts the last dimension of any tensor")
    return RefusedError(raised(error, "called"))


def phrase(error: Exception) -> str:
    """A phrase that says why a function could not be traced."""
    if "data-dependent" in str(error) or "DataDependent" in type(error).__name__:
        return "a branch or a value in Python that depends on the tensors' elements"
    return raised(error, "traced")


def underived(error: Exception) -> str | None:
    """A phrase for the operator of a function whose gradient PyTorch does not know."""
    operator = re.search(r"derivative for aten::(\w+) is not implemented", str(error))
    return operator and _UNDERIVED.format(operator[1])
