"""Where the template comes from, and at which commit a project is rendered."""

import json
import shutil

import pytest

from kernelgen import __version__
from kernelgen.errors import KernelgenError
from kernelgen.scaffold import template
from tests.conftest import commit_all, git


@pytest.fixture
def package(own_checkout, tmp_path, monkeypatch):
    """The template as a wheel holds it, and what PEP 610 lets the installer write beside it."""

    def install(record: dict | None = None):
        home = tmp_path / "site-packages" / "kernelgen" / "_template"
        shutil.copytree(own_checkout / "template", home / "template")
        shutil.copy(own_checkout / "copier.yml", home)
        info = tmp_path / "site-packages" / f"kernelgen-{__version__}.dist-info"
        info.mkdir()
        if record is not None:
            (info / "direct_url.json").write_text(json.dumps(record))
        monkeypatch.setattr(template, "HOME", home)
        return template.installed()

    return install


def test_a_checkout_is_its_own_source(own_checkout):
    installed = template.installed()
    assert installed.stamp() == {
        "_commit": git(own_checkout, "rev-parse", "--short", "HEAD"),
        "_src_path": str(own_checkout),
    }
    assert installed.note == ""
    git(own_checkout, "tag", "v0.1.0")
    assert template.installed().commit == "v0.1.0"


@pytest.mark.parametrize(("path", "dirty"), (("copier.yml", True), ("template/x.txt", True), ("kernelgen/x.py", False)))
def test_uncommitted_changes_to_the_template_are_told(own_checkout, path, dirty):
    (own_checkout / path).parent.mkdir(exist_ok=True)
    with (own_checkout / path).open("a") as file:
        file.write("\n")
    assert ("uncommitted" in template.installed().note) is dirty


def test_a_checkout_without_history_has_no_source(own_checkout):
    shutil.rmtree(own_checkout / ".git")
    installed = template.installed()
    assert installed.stamp() == {"_commit": f"v{__version__}"}
    assert "_src_path: git+https" in installed.note
    git(own_checkout, "init", "--quiet")
    assert template.installed().source is None


@pytest.mark.parametrize(
    ("url", "address"),
    (
        ("https://github.com/someone/kernelgen", "https://github.com/someone/kernelgen"),
        ("https://example.com/kernelgen.git", "https://example.com/kernelgen.git"),
        ("https://example.com/kernelgen", "git+https://example.com/kernelgen"),
        ("ssh://git@example.com/kernelgen", "git+ssh://git@example.com/kernelgen"),
        ("file:///srv/kernelgen", "git+file:///srv/kernelgen"),
    ),
)
def test_a_package_installed_from_git_knows_its_source(package, url, address):
    installed = package({"url": url, "vcs_info": {"vcs": "git", "commit_id": "a" * 40, "requested_revision": "v9"}})
    assert installed.stamp() == {"_commit": "a" * 40, "_src_path": address}
    assert installed.is_at("a" * 7)
    assert installed.is_at("v8-3-g" + "a" * 7)
    assert installed.is_at("v9")
    assert not installed.is_at("v8")


def test_a_package_built_from_a_checkout_knows_its_source(package, own_checkout):
    git(own_checkout, "tag", "v0.1.0")
    installed = package({"url": own_checkout.as_uri(), "dir_info": {}})
    assert installed.stamp() == {"_commit": "v0.1.0", "_src_path": str(own_checkout)}
    (own_checkout / "copier.yml").write_text((own_checkout / "copier.yml").read_text() + "\n# newer\n")
    commit_all(own_checkout)
    assert template.installed().source is None


@pytest.mark.parametrize("record", (None, {}, {"url": "https://example.com/k.whl", "archive_info": {}}, []))
def test_any_other_package_is_its_version(package, record):
    installed = package(record)
    assert installed.stamp() == {"_commit": f"v{__version__}"}
    assert installed.is_at(f"v{__version__}")


