"""What an op may be called."""

import pytest

from kernelgen.errors import UsageError
from kernelgen.scaffold.names import check, did_you_mean


@pytest.mark.parametrize("name", ("a", "fused_add", "rms_norm2", "softmax"))
def test_identifiers_are_taken(name):
    check(name)


@pytest.mark.parametrize(
    ("name", "message"),
    (
        ("", "lower-case letters"),
        ("2fast", "lower-case"),
        ("Add", "lower-case"),
        ("fused-add", "lower-case"),
        ("a__b", "lower-case"),
        ("a_", "names an operator, and no folder: call the op a_in_place"),
        ("a.Out", "names an operator, and no folder: call the op a_out"),
        ("a.b.c", "lower-case"),
        ("_a", "lower-case"),
        ("ä", "lower-case"),
        ("a\n", "lower-case"),
        ("../x", "lower-case"),
        ("{{ 7 }}", "lower-case"),
        ("$(id)", "lower-case"),
        ("a;b", "lower-case"),
        ("lambda", "is reserved in"),
        ("namespace", "is reserved in"),
        ("errno", "is reserved in"),
        ("ops", "itself"),
        ("testing", "itself"),
        ("name", "itself"),
        ("torch", "is reserved in"),
    ),
)
def test_anything_else_is_refused_in_a_sentence(name, message):
    with pytest.raises(UsageError, match=message):
        check(name)


def test_the_closest_word_is_offered():
    assert did_you_mean("elementwize", ["elementwise", "blank"]) == "Did you mean elementwise?"
    assert did_you_mean("xyz", ["elementwise", "blank"]) == "The choices are blank, elementwise."
    assert did_you_mean("xyz", []) == "There are none."
