"""What templates are given of a schema."""

from __future__ import annotations

import pytest

from kernelgen.scaffold.schema.parser import parse


def test_entry_holds_plain_data():
    schema = parse("(Tensor x, Tensor? bias, int[2] pad=0, *, float eps=1e-6) -> (Tensor y, Tensor)")
    entry = schema.entry()
    assert {k: v for k, v in entry.items() if k not in ("arguments", "returns")} == {
        "text": schema.text,
        "operator": None,
        "functional": True,
        "dispatches": True,
        "takes_tensors": True,
        "device": None,
        "on_cuda": True,
        "is_constant": False,
        "differentiable": True,
        "breaks_graph": False,
        "container": None,
        "returned": None,
        "cpp_return": "std::tuple<Tensor, Tensor>",
        "python_return": "tuple[Tensor, Tensor]",
    }
    assert entry["arguments"][1] == {
        "name": "bias",
        "python": "bias",
        "cpp": "bias",
        "type": "Tensor?",
        "cpp_type": "const std::optional<Tensor>&",
        "annotation": "Tensor | None",
        "default": None,
        "keyword_only": False,
        "mutated": False,
        "size": None,
        "kind": "optional_tensor",
        "sample": None,
        "another_sample": None,
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


@pytest.mark.parametrize(
    ("text", "device", "on_cuda", "is_constant"),
    (
        (
            "(int n, *, Device? device=None) -> Tensor",
            {"python": "device", "cpp": "device", "optional": True},
            True,
            False,
        ),
        ("(Device on) -> int", {"python": "on", "cpp": "on", "optional": False}, True, True),
        ("(int n) -> Tensor", None, False, False),
        ("(ScalarType t) -> str[]", None, False, True),
        ("(Tensor? x, Device device) -> Tensor", None, True, False),
    ),
)
def test_operators_without_tensors(text: str, device: dict | None, on_cuda: bool, is_constant: bool):
    entry = parse(text).entry()
    assert (entry["device"], entry["on_cuda"], entry["is_constant"]) == (device, on_cuda, is_constant)


@pytest.mark.parametrize(
    ("text", "operator", "returned", "annotation"),
    (
        ("(Tensor(a!) x) -> Tensor(a!)", "(Tensor(a!) x) -> ()", {"names": ["x"], "results": []}, "Tensor"),
        (
            "(Tensor(a!) from, Tensor y) -> (Tensor(a!), Tensor mean)",
            "(Tensor(a!) from, Tensor y) -> Tensor mean",
            {"names": ["from_", "mean"], "results": [1]},
            "tuple[Tensor, Tensor]",
        ),
        (
            "(Tensor(a!)[] xs) -> Tensor(a!)[]",
            "(Tensor(a!)[] xs) -> ()",
            {"names": ["xs"], "results": []},
            "list[Tensor]",
        ),
    ),
)
def test_a_result_that_is_an_argument_is_the_function_s_and_not_the_operator_s(text, operator, returned, annotation):
    schema = parse(text)
    assert schema.text == operator
    assert (schema.entry()["returned"], schema.entry()["python_return"]) == (returned, annotation)


@pytest.mark.parametrize(
    ("result", "breaks"), (("int", True), ("SymInt", False), ("(Tensor, int)", False), ("(Tensor, str)", True))
)
def test_results_that_no_graph_holds(result: str, breaks: bool):
    assert parse(f"(Tensor x) -> {result}").breaks_graph is breaks


def test_an_operator_may_be_named():
    assert [parse(f"{name}(Tensor x) -> ()").operator for name in ("", "op", "op.out ", " op_")] == [
        *(None, "op", "op.out", "op_")
    ]
