"""The order of the tests: slow ones first, shared among the workers."""

import pytest

from tests.conftest import dealt

TESTS = ["a:slow 1", "a:quick 1", "a:slow 2", *(f"b:quick {i}" for i in range(7)), "c:slow 1", "d:slow 1"]


def order(tests: list[str], workers: int) -> list[str]:
    return dealt(tests, lambda test: test[0], lambda test: "slow" in test, workers)


@pytest.mark.parametrize("workers", range(1, 7))
def test_each_test_runs_once(workers):
    assert sorted(order(TESTS, workers)) == sorted(TESTS)


def test_alone_a_worker_runs_slow_tests_first():
    assert order(TESTS, 1)[:4] == ["a:slow 1", "a:slow 2", "c:slow 1", "d:slow 1"]


def test_each_worker_begins_with_whole_files_of_slow_tests():
    three = order(TESTS, 3)
    assert [three[i : i + 4] for i in (0, 4, 8)] == [
        ["a:slow 1", "a:slow 2", "a:quick 1", "b:quick 0"],
        ["c:slow 1", "b:quick 1", "b:quick 2", "b:quick 3"],
        ["d:slow 1", "b:quick 4", "b:quick 5", "b:quick 6"],
    ]


def test_what_is_dealt_is_what_runs(request):
    """`-m` has left tests out before: the stretches of xdist, which deals what is left, would be others."""
    hooks = request.config.hook.pytest_collection_modifyitems.get_hookimpls()
    called = [hook.plugin_name.rpartition("/tests/")[2] for hook in reversed(hooks)]
    assert called.index("mark") < called.index("conftest.py")
