"""Where the emulator keeps what it compiled, each library or header in a folder named for all that went into it."""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kernelgen import caches
from kernelgen.emulator.lock import locked


def cache_folder() -> Path:
    """In the user's cache."""
    return caches.folder("emulator")


def remove_unused(cache: Path, days: int = 7) -> None:
    """Removes the folders that nothing has used for so many days."""
    for path in cache.iterdir():
        if path.is_dir() and path.stat().st_mtime < time.time() - days * 86_400:
            shutil.rmtree(path, ignore_errors=True)


def kept(name: str, key: object, make: Callable[[Path], dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
    """A folder in the cache, and the facts about it that `make` returned when it filled the folder.

    Among them are `inputs`, the states of the files that it is made of: once one of those is another, the folder is
    filled again. A `header` that they name is there.
    """
    folder = cache_folder() / f"{name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:20]}"
    record = folder / "facts.json"
    with locked(folder.with_suffix(".lock"), quietly=True):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            facts = json.loads(record.read_text())
            if Path(facts.get("header", folder)).exists() and facts["inputs"] == states(facts["inputs"]):
                os.utime(folder)
                return folder, facts
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        remove_unused(folder.parent)
        facts = make(folder)
        record.write_text(json.dumps(facts))
        return folder, facts


def states(paths: Iterable[str]) -> dict[str, list[int]]:
    """The size of each file in bytes, and when it was written, in nanoseconds."""
    stats = {path: os.stat(path) for path in paths}
    return {path: [stat.st_size, stat.st_mtime_ns] for path, stat in stats.items()}
