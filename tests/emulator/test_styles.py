"""Ten kernels in other people's styles compute what their references do, under every schedule, with no report."""

import pytest

from tests.conftest import with_sample

from .conftest import ALL_SCHEDULES
from .faults.plant import compile_style, outcome
from .styles import STYLES


@pytest.mark.parametrize("name", with_sample(STYLES, [*STYLES][::5]))
def test_a_style_is_right_under_every_schedule(name):
    kernel = compile_style(STYLES[name])
    results = {seed: outcome(STYLES[name], kernel, seed) for seed in ALL_SCHEDULES}
    assert not any(results.values()), {seed: str(result) for seed, result in results.items() if result}
