"""The search for what a function computes ends by what it costs, soon where nothing holds."""

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from kernelgen.worker.trace.cost import TRACED_OPERATOR, Cost  # noqa: E402
from kernelgen.worker.trace.refusals import RefusedError  # noqa: E402
from kernelgen.worker.trace.undifferentiated import Undifferentiated  # noqa: E402
from tests.worker.test_trace import trace_text  # noqa: E402


def test_a_function_that_is_never_taken_ends_soon(tmp_path, monkeypatch):
    """Of four tensors there are thousands of assumptions."""
    cost = Cost()
    monkeypatch.setattr("kernelgen.worker.trace.Cost", lambda: cost)
    with pytest.raises(RefusedError, match="depends on the sizes or on the scalar arguments"):
        trace_text(
            tmp_path, "return a + b + c + d * math.gamma(s)", f"{', '.join(f'{n}: Tensor' for n in 'abcd')}, s: float"
        )
    assert 10_000 < cost.spent < 20_000


def test_the_operators_that_a_function_runs_are_counted_where_it_is_traced():
    cost = Cost()
    with Undifferentiated(cost):
        make_fx(lambda x: x.quantile(0.9, -1))(torch.ones(3, 4))
    assert cost.spent > 10 * TRACED_OPERATOR


def test_the_search_ends_soon_where_an_operator_is_the_same_whatever_is_assumed(tmp_path, monkeypatch):
    cost = Cost()
    monkeypatch.setattr("kernelgen.worker.trace.Cost", lambda: cost)
    with pytest.raises(RefusedError, match=r"the operator aten\.sort"):
        trace_text(tmp_path, "return a.sort(-1).values + b + c + d", ", ".join(f"{name}: Tensor" for name in "abcd"))
    assert cost.spent < 2_000
