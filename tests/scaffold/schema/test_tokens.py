"""String literals of schemas, which PyTorch's parser reads back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgen.scaffold.schema.tokens import quote, unquote
from tests.scaffold.schema.oracle import oracle


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=12).filter(lambda s: not any(0xD800 <= ord(c) < 0xE000 for c in s)))
def test_strings_survive_quoting(value: str):
    assert unquote(quote(value)) == value
    assert oracle(f"(str x={quote(value)}) -> ()").arguments[0].default_value == value
