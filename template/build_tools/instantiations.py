"""What a .cu file is instantiated for. A file with a line such as

    // instantiate: T = float16, bfloat16; D = 64, 128

is compiled once for each combination, into an object of its own, with INSTANCE_T and INSTANCE_D defined.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from .messages import BuildError


def instantiate_line(source: Path) -> str | None:
    """What follows `// instantiate:` in a source, if it has such a line."""
    line = re.search(r"^// instantiate:(.*)$", source.read_text(encoding="utf-8"), re.MULTILINE)
    return line[1] if line else None


def instantiations(source: Path) -> list[dict[str, str]]:
    """The combinations that a .cu file is compiled for, by parameter; a single empty one without such a line.

    Raises:
        BuildError: the line is no list of instantiations.
    """
    line = instantiate_line(source)
    if line is None:
        return [{}]
    axes = {}
    for axis in line.split(";"):
        name, _, values = (part.strip() for part in axis.partition("="))
        axes[name] = [value.strip() for value in values.split(",")]
        if not name.isidentifier() or not all(re.fullmatch(r"\w+", value) for value in axes[name]):
            raise BuildError(
                f"{source}: '// instantiate:{line}' is no list of instantiations; write one as in "
                "'// instantiate: T = float16, bfloat16; D = 64, 128'."
            )
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]
