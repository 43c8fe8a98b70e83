"""Where an op's lab.py, reference and peers come from: a revision that whoever changed the op did not edit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernelgen.errors import LabError
from kernelgen.toolchain import revision

# What `--trust` calls the files as they are now.
WORKING_TREE = "."
_RULE = ("lab.py", "reference.py")


@contextmanager
def trusted(root: Path, trust: str | None) -> Iterator[Path]:
    """The project at `root` as of the revision to trust; the project itself for WORKING_TREE or None.

    Raises:
        KernelgenError: as `revision.checked_out`.
    """
    if trust in (None, WORKING_TREE):
        yield root
        return
    with revision.checked_out(root, trust) as (folder, _):
        yield folder


def changes_of_rule(rule: Path, root: Path, package: str, ops: Sequence[str], trust: str) -> list[str]:
    """A sentence for each op whose lab.py or reference.py differs from those that are trusted.

    Raises:
        LabError: an op had no lab.py at the revision to trust.
    """
    sentences = []
    for op in ops:
        here, there = (folder / "src" / package / "ops" / op for folder in (root, rule))
        if not (there / "lab.py").is_file():
            raise LabError(
                f"{op} had no lab.py at {trust}; judge it by the one it has now, with --trust {WORKING_TREE}."
            )
        changed = [name for name in _RULE if _text(here / name) != _text(there / name)]
        if changed:
            files = " and ".join(changed)
            sentences.append(f"{op}: {files} changed since {trust}, and what was there then judges; see --trust")
    return sentences


def _text(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
