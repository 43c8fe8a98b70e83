"""Where the emulator keeps what it compiled, each library or header in a folder named for all that went into it."""

import os
import shutil
import time
from pathlib import Path


def cache_folder() -> Path:
    """In the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelgen" / "emulator"


def remove_unused(cache: Path, days: int = 7) -> None:
    """Removes the folders that nothing has used for so many days."""
    for path in cache.iterdir():
        if path.is_dir() and path.stat().st_mtime < time.time() - days * 86_400:
            shutil.rmtree(path, ignore_errors=True)
