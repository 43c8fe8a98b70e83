"""Faults that `kernelgen fuzz` has to find: each a small replacement in the sources of a recipe.

All mutants of a device are ops of one project, which is built once and kept as long as neither they nor the template
change.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import locked
from tests.stamped.conftest import CACHE, build, edit, quickly, stamp, template_hash

# Recipes as they are, in the same project: no fuzz run may complain of them.
CORRECT = tuple(
    f"right_{recipe}"
    for recipe in ("elementwise", "flash_attention", "layer_norm", "linear_activation", "rms_norm", "swiglu")
)

# Without any optimisation it takes most of the tests' time.
SLOW = "right_flash_attention"


@dataclass(frozen=True)
class Mutant:
    """`old` occurs in `file` of the recipe; its first occurrence there becomes `new`. A header that the op shares with
    others, in include/, is copied to the op first, which the others then do not see. `variables`: of the environment
    that it runs in, where the op would not run that code."""

    name: str
    recipe: str
    file: str
    old: str
    new: str
    variables: dict[str, str] = field(default_factory=dict, hash=False)

    def apply(self, op: Path) -> None:
        path = op / self.file
        shared = op.parents[1] / "include" / self.file
        text = (path if path.exists() else shared).read_text()
        assert self.old in text, f"{self.name}: the recipe's {self.file} no longer holds {self.old!r}"
        path.write_text(text.replace(self.old, self.new, 1))


def project(name: str, mutants: Sequence[Mutant], correct: Sequence[str] = CORRECT, *, cuda: bool = False) -> Path:
    """A built project with each mutant as an op of its name, and correct recipes. The last of this name is kept."""
    key = hashlib.sha256(f"{template_hash()} {mutants} {correct}".encode()).hexdigest()[:16]
    folder = CACHE.parent / "mutants" / name
    home = folder / key
    with locked(folder / "lock"):
        if not (home / "built").exists():
            shutil.rmtree(folder / "unfinished", ignore_errors=True)
            for old in folder.glob("????????????????"):
                shutil.rmtree(old)
            ops = [{"name": mutant.name, "recipe": mutant.recipe} for mutant in mutants]
            ops += [{"name": name, "recipe": name.removeprefix("right_")} for name in correct]
            root = stamp(folder / "unfinished" / "mutant-kernels", project_name="mutant-kernels", ops=ops)
            for mutant in mutants:
                mutant.apply(root / "src" / "mutant_kernels" / "ops" / mutant.name)
            if SLOW in correct:
                edit(root / "setup.py", ("CXX_FLAGS: dict[str, list[str]] = {}", f'CXX_FLAGS = {{"{SLOW}": ["-O1"]}}'))
            (folder / "unfinished").rename(home)
            # Compiled fast rather than to be fast; there is one architecture, that of the GPU at hand.
            variables = {"USE_CUDA": str(int(cuda)), **quickly()}
            result = build(home / "mutant-kernels", **variables, TORCH_CUDA_ARCH_LIST="native" if cuda else "9.0a")
            assert result.returncode == 0, result.stdout + result.stderr
            (home / "built").touch()
    return home / "mutant-kernels"
