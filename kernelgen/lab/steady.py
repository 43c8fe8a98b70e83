"""The environment that a measuring process is started in."""

import os

# For worker processes that time CPU ops. Threads that spin at a barrier would take the cores from whoever is measured
# next; and whether malloc maps a large result anew on every call depends on its history, which differs between two
# runs of one program by far more than most ops do.
STEADY = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
    "MALLOC_TOP_PAD_": str(2**26),
}


def steady_environment() -> dict[str, str]:
    """This process's environment with STEADY in it, unless something else was chosen there."""
    return {**STEADY, **os.environ}
