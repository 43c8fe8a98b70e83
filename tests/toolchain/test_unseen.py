"""Files that were replaced by older ones, which Ninja does not see."""

import os
from pathlib import Path
from types import SimpleNamespace

from build_tools import unseen

# What Ninja lists of the objects that its file is about.
DEPS = """a.o: #deps 2, deps mtime 1 (VALID)
    src/a.cpp
    src/shared.h

b.o: #deps 1, deps mtime 1 (VALID)
    src/b.cpp

"""


def test_objects_of_a_file_that_an_older_one_replaced_are_removed(tmp_path, monkeypatch):
    """And those that Ninja says nothing of, which other settings left: they may be of it."""
    monkeypatch.chdir(tmp_path)
    project, folder, ninja = SimpleNamespace(source=Path("src")), Path("build"), Path("ninja")
    for name in ("src/a.cpp", "src/b.cpp", "src/shared.h", "build/a.o", "build/b.o", "build/other.o"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(name)
    ninja.write_text(f"#!/bin/sh\ncat <<'END'\n{DEPS.replace('a.o', 'build/a.o').replace('b.o', 'build/b.o')}END\n")
    ninja.chmod(0o755)
    unseen.remove_outdated(project, folder, "./ninja")
    Path("src/b.cpp").write_text("edited, as Ninja sees")
    os.utime("src/b.cpp", (2e9, 2e9))
    unseen.remove_outdated(project, folder, "./ninja")
    assert sorted(path.name for path in folder.glob("*.o")) == ["a.o", "b.o", "other.o"]
    Path("src/shared.h").write_text("another")
    os.utime("src/shared.h", (1e9, 1e9))
    assert unseen.changed(project, folder) == ["src/shared.h"]
    unseen.remove_outdated(project, folder, "./ninja")
    assert [path.name for path in folder.glob("*.o")] == ["b.o"]
    assert unseen.changed(project, folder) == []
