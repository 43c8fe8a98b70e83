"""From which version of the template to which a project is updated."""

import shutil

from kernelgen.scaffold import template
from kernelgen.scaffold.render import parse_yaml
from tests.conftest import commit_all, git, tree
from tests.scaffold import small_template as small
from tests.scaffold.small_template import (
    ANSWERS_FILE,
    MINE,
    OPS,
    edit,
    first,
    lines,
    newer,
    recorded,
)


def test_a_tag_that_is_no_version_and_a_dirty_checkout_record_a_commit_that_exists(source, stamp, run):
    git(source, "tag", "--delete", "v1.0")
    git(source, "tag", "nightly")
    (source / "template/setup.py").write_text("not committed\n")
    folder = stamp("alpha")
    commit_all(folder)
    (source / "template/setup.py").write_text(lines("setup"))
    newer(source, tag="later")
    (source / "template/setup.py").write_text("not committed\n")
    assert run("update", "--project", folder).code == 0
    commit = parse_yaml((folder / ANSWERS_FILE).read_bytes())["_commit"]
    assert git(source, "rev-parse", f"{commit}^{{commit}}") == git(source, "rev-parse", "HEAD")
    assert run("list", "--project", folder).code == 0


def test_a_project_stamped_between_releases_is_no_downgrade(source, stamp, run):
    newer(source, tag=None)
    folder = stamp("alpha")
    commit_all(folder)
    updated = run("update", "--project", folder)
    assert updated.code == 0
    assert "has nothing new" in updated.out


def test_a_commit_that_does_not_exist_is_one_sentence(project, run):
    text = (project / ANSWERS_FILE).read_text()
    (project / ANSWERS_FILE).write_text(text.replace("_commit: v1.0", "_commit: v1.0-1-gdeadbee"))
    commit_all(project)
    refused = run("update")
    assert refused.code == 1
    assert "`_commit: v1.0-1-gdeadbee`" in refused.err
    assert refused.err.count("\n") == 1


def test_an_op_of_an_older_branch_gets_the_changes_of_the_update_that_it_missed(project, source, run):
    git(project, "checkout", "--quiet", "-b", "branch")
    assert run("add-op", "late", "--recipe", "alpha").code == 0
    edit(project / OPS / "late/kernel.cu")
    commit_all(project)
    git(project, "checkout", "--quiet", "-")
    newer(source)
    assert run("update").code == 0
    commit_all(project)
    git(project, "merge", "--quiet", "--no-edit", "branch")
    assert "newer template" not in (project / OPS / "late/kernel.cu").read_text()
    assert run("update").code == 0
    text = (project / OPS / "late/kernel.cu").read_text()
    assert "from the newer template" in text
    assert MINE in text
    assert recorded(project)["late"]["version"] == "v2.0"
    commit_all(project)
    assert run("update").code == 0
    assert git(project, "status", "--porcelain") == ""


def test_nothing_new_touches_nothing(project, run):
    edit(project / "setup.py")
    commit_all(project)
    before = tree(project)
    updated = run("update", "--json")
    assert updated.code == 0
    assert updated.json["applied"] is False
    assert tree(project) == before


def test_an_update_goes_to_the_version_that_is_named(project, source, run):
    newer(source)
    small.write(source, first() | {"third.txt": "3\n"}, "v3.0")
    assert run("update", "--to", "v2.0", "--json").json["after"] == "v2.0"
    assert not (project / "third.txt").exists()
    commit_all(project)
    refused = run("update", "--to", "nowhere")
    assert refused.code == 2
    assert "no tag, branch or commit 'nowhere'" in refused.err
    assert run("update").code == 0
    assert (project / "third.txt").exists()


def test_a_project_of_an_installed_package_is_updated_offline(source, stamp, run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = tmp_path / "site-packages/kernelgen/_template"

    def install(version: str) -> None:
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(source, package, ignore=shutil.ignore_patterns(".git"))
        monkeypatch.setattr(template, "HOME", package)
        monkeypatch.setattr(template, "__version__", version)

    install("1.0")
    folder = stamp("alpha")
    assert "_src_path" not in (folder / ANSWERS_FILE).read_text()
    edit(folder / OPS / "alpha/kernel.cu")
    commit_all(folder)
    newer(source)
    install("2.0")
    assert run("list", "--project", folder).code == 0
    updated = run("update", "--project", folder, "--json")
    assert updated.code == 0, updated.err
    assert (updated.json["before"], updated.json["after"]) == ("v1.0", "v2.0")
    text = (folder / OPS / "alpha/kernel.cu").read_text()
    assert MINE in text
    assert "from the newer template" in text
    shutil.rmtree(tmp_path / "cache")
    git(folder, "reset", "--quiet", "--hard")
    refused = run("update", "--project", folder)
    assert refused.code == 1
    assert "kernelgen==1.0" in refused.err


def test_a_project_of_a_repository_s_address_is_updated(project, source, run, tmp_path, monkeypatch):
    git(tmp_path, "clone", "--quiet", "--bare", str(source), "bare.git")
    monkeypatch.setattr("kernelgen.scaffold.template.url", lambda place: str(tmp_path / "bare.git"))
    text = (project / ANSWERS_FILE).read_text().replace(f"_src_path: {source}", "_src_path: gh:someone/kernels")
    (project / ANSWERS_FILE).write_text(text)
    commit_all(project)
    newer(source)
    git(source, "push", "--quiet", "--tags", str(tmp_path / "bare.git"))
    assert run("update").code == 0
    assert "_src_path: gh:someone/kernels" in (project / ANSWERS_FILE).read_text()
    assert "from the newer template" in (project / OPS / "alpha/kernel.cu").read_text()
    commit_all(project)
    shutil.rmtree(tmp_path / "bare.git")
    refused = run("update")
    assert refused.code == 1
    assert "cannot be reached" in refused.err
