"""How kernelgen runs git."""

import os

import pytest

from kernelgen.scaffold.git import GitError, text
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


def test_a_repository_of_another_user_is_named_with_the_cure(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("text")
    commit_all(tmp_path)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    with pytest.raises(GitError, match=f"allow it: git config --global --add safe.directory {tmp_path}"):
        text(tmp_path, "status")
