"""Has `kernelgen fuzz` find the CUDA mutants, on the GPU of this machine.

    python -m tests.worker.gpu_mutants [--jobs N] [--only MUTANT ...]

Prints a table and fails if one was missed, or if a correct recipe was complained of; with --only, the correct recipes
are left out. N mutants are fuzzed at once: few of their cases are large, so they may be more than the largest cases
have memory for.
"""

import argparse
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from tests.worker.mutants import CORRECT, Mutant, project
from tests.worker.mutants.cuda import CUDA
from tests.worker.mutants.detect import first_failures
from tests.worker.mutants.python import PYTHON

OF_AN_OP = 28 * 2**30  # Bytes of the GPU's memory that an op takes in its largest case.


def main() -> int:
    options, start = _options(), time.perf_counter()
    fitting = max(1, torch.cuda.get_device_properties(0).total_memory // OF_AN_OP)
    mutants = [mutant for mutant in (*CUDA, *PYTHON) if not options.only or mutant.name in options.only]
    correct = () if options.only else CORRECT
    root = project("cuda", mutants, correct, cuda=True)
    print(f"built in {time.perf_counter() - start:.0f} s", flush=True)
    with ThreadPoolExecutor(fitting) as pool, ThreadPoolExecutor(options.jobs or fitting) as others:
        alarms = pool.map(partial(first_failure, root, count=200), correct)
        failures = shown(others.map(partial(failure_of, root), mutants))
        alarms = shown(alarms)
    missed = [name for name, failure in failures.items() if not failure]
    wrong = [name for name, failure in alarms.items() if failure]
    print(f"{len(failures) - len(missed)} of {len(failures)} mutants caught; missed: {', '.join(missed) or 'none'}")
    print(f"false alarms of {len(alarms)} correct recipes: {', '.join(wrong) or 'none'}")
    print(f"{time.perf_counter() - start:.0f} s")
    return 1 if missed or wrong else 0


def failure_of(root: Any, mutant: Mutant) -> tuple[str, str]:
    return first_failure(root, mutant.name, environment=mutant.variables)


def first_failure(root: Any, op: str, **more: Any) -> tuple[str, str]:
    return op, first_failures(root, [op], device="cuda", **more)[op]


def shown(failures: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The failures by op; each is printed when it is known."""
    by_op = {}
    for op, failure in failures:
        by_op[op] = failure
        print(f"{op:36} {failure or 'nothing was found'}", flush=True)
    return by_op


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, help="mutants at once (as many of the largest cases as fit the memory)")
    names = [mutant.name for mutant in (*CUDA, *PYTHON)]
    parser.add_argument("--only", nargs="+", choices=names, metavar="MUTANT", help="default: all of them")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
