"""Compiled templates are kept from one process to the next, and a cache that cannot be used changes nothing."""

import marshal
import os
import time

import pytest

from kernelgen.scaffold import compiled


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The cache of a user who has none yet, in a process that has compiled nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _forget()
    yield compiled.folder()
    _forget()


def _forget() -> None:
    compiled._codes.clear()
    compiled._remove_old.cache_clear()


def _render(text: str = "{{ 6 * n }}\n") -> str:
    return compiled.CompilingOnce(keep_trailing_newline=True).from_string(text).render(n=7)


def _forbid_compiling(monkeypatch) -> None:
    def fail(*_):
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiled.SandboxedEnvironment, "compile", fail)


def test_a_later_process_compiles_nothing_again(folder, monkeypatch):
    assert _render() == "42\n"
    assert len(list(folder.iterdir())) == 1
    _forget()
    _forbid_compiling(monkeypatch)
    assert _render() == "42\n"
    with pytest.raises(AssertionError, match="compiled again"):
        _render("{{ 5 * n }}")


@pytest.mark.parametrize("content", [b"", b"no code", b"\xe3\x01", b"i\x07\x00\x00\x00"])
def test_a_broken_file_is_compiled_again(folder, content):
    _render()
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(content)
    _forget()
    assert _render() == "42\n"
    # Not the bytes: they also say which constants something else refers to at the time.
    assert marshal.loads(file.read_bytes()) == marshal.loads(whole)


def test_what_is_old_is_removed(folder):
    _render()
    (file,) = folder.iterdir()
    os.utime(file, (time.time() - 40 * 86_400,) * 2)
    _forget()
    assert _render("{{ 5 * n }}") == "35"
    assert not file.exists()


@pytest.mark.parametrize("where", ["under a file", "no home"])
def test_without_a_cache_all_is_rendered(where, tmp_path, monkeypatch):
    if where == "no home":

        def no_home():
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(compiled.Path, "home", no_home)
    else:
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert _render() == "42\n"
