"""How the tensors of a function are those of its operator: each kind of view has a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelgen.scaffold.formula.views.flat import FlatDimension
from kernelgen.scaffold.formula.views.groups import Groups
from kernelgen.scaffold.formula.views.lengths import Lengths
from kernelgen.scaffold.formula.views.matrices import Matrices
from kernelgen.scaffold.formula.views.neighbours import Neighbours
from kernelgen.scaffold.formula.views.orders import DimensionOrders
from kernelgen.scaffold.formula.views.view import View

# In the order in which arguments of the operator become those of the function.
_KINDS = (Neighbours, Lengths, DimensionOrders, Matrices, FlatDimension, Groups)


def views_of(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> list[View]:
    """Those of a function of this schema (its entry); none where it takes and returns what its operator does.

    Raises:
        KernelgenError: there are views that no recipe writes, as of the fields of a class.
    """
    views = [kind.of(schema, traced) for kind in _KINDS]
    return [view for view in views if view is not None]
