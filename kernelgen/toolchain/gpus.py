"""GPUs that people have, by compute capability, and which of them code for some architectures runs on."""

import re
from collections.abc import Sequence

NAMES = {
    "7.5": "T4, RTX 20",
    "8.0": "A100",
    "8.6": "A10, RTX 30",
    "8.9": "L4, L40S, RTX 40",
    "9.0": "H100, H200",
    "10.0": "B200",
    "12.0": "RTX 50",
}


def unserved(architectures: Sequence[str]) -> list[str]:
    """The capabilities of `NAMES` that code for these architectures, such as ["8.0", "9.0a"], does not run on.

    Machine code runs on its capability and on later ones of the same major number, PTX on all later ones; code with the
    features of one GPU (9.0a) on that alone, and with those of a family (10.0f) on the same major number.
    """
    return [capability for capability in NAMES if not any(_serves(code, capability) for code in architectures)]


def _serves(architecture: str, capability: str) -> bool:
    match = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX)?", architecture)
    major, minor, features, is_ptx = int(match[1]), int(match[2]), match[3], bool(match[4])
    wanted = tuple(map(int, capability.split(".")))
    if features == "a":
        return wanted == (major, minor)
    if is_ptx and not features:
        return wanted >= (major, minor)
    return wanted[0] == major and wanted[1] >= minor