def test_a_project_is_rendered_at_the_commit_it_was_stamped_from(own_checkout, stamp, run):
    folder = stamp("elementwise")
    source = next((own_checkout / "template").glob("src/*/ops/*.elementwise */__init__.py.jinja"))
    source.write_text(source.read_text() + "\n# from a newer template\n")
    commit_all(own_checkout)
    assert run("add-op", "second", "--recipe", "elementwise", "--project", folder).code == 0
    assert "newer template" not in (folder / "src/my_kernels/ops/second/__init__.py").read_text()
    assert run("list", "--json", "--project", folder).json["ops"][0]["state"] == "pristine"
    cached = template.recorded({"_commit": git(own_checkout, "rev-parse", "HEAD~1"), "_src_path": None})
    assert cached.folder != own_checkout


def test_any_name_of_the_newest_commit_is_the_checkout_itself(own_checkout):
    for name in (
        "HEAD",
        git(own_checkout, "rev-parse", "HEAD"),
        git(own_checkout, "rev-parse", "--short=12", "HEAD"),
    ):
        assert template.recorded({"_commit": name}).folder == own_checkout
    assert template.recorded({}).folder == own_checkout


@pytest.mark.parametrize(
    ("commit", "cure"),
    (
        ("v7.0", "kernelgen==7.0"),
        ("f" * 40, "kernelgen @ git+https://example.com/kernelgen.git@" + "f" * 40),
        ("--output=/tmp/x", "kernelgen update"),
    ),
)
def test_a_version_that_is_not_here_is_refused_with_the_cure(checkout, commit, cure):
    with pytest.raises(KernelgenError, match="was stamped from template") as refusal:
        template.recorded({"_commit": commit, "_src_path": "https://example.com/kernelgen.git"})
    assert cure in str(refusal.value)
    assert "kernelgen update" in str(refusal.value)


@pytest.mark.parametrize(
    ("source", "says"),
    (
        ("git+https://example.com/k", "pip install 'kernelgen @ git+https://example.com/k@abc123'"),
        ("gh:someone/k", "git+https://github.com/someone/k.git@abc123"),
        ("git@example.com:a/k.git", "git+ssh://git@example.com/a/k.git@abc123"),
        ("{here}", "git+file://{here}@abc123"),
        ("file://{here}", "git+file://{here}@abc123"),
        ("{here}/gone", "{here}/gone, which is not there; write its address into `_src_path`"),
        (None, "in a line `_src_path: git+https://…/kernelgen.git`, then run `kernelgen update`."),
    ),
)
def test_the_cure_of_another_version_can_be_typed(checkout, tmp_path, source, says):
    git(tmp_path, "init", "--quiet")
    source = source and source.format(here=tmp_path)
    with pytest.raises(KernelgenError) as refusal:
        template.recorded({"_commit": "abc123", "_src_path": source})
    assert says.format(here=tmp_path) in str(refusal.value)


@pytest.mark.parametrize("verb", ("list", "diff"))
def test_without_git_a_project_of_a_checkout_says_so(own_checkout, stamp, run, monkeypatch, tmp_path, verb):
    folder = stamp("elementwise")
    monkeypatch.setenv("PATH", str(tmp_path))
    refused = run(verb, "--project", folder)
    assert refused.code == 1
    assert f"of {own_checkout}: git is not on PATH; install it" in refused.err


def test_a_template_that_git_refuses_to_read_says_so(checkout, tmp_path, monkeypatch):
    (tmp_path / "template").mkdir()
    git(tmp_path / "template", "init", "--quiet")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(KernelgenError, match=r"dubious ownership in repository .*; allow it: git config"):
        template.recorded({"_commit": "v7.0", "_src_path": str(tmp_path / "template")})


def test_two_at_once_fill_the_cache_together(own_checkout, monkeypatch, tmp_path):
    import os

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = git(own_checkout, "rev-parse", "HEAD")
    commit_all(own_checkout, "newer")
    rename = os.rename

    def late(source, target):
        shutil.copytree(source, target)
        return rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    assert (template.recorded({"_commit": first}).folder / "copier.yml").is_file()
    assert [path.name for path in (tmp_path / "cache/kernelgen/templates").iterdir()] == [first]
