"""How kernelgen runs git."""

import os

from kernelgen.scaffold.git import text
from tests.conftest import commit_all


def test_a_look_at_a_repository_leaves_its_index_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("GIT_OPTIONAL_LOCKS", raising=False)
    file, index = tmp_path / "file", tmp_path / ".git" / "index"
    file.write_text("text")
    commit_all(tmp_path)
    before = index.read_bytes()
    os.utime(file, (1, 1))  # By itself git would note that the content is as it was.
    assert text(tmp_path, "status", "--short") == ""
    assert index.read_bytes() == before
