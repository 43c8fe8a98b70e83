"""The revision that an op is compared with in a verdict."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from kernelgen.lab import compare, compare_revisions, share
from kernelgen.lab.compare import Comparison, Thresholds
from kernelgen.lab.paired_measurement import PairedMeasurement
from kernelgen.lab.selection import Selection
from kernelgen.lab.step import FAILED, OPEN, PASSED, Step


class Rival:
    """The other revision, which is checked out, built and loaded beside whatever runs until `step` measures it."""

    def __init__(self, selection: Selection, request: compare_revisions.ComparisonRequest) -> None:
        self._selection, self._request = selection, request
        self._stack = ExitStack()
        self._measured: PairedMeasurement | None = None

    def __enter__(self) -> "Rival":
        self._pool = ThreadPoolExecutor(1)
        self._loading = self._pool.submit(self._load)
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()
        self._stack.close()

    def _load(self) -> compare_revisions.Revisions:
        revisions = self._stack.enter_context(compare_revisions.built(self._selection, self._request))
        revisions.load(self._selection.ops[0])
        return revisions

    def step(self) -> Step:
        revisions, ops = self._loading.result(), self._selection.ops
        comparison, self._measured = compare_revisions.compare(revisions, Thresholds(), ops, with_ceilings=True)
        return _step_of(comparison, self._request.against)

    def share(self) -> Step:
        """The share of the ceilings that the op reached while it was compared."""
        if not self._measured:
            return Step("share", OPEN, "nothing was measured")
        return share.of_measurement(self._measured)


def _step_of(comparison: Comparison, against: str) -> Step:
    verdicts = [verdict.verdict for verdict in comparison.verdicts]
    counts = {word: verdicts.count(word) for word in dict.fromkeys(verdicts)}
    text = f"against {against}: {', '.join(f'{word} in {count}' for word, count in counts.items())}"
    facts = {"faster": compare.IMPROVEMENT in verdicts, "comparison": comparison.as_dict()}
    if comparison.exit_code == compare.EXIT_REGRESSED:
        return Step("compare", FAILED, text, facts=facts)
    is_shown = bool(verdicts) and compare.INCONCLUSIVE not in verdicts
    return Step("compare", PASSED if is_shown else OPEN, text, facts=facts)
