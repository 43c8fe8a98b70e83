"""PyTorch's own schema parser, which says what a schema means."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


def oracle(text: str):
    return torch._C.parse_schema("ns::op" + text)


def meaning(text: str) -> tuple:
    """All that PyTorch's parser makes of a schema; a fresh alias set (`Tensor!`) has no name of its own."""
    schema = oracle(text)

    def argument(a) -> tuple:
        alias = (a.alias_info.is_write, bool(a.alias_info)) if a.alias_info else None
        default = (type(a.default_value).__name__, repr(a.default_value)) if a.has_default_value() else None
        return (a.name, str(a.real_type), a.N, a.kwarg_only, default, alias)

    return [argument(a) for a in schema.arguments], [argument(r) for r in schema.returns]
