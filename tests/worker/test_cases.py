"""The cases that an op is fuzzed in: worker/cases.py."""

import itertools
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

from kernelgen.worker.cases import adversarial, all_cases, as_text, complete, core, cover, drawn
from kernelgen.worker.inputs import ALIASES, LAYOUTS, VALUES, Make
from kernelgen.worker.tune import TuningWorker

from . import same_process
from .test_fuzz import an_op


def test_the_default_covers_what_nobody_writes_by_hand():
    cases = list(core(an_op(), ["float32", "float16"]))
    assert len({as_text(case) for case in cases}) == len(cases)
    for key, words in (("layout", LAYOUTS), ("values", VALUES), ("alias", ALIASES), ("dtype", ("float32", "float16"))):
        assert {case[key] for case in cases} == set(words)
    sizes = {(case["rows"], case["columns"]) for case in cases}
    assert sizes >= {(0, 0), (1, 1), (64, 64), (5, 127), (5, 257), (100, 300), (5, 0), (0, 5)}


def test_each_argument_is_the_only_misaligned_one_in_some_case():
    # As ops with optional arguments draw them: some before the first, some not at all.
    domain = {"rows": (0, 100), "columns": (0, 300), "weighted": (0, 1), "added": (0, 1)}
    alone = set()
    for case in adversarial(an_op(domain=domain), ["float32"]):
        make = Make(layout=case["layout"])
        named = {"weight": case["weighted"], "residual": case["added"], "input": True}
        drawn = {name: make((case["rows"], case["columns"])) for name, there in named.items() if there}
        askew = [name for name, tensor in drawn.items() if tensor.is_contiguous() and tensor.data_ptr() % 16]
        vectors = case["columns"] and case["columns"] % 4 == 0
        alone |= set(askew) if vectors and len(askew) == 1 else set()
    assert alone == {"weight", "residual", "input"}


def test_a_few_of_the_longest_rows_lie_apart():
    cases = list(core(an_op(), ["float32", "float16"]))
    for layout, longest in itertools.product(("transposed", "strided", "wide rows", "odd rows"), ("rows", "columns")):
        other = {"rows": "columns", "columns": "rows"}[longest]
        high = {"rows": 100, "columns": 300}[longest]
        assert any(case["layout"] == layout and case[longest] == high and 1 < case[other] < 10 for case in cases)


def test_the_same_seed_draws_the_same_cases():
    first, second, other = (drawn(an_op(), ["float32"], seed, 30) for seed in (1, 1, 2))
    assert first == second != other


def test_a_small_domain_ends():
    op = an_op(domain={"rows": (1, 1), "columns": (2, 2)})
    combinations = len(LAYOUTS) * len(VALUES) * len(ALIASES) * len(("all", "0", "1"))
    assert 10 < len(list(all_cases(op, ["float32"], 0, 10**6))) <= combinations


def test_every_pair_is_covered():
    factors = {"a": [0, 1, 2], "b": ["x", "y"], "c": [True, False], "d": [5, 6, 7, 8]}
    cases = list(cover(factors, [{"a": 0, "b": "x", "c": True, "d": 5}]))
    cases_and_given = [*cases, {"a": 0, "b": "x", "c": True, "d": 5}]
    for first, second in itertools.combinations(factors, 2):
        pairs = {(case[first], case[second]) for case in cases_and_given}
        assert pairs == set(itertools.product(factors[first], factors[second]))
    assert len(cases) < 3 * 4 + 4
    assert cases == list(cover(factors, [{"a": 0, "b": "x", "c": True, "d": 5}]))


def test_the_work_of_the_same_sizes_is_counted_once():
    asked = Counter()

    def inputs(make, rows, columns):
        asked[rows, columns] += 1
        return (make((rows, columns)), make((rows, columns)))

    assert len(list(core(an_op(inputs=inputs), ["float32", "float16"]))) > 50
    assert max(asked.values()) <= 3  # Once each for the core, its largest case and the number of gradients.


def test_a_candidate_is_proved_by_the_cases_of_fuzz_from_wherever_it_goes_on():
    worker = TuningWorker({})
    worker.judge = SimpleNamespace(op=an_op())
    for seed, firsts in ((1, (0, 40, 80)), (1, (80, 0)), (2, (40,))):
        cases = list(all_cases(an_op(), ["float32"], seed, 120))
        for first in firsts:
            assert worker._cases_of_fuzz(["float32"], seed, first, 40) == cases[first : first + 40]


def test_a_pair_is_covered_where_there_is_something_to_compute():
    factors = {"rows": [0, 1, 40], "kind": [0, 1, 2], "values": ["normal", "nan"]}
    cases = list(cover(factors, empty={("rows", 0)}))
    full = [case for case in cases if case["rows"]]
    assert {(case["kind"], case["values"]) for case in full} == set(itertools.product((0, 1, 2), ("normal", "nan")))
    assert {case["kind"] for case in cases if not case["rows"]} == {0, 1, 2}


def test_the_core_pairs_what_an_op_branches_on():
    domain = {"rows": (0, 100), "columns": (0, 300), "weighted": (0, 1)}
    op = an_op(domain=domain, inputs=lambda make, rows, columns, weighted: (make((rows, columns)), make((columns,))))
    op = replace(op, edges={"columns": (17,)})
    cases = list(core(op, ["float32", "float16"]))
    for rows, columns in itertools.product((0, 1, 100), (0, 1, 17, 300)):
        assert any((case["rows"], case["columns"]) == (rows, columns) for case in cases)
    for dtype, weighted, subset in itertools.product(("float32", "float16"), (0, 1), ("all", "0", "1")):
        assert any((case["dtype"], case["weighted"]) == (dtype, weighted) for case in cases)
        assert any((case["dtype"], case["requires_grad"]) == (dtype, subset) for case in cases)


def test_each_gradient_is_wanted_alone_where_a_choice_draws_fewer_inputs():
    """As swiglu's, which takes both halves in one tensor, or in two."""
    op = an_op(domain={"rows": (0, 100), "halves": (0, 1)})
    inputs = lambda make, rows, halves: (make((2 * rows,)),) if halves else (make((rows,)), make((rows,)))  # noqa: E731
    cases = list(core(replace(op, inputs=inputs), ["float32"]))
    assert {case["requires_grad"] for case in cases if not case["halves"]} == {"all", "0", "1"}


def test_more_rows_are_drawn_than_16_bits_count_where_the_op_takes_them():
    domain, sizes = {"rows": (0, 100), "columns": (0, 300)}, {"rows": 2**19, "columns": 4097}
    op = replace(an_op(domain=domain), huge=sizes)
    assert any(case["rows"] > 2**16 for case in adversarial(op, ["float32"]))
    assert not any(case["rows"] > 2**16 for case in adversarial(an_op(domain=domain), ["float32"]))


def test_a_size_with_a_default_may_be_left_out():
    def inputs(make, rows, columns, dims=2):
        return tuple(make((rows, columns) if dims == 2 else (rows, 1, columns)) for _ in range(2))

    domain = {"rows": (0, 100), "columns": (0, 300), "dims": (2, 3)}
    op = an_op(domain=domain, inputs=inputs, defaults={"dims": 2})
    assert same_process.run_case(op, complete(op, {"rows": 2, "columns": 3}), 0) is None
    assert {case["dims"] for case in core(op, ["float32"])} == {2, 3}
