"""A stamped project's own tests where there is no GPU: which pass, are skipped, or are expected failures."""

import pytest

from .conftest import EVERY_OP, Outcome

# The first of these waits for the project's build and for its whole suite.
pytestmark = pytest.mark.slow

# The ops whose reference nobody has written yet.
UNWRITTEN = sorted(op["name"] for op in EVERY_OP if op["recipe"] == "blank")
NEED_THE_REFERENCE = {
    *("test_accuracy", "test_layouts", "test_inputs_are_left_as_they_are", "test_same_result_twice", "test_opcheck"),
    *("test_fake_strides", "test_compile", "test_export", "test_gradcheck", "test_forward_mode"),
    "test_results_that_are_no_tensors",
}
NEED_ITS_GRADIENT = {
    *("test_frozen_inputs", "test_checkpoint", "test_double_backward", "test_functional_gradient"),
    "test_forward_mode_of_operators",
}
# Of an op that returns a number.
NOT_EXPORTED = {"every_type"}
NEED_A_GPU = {"test_another_stream", "test_cuda_graph", "test_second_device"}


@pytest.fixture
def outcomes(full_project, outcomes_of) -> list[Outcome]:
    return outcomes_of("suite", full_project)


def select(outcomes: list[Outcome], op: str | None, status: str) -> list[Outcome]:
    return [outcome for outcome in outcomes if (outcome.op, outcome.status) == (op, status)]


@pytest.mark.parametrize("op", [op["name"] for op in EVERY_OP if op["recipe"] != "blank"])
def test_an_op_passes_its_tests(outcomes, op):
    assert len(select(outcomes, op, "passed")) > 50
    assert select(outcomes, op, "failed") == []


def test_an_op_under_another_name_is_tested_alike(outcomes):
    def passed(op):
        return sorted((outcome.test, outcome.case) for outcome in select(outcomes, op, "passed"))

    assert passed("another_elementwise") == passed("elementwise")


@pytest.mark.parametrize("op", UNWRITTEN)
def test_an_op_without_a_reference_says_what_to_write(outcomes, op):
    assert select(outcomes, op, "failed") == []
    expected = select(outcomes, op, "xfailed")
    needed = NEED_THE_REFERENCE | ({"test_writes_are_counted"} if op == "mutates" else NEED_ITS_GRADIENT)
    assert {outcome.test for outcome in expected} == needed - ({"test_export"} if op in NOT_EXPORTED else set())
    reason = f"{op}: reference not written yet; write ops/{op}/reference.py"
    assert {outcome.message.partition("\n")[0] for outcome in expected} == {reason}


def test_the_project_as_a_whole_passes(outcomes):
    assert {outcome.test for outcome in select(outcomes, None, "passed")} == {
        *("test_ops_are_public", "test_op_is_whole", "test_libraries_are_loaded", "test_without_compiled_libraries")
    }
    assert select(outcomes, None, "failed") == []


@pytest.mark.parametrize("op", [op["name"] for op in EVERY_OP])
def test_a_test_that_needs_a_gpu_is_skipped_with_the_reason(outcomes, op):
    skipped = select(outcomes, op, "skipped")
    without = {outcome.test for outcome in skipped if outcome.message.startswith("there is no GPU")}
    assert without >= NEED_A_GPU
    # Tests that are skipped for another reason give that reason.
    assert [outcome.test for outcome in skipped if len(outcome.message.split()) < 4] == []
