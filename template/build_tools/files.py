"""Writes the files that a build makes for itself."""

from __future__ import annotations

from pathlib import Path


def write(path: Path, text: str) -> None:
    """Writes a file if that changes its text, atomically: a process killed here leaves the old file whole."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.new")
        new.write_text(text, encoding="utf-8")
        new.replace(path)
