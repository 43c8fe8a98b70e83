"""Remarks on measured cases: none is lost, and none is told twenty times."""

from kernelgen.lab.remarks import remarks


def case(name: str, warnings=(), left_out=(), faults=()):
    facts = {"op": "relu", "case": name, "dtype": "float32", "backward": False}
    return {**facts, "warnings": list(warnings), "left_out": dict(left_out), "faults": list(faults)}


def test_one_remark_on_many_cases_is_one_line_with_the_largest_number():
    cases = [case(str(n), [f"the samples vary by {n}% (more than 12%)"]) for n in (99, 171, 21)]
    assert remarks(cases) == ["relu · 171 · float32 and 2 cases more: the samples vary by 171% (more than 12%)"]


def test_remarks_that_differ_in_words_are_told_apart():
    cases = [
        case("a", ["it is hot"], {"Liger": "no module"}),
        case("b", [], {"QuACK": "no module", "Liger": "no module"}),
    ]
    assert remarks(cases) == [
        "relu · a · float32: it is hot",
        "relu · a · float32 and 1 case more: Liger was left out: no module",
        "relu · b · float32: QuACK was left out: no module",
    ]


def test_every_fault_is_told_and_first():
    cases = [case("a", ["it is hot"], faults=["off by 1"]), case("b", faults=["off by 2"])]
    assert remarks(cases) == [
        "relu · a · float32: WRONG: off by 1",
        "relu · b · float32: WRONG: off by 2",
        "relu · a · float32: it is hot",
    ]


def test_nothing_to_say():
    assert remarks([case("a")]) == []
