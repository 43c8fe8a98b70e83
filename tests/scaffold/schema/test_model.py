"""What templates are given of a schema."""

from __future__ import annotations

import pytest

from kernelgen.scaffold.schema.parser import parse


def test_entry_holds_plain_data():
    schema = parse("(Tensor x, Tensor? bias, int[2] pad=0, *, float eps=1e-6) -> (Tensor y, Tensor)")
    entry = schema.entry()
    assert {k: v for k, v in entry.items() if k not in ("arguments", "returns")} == {
        "text": schema.text,
        "functional": True,
        "dispatches": True,
        "cpp_return": "std::tuple<Tensor, Tensor>",
        "python_return": "tuple[Tensor, Tensor]",
    }
    assert entry["arguments"][1] == {
        "name": "bias",
        "python": "bias",
        "cpp": "bias",
        "type": "Tensor?",
        "cpp_type": "const std::optional<Tensor>&",
        "cpp_value": "std::optional<Tensor>",
        "annotation": "Tensor | None",
        "default": None,
        "keyword_only": False,
        "mutated": False,
        "size": None,
        "kind": "optional_tensor",
        "sample": None,
    }
    pad, eps = entry["arguments"][2:]
    assert (pad["default"], pad["size"], pad["annotation"]) == ("(0, 0)", 2, "int | Sequence[int]")
    assert (eps["default"], eps["sample"], eps["keyword_only"], eps["cpp_type"]) == (
        "1e-6",
        "1e-6",
        True,
        "double",
    )
    assert [r["name"] for r in entry["returns"]] == ["y", "out1"]


def test_names_are_made_safe_and_stay_different():
    entry = parse("(Tensor lambda, int and_, int out, int int, Tensor torch, *, int lambda_) -> Tensor").entry()
    assert [a["python"] for a in entry["arguments"]] == [
        "lambda_2",
        "and_",
        "out",
        "int",
        "torch_",
        "lambda_",
    ]
    assert [a["cpp"] for a in entry["arguments"]] == ["lambda", "and_", "out", "int_", "torch_", "lambda_"]
    assert entry["returns"][0]["name"] == "out"
    assert entry["returns"][0]["python"] == entry["returns"][0]["cpp"] == "out_"


def test_kinds():
    entry = parse("(Tensor a, Tensor? b, Tensor[] c, Tensor?[] d, Tensor[]? e, Tensor?[]? f, int g) -> ()").entry()
    assert [a["kind"] for a in entry["arguments"]] == [
        "tensor",
        "optional_tensor",
        "tensor_list",
        "optional_tensor_list",
        "tensor_list_or_none",
        "optional_tensor_list_or_none",
        "other",
    ]
    assert (entry["cpp_return"], entry["python_return"]) == ("void", "None")


@pytest.mark.parametrize(
    ("text", "dispatches"),
    (
        ("(Tensor? x) -> ()", True),
        ("(Tensor[] x) -> ()", True),
        ("(Tensor[]? x) -> ()", False),
        ("(int n) -> ()", False),
    ),
)
def test_what_picks_the_device(text: str, dispatches: bool):
    assert parse(text).dispatches is dispatches
