"""A project whose tests are those of the revision to trust, and whose code is the project's: of symbolic links."""

from collections.abc import Collection
from pathlib import Path

# Of the rule: what pytest reads at the top, and of an op's folder what its tests are made of.
_TOP = ("conftest.py", "pyproject.toml", "tests")
_BESIDE = ("lab.py", "reference.py", "conftest.py")


def link(folder: Path, root: Path, rule: Path, package: str, op: str) -> None:
    """Links the code at `root`, and the tests of an op at `rule`, into an empty folder."""
    inside = Path("src", package, "ops", op)
    _link_all(folder, root, without=[*_TOP, "src"])
    _link_all(folder / "src", root / "src", without=[package])
    _link_all(folder / inside.parent.parent, root / inside.parent.parent, without=["ops"])
    _link_all(folder / inside.parent, root / inside.parent, without=[op])
    _link_all(folder / inside, root / inside, without=[file.name for file in root.joinpath(inside).glob("test_*.py")])
    for name in _TOP:
        _replace(folder / name, rule / name)
    for file in (*rule.joinpath(inside).glob("test_*.py"), *(rule / inside / name for name in _BESIDE)):
        _replace(folder / inside / file.name, file)


def changes(root: Path, rule: Path, package: str, op: str) -> list[str]:
    """The tests of an op, and what they use, that differ between the two; in alphabetical order."""
    return sorted(
        str(name)
        for name in _files(root, package, op) | _files(rule, package, op)
        if _content(root / name) != _content(rule / name)
    )


def _files(root: Path, package: str, op: str) -> set[Path]:
    inside = root / "src" / package / "ops" / op
    files = [root / "conftest.py", *(root / "tests").rglob("*.py"), *inside.glob("test_*.py"), inside / "conftest.py"]
    return {file.relative_to(root) for file in files}


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _link_all(folder: Path, target: Path, without: Collection[str]) -> None:
    folder.mkdir(exist_ok=True)
    for entry in target.iterdir():
        if entry.name not in without and not entry.name.startswith(".git"):
            (folder / entry.name).symlink_to(entry)


def _replace(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    if target.exists():
        link.symlink_to(target)
