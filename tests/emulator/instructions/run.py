"""Runs the cases of a library, on a GPU or on the emulated one.

    python -m tests.emulator.instructions.run LIBRARY CASES RESULTS [--emulated CAPABILITY]

CASES is a file of (name, words, number of results). RESULTS gets, by name, the results or the fault's text. A fault on
a GPU ends the process with FAULT, since nothing works in its context any more: what is in RESULTS is not run again.
"""

import argparse
import ctypes
import sys
from pathlib import Path

import torch

FAULT = 3  # The exit code of a process that a fault on the GPU ended.


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("cases", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--emulated", type=int, default=0, metavar="CAPABILITY")
    options = parser.parse_args()
    library = ctypes.CDLL(str(options.library))
    if options.emulated:
        library.emulator_failure.restype = ctypes.c_char_p
    results = torch.load(options.results) if options.results.exists() else {}
    try:
        for name, words, count in torch.load(options.cases):
            if name not in results:
                results[name] = _run(library, name, words, count, options.emulated)
                if isinstance(results[name], str) and not options.emulated:
                    return FAULT
    finally:
        torch.save(results, options.results)
    return 0


def _run(library: ctypes.CDLL, name: str, words: torch.Tensor, count: int, capability: int) -> torch.Tensor | str:
    out = torch.zeros(count, dtype=torch.int64)
    if capability:
        library.emulator_begin(ctypes.c_uint64(1), capability, 4)
    code = getattr(library, f"run_{name}")(ctypes.c_void_p(words.data_ptr()), ctypes.c_void_p(out.data_ptr()))
    fault = library.emulator_failure().decode() if capability else ""
    if fault or code:
        return fault or f"cudaError {code}"
    return out


if __name__ == "__main__":
    sys.exit(main())
