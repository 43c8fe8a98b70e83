"""The GPUs that can be emulated, as device/gpus.h lists them."""

import re
from dataclasses import dataclass

from kernelgen.emulator.compiler import DEVICE
from kernelgen.errors import UsageError

DEFAULT = "sm_90a"


@dataclass(frozen=True)
class Gpu:
    """A GPU: its architecture as nvcc spells it, a product of it, and its compute capability, 90 for 9.0."""

    architecture: str
    name: str
    capability: int

    @property
    def variant(self) -> str:
        """The name of a project's build for it."""
        return f"emulated-{self.architecture}"

    @property
    def build_architecture(self) -> str:
        """As build_tools spell it: 9.0a."""
        digits = self.architecture.removeprefix("sm_")
        suffix = digits.lstrip("0123456789")
        number = digits.removesuffix(suffix)
        return f"{number[:-1]}.{number[-1]}{suffix}"


def gpus() -> list[Gpu]:
    text = (DEVICE / "gpus.h").read_text(encoding="utf-8")
    rows = re.findall(r'^ +\{"(sm_\w+)", "([^"]+)", (\d+),', text, re.MULTILINE)
    return [Gpu(architecture, name, int(capability)) for architecture, name, capability in rows]


def find(name: str | None) -> Gpu:
    """The GPU of this name, such as sm_80; by default sm_90a.

    Raises:
        UsageError: it is not among those that can be emulated.
    """
    known = {gpu.architecture: gpu for gpu in gpus()}
    if (name or DEFAULT) not in known:
        raise UsageError(f"{name} cannot be emulated; --gpu takes {', '.join(known)}.")
    return known[name or DEFAULT]
