"""Has `kernelgen fuzz` find the CUDA mutants, on the GPU of this machine: `python -m tests.worker.gpu_mutants`.

Prints a table and fails if one was missed, or if a correct recipe was complained of.
"""

import sys
import time

from tests.worker.mutants import CORRECT, project
from tests.worker.mutants.cuda import CUDA
from tests.worker.mutants.detect import first_failures
from tests.worker.mutants.python import PYTHON


def main() -> int:
    start = time.perf_counter()
    root = project("cuda", [*CUDA, *PYTHON], cuda=True)
    built = time.perf_counter()
    failures = first_failures(root, [mutant.name for mutant in (*CUDA, *PYTHON)], device="cuda")
    alarms = first_failures(root, list(CORRECT), device="cuda", count=200)
    for name, failure in {**failures, **alarms}.items():
        print(f"{name:36} {failure or 'nothing was found'}")
    missed = [name for name, failure in failures.items() if not failure]
    wrong = [name for name, failure in alarms.items() if failure]
    print(f"{len(failures) - len(missed)} of {len(failures)} mutants caught; missed: {', '.join(missed) or 'none'}")
    print(f"false alarms: {', '.join(wrong) or 'none'}")
    print(f"built in {built - start:.0f} s, fuzzed in {time.perf_counter() - built:.0f} s")
    return 1 if missed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
