"""The environment variables that a build reads."""

from __future__ import annotations

import os
import shlex

from .messages import MachineError

# What the build or its compilers read, apart from PATH. If one changes, the build is configured again.
VARIABLES = (
    *("USE_CUDA", "TORCH_CUDA_ARCH_LIST", "CUDA_HOME", "CXX", "CXXFLAGS", "LDFLAGS", "DEBUG", "SANITIZE", "PERTURB"),
    *("MAX_JOBS", "USE_CCACHE", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
)

# Those that g++ and nvcc read by themselves: they change an object, and no command line shows them.
READ_BY_COMPILER = ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
READ_BY_NVCC = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")

COMPILER_CACHES = ("ccache", "sccache")


def is_off(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("0", "off", "no", "false")


def is_on(variable: str) -> bool:
    return bool(os.environ.get(variable)) and not is_off(variable)


def words(variable: str) -> list[str]:
    """A variable's value, split as a shell would.

    Raises:
        MachineError: a quotation in it has no end.
    """
    value = os.environ.get(variable, "")
    try:
        return shlex.split(value)
    except ValueError as error:
        raise MachineError(f"{variable}={value} is no list of words ({error}); close the quotation.") from error
