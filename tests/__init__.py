"""kernelgen's own tests. Some of their modules are programs too, which pytest does not prepare for."""

import sys
from pathlib import Path

# As pytest's `pythonpath` in pyproject.toml does: the template's build_tools are tested where they lie.
sys.path.append(str(Path(__file__).parents[1] / "template"))
