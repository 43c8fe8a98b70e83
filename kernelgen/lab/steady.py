"""The variables of a process that times ops on the CPU."""

import os

# Threads that spin at a barrier would take the cores from the process that is measured next. And whether malloc maps a
# large result anew on every call depends on its history, which differs between two runs of one program by far more than
# most ops do.
STEADY = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
    "MALLOC_TOP_PAD_": str(2**26),
}


def steady_variables() -> dict[str, str]:
    """Those of STEADY that this process's environment does not set otherwise."""
    return {name: value for name, value in STEADY.items() if name not in os.environ}
