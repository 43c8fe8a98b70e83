"""Makes a case that fails as small as possible."""

import time
from collections.abc import Callable
from random import Random
from typing import Any

from kernelgen.worker.cases import PLAIN, WORDS, Case, as_text, settings
from kernelgen.worker.op import Op

Fails = Callable[[Case], bool]
# A case is made smaller for so long.
SHRINK_S = 8.0


def shrink(op: Op, case: Case, fails: Fails, limit_s: float = SHRINK_S) -> Case:
    """The simplest failing case that hypothesis finds among those no larger than this one; at worst this one.

    It tries no further case once the time is up.
    """
    import hypothesis
    from hypothesis import strategies as st

    end, known = time.monotonic() + limit_s, {as_text(case): True}

    def timely(smaller: Case) -> bool:
        text = as_text(smaller)
        if text not in known:
            known[text] = time.monotonic() < end and fails(smaller)
        return known[text]

    def below(key: str) -> st.SearchStrategy[Any]:
        if key == "dtype":
            return st.just(case[key])
        if key in WORDS:
            return st.sampled_from(list(dict.fromkeys([PLAIN[key], case[key]])))
        # The second strategy makes it likely that the failing case itself is drawn. It is no `just`, since the shrinker
        # cannot make the value of that smaller.
        return st.integers(min(op.domain[key][0], case[key]), case[key]) | st.integers(case[key], case[key])

    if not fails(case):
        return case
    strategy = st.fixed_dictionaries({key: below(key) for key in case})
    # To explain a failure, hypothesis would trace each line of Python that runs for a case.
    phases = [hypothesis.Phase.generate, hypothesis.Phase.shrink]
    options = hypothesis.settings(settings(200), phases=phases)
    try:
        return hypothesis.find(strategy, timely, settings=options, random=Random(0))
    except hypothesis.errors.NoSuchExample:
        return case
