"""Proves a project's ops right and measures them. What an op has to say for that is in its `lab.py` (see `op.py`).

The parts that look at tensors run in the project's own Python, in a worker process (`process.py`, `worker.py`), and
import nothing of kernelgen outside this package but its errors: that Python may hold torch and little else.
"""

from kernelgen.errors import KernelgenError


class LabError(KernelgenError):
    """Nothing could be run, so there is no verdict; the message says what is missing."""

    exit_code = 2
