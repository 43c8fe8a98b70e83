"""Defaults: the numbers and names of PyTorch's enumerations."""

from __future__ import annotations

from kernelgen.scaffold.schema.defaults import DTYPES
from tests.scaffold.schema.oracle import oracle, torch


def test_dtypes_are_pytorchs_own_numbers():
    for number, name in DTYPES.items():
        assert oracle(f"(ScalarType x={name}) -> ()").arguments[0].default_value == number
        assert str(getattr(torch, name)) == f"torch.{name}"
