"""Has `kernelgen fuzz` find the CUDA mutants, on the GPU of this machine: `python -m tests.worker.gpu_mutants [JOBS]`.

Prints a table and fails if one was missed, or if a correct recipe was complained of. JOBS mutants are fuzzed at once:
few of their cases are large, so they may be more than the largest cases have memory for.
"""

import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from tests.worker.mutants import CORRECT, project
from tests.worker.mutants.cuda import CUDA
from tests.worker.mutants.detect import first_failures
from tests.worker.mutants.python import PYTHON

OF_AN_OP = 28 * 2**30  # Bytes of the GPU's memory that an op takes in its largest case.


def main() -> int:
    start = time.perf_counter()
    root = project("cuda", [*CUDA, *PYTHON], cuda=True)
    print(f"built in {time.perf_counter() - start:.0f} s", flush=True)
    fitting = max(1, torch.cuda.get_device_properties(0).total_memory // OF_AN_OP)
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else fitting
    with ThreadPoolExecutor(fitting) as pool, ThreadPoolExecutor(jobs) as others:
        alarms = pool.map(partial(first_failure, root, count=200), CORRECT)
        failures = shown(others.map(partial(first_failure, root), [mutant.name for mutant in (*CUDA, *PYTHON)]))
        alarms = shown(alarms)
    missed = [name for name, failure in failures.items() if not failure]
    wrong = [name for name, failure in alarms.items() if failure]
    print(f"{len(failures) - len(missed)} of {len(failures)} mutants caught; missed: {', '.join(missed) or 'none'}")
    print(f"false alarms: {', '.join(wrong) or 'none'}")
    print(f"{time.perf_counter() - start:.0f} s")
    return 1 if missed or wrong else 0


def first_failure(root: Any, op: str, **more: Any) -> tuple[str, str]:
    return op, first_failures(root, [op], device="cuda", **more)[op]


def shown(failures: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The failures by op; each is printed when it is known."""
    by_op = {}
    for op, failure in failures:
        by_op[op] = failure
        print(f"{op:36} {failure or 'nothing was found'}", flush=True)
    return by_op


if __name__ == "__main__":
    sys.exit(main())
