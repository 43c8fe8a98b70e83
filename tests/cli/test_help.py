"""`kernelgen help`: the pages of documentation, from a checkout and from an installed package."""

import sys

import pytest

from kernelgen.cli import help as verb
from tests.conftest import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = sorted(page.stem for page in (ROOT / "docs").glob("*.md"))


def test_without_a_topic_help_lists_every_page_with_its_title(run):
    listed = run("help").out
    assert [line.split()[0] for line in listed.splitlines()[2:]] == PAGES
    assert "  troubleshooting  " in listed
    assert "Troubleshooting\n" in listed


@pytest.mark.parametrize("topic", PAGES)
def test_a_page_is_printed_as_it_is_written(run, topic):
    result = run("help", topic)
    lines = (ROOT / "docs" / f"{topic}.md").read_text(encoding="utf-8").splitlines()
    assert result.code == 0
    # The comments that steer the tests of pages are left out.
    assert result.out.splitlines() == [line for line in lines if not line.startswith("<!-- ")]


def test_on_a_terminal_a_page_is_formatted(run, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    result = run("help", "lab").out
    assert "Quick start" in result
    assert "## Quick start" not in result
    assert "](" not in result


def test_path_prints_where_a_page_is(run):
    assert run("help", "lab", "--path").out == f"{ROOT / 'docs' / 'lab.md'}\n"
    assert run("help", "--path").out == f"{ROOT / 'docs'}\n"


def test_a_verb_s_name_shows_the_verb_s_help(run):
    assert run("help", "build").out == run("build", "--help").out


def test_an_unknown_page_is_answered_with_the_closest(run):
    refused = run("help", "optimizing")
    assert refused.code == 2
    assert "There is no page 'optimizing'. Did you mean optimising?" in refused.err


def test_an_installed_package_carries_the_pages(run, tmp_path, monkeypatch):
    package = tmp_path / "kernelgen"
    (package / "_docs").mkdir(parents=True)
    for name in ("commands.md", "lab.md"):
        (package / "_docs" / name).write_text((ROOT / "docs" / name).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(verb, "_PACKAGE", package)
    assert run("help", "lab", "--path").out == f"{package / '_docs' / 'lab.md'}\n"
    (package / "_docs" / "commands.md").unlink()
    assert "reinstall kernelgen" in run("help").err


def test_a_wheel_carries_the_folder_of_pages():
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert configuration["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]["docs"] == "kernelgen/_docs"
