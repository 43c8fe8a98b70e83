"""Builds whenever a source is saved, and runs the tests of what changed."""

import subprocess
import sys
import time
from pathlib import Path

from kernelgen.errors import KernelgenError
from kernelgen.toolchain.build import Build
from kernelgen.toolchain.python import find_python

_SUFFIXES = (".cpp", ".cu", ".cuh", ".h", ".py")
_INTERVAL_S = 0.1  # Looking at a hundred files takes about a millisecond.


def watch(build: Build, jobs: int | None, *, test: bool) -> int:
    """Build now and after every change, until Ctrl-C. A build that fails waits for the next change."""
    seen = _sources(build.root)
    changed: set[Path] = set()
    try:
        while True:
            try:
                outcome = build.run(jobs)
                print(outcome, flush=True)
                if test and changed:
                    _test(build, changed, outcome.variables())
            except KernelgenError as error:
                _note(str(error))
            _note("watching; Ctrl-C ends it")
            changed, seen = _next_change(build.root, seen)
    except KeyboardInterrupt:
        print()
        _note("stopped watching")
        return 0


def _note(line: str) -> None:
    print(f"kernelgen: {line}", file=sys.stderr, flush=True)


def _sources(root: Path) -> dict[Path, int]:
    """When each source of a build or a test was last modified, in nanoseconds."""
    modified = {}
    for path in (root / "setup.py", *(root / "build_tools").glob("*"), *(root / "src").rglob("*")):
        if path.suffix in _SUFFIXES:
            try:
                modified[path] = path.stat().st_mtime_ns
            except OSError:  # It was removed after it was listed, as an editor's temporary files are.
                continue
    return modified


def _next_change(root: Path, seen: dict[Path, int]) -> tuple[set[Path], dict[Path, int]]:
    """Wait for a change and until it is over: an editor or git may write several files."""
    changed: set[Path] = set()
    while True:
        time.sleep(_INTERVAL_S)
        now = _sources(root)
        if now != seen:
            changed |= {path for path in now.keys() | seen.keys() if now.get(path) != seen.get(path)}
            seen = now
        elif changed:
            return changed, seen


def _test(build: Build, changed: set[Path], variables: dict[str, str]) -> None:
    """Run the tests of the ops that changed, or all where something changed that ops share."""
    folders = {_op_folder(build.root, path) for path in changed}
    tests = [] if None in folders else sorted(str(folder) for folder in folders)
    python = find_python(build.root, build.python)
    command = [str(python), "-m", "pytest", "-q", *tests]
    subprocess.run(command, cwd=build.root, env={**build.environment, **variables}, check=False)


def _op_folder(root: Path, path: Path) -> Path | None:
    parts = path.relative_to(root).parts
    inside = parts[:1] == ("src",) and parts[2:3] == ("ops",) and len(parts) > 4
    return Path(*parts[:4]) if inside else None
