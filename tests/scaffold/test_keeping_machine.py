"""Random lives of a project: whatever its owner does, no verb loses a line of theirs or leaves a wrong state.

A life draws from everything that an owner does to a project between updates. KEEPING_LIVES sets how many there are
in the corpus.
"""

import io
import os
import shutil
import subprocess
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kernelgen.cli import main
from kernelgen.scaffold import journal, template
from kernelgen.scaffold.render import Renderer, parse_yaml
from tests.conftest import commit_all, git, tree, with_sample
from tests.scaffold import small_template as small
from tests.scaffold.small_template import PACKAGE, edited, first, lines, op_folder
from tests.scaffold.test_kills import killed_at

LIVES = int(os.environ.get("KEEPING_LIVES", "90"))
ANSWERS = ".copier-answers.yml"
OPS = "src/my_kernels/ops"
NAMES = ("one", "two", "three", "four")
SETTINGS = (
    ("apply.whitespace", "error"),
    ("core.autocrlf", "input"),
    ("merge.conflictStyle", "diff3"),
    ("merge.renames", "false"),
    ("diff.noprefix", "true"),
    ("status.showUntrackedFiles", "no"),
    ("core.quotePath", "false"),
    ("core.attributesFile", "/dev/null"),
)
MARKS = ("<" * 7, "=" * 7, ">" * 7, "|" * 7)
any_number = st.integers(0, 10**6)


def versions(repository: Path) -> None:
    """Four versions of a template: they edit, add, rename, split, delete and chmod files, add and rename recipes."""
    files = first()
    small.write(repository, files, "v1.0")
    files = {path: edited(text, 2, "second version") if text.count("\n") > 20 else text for path, text in files.items()}
    files["docs/new.md"] = lines("new page")
    small.write(repository, files, "v2.0", executable=("tools/run.sh",))
    files["build/setup.py"] = files.pop("setup.py")
    for name in ("common", "math"):
        files[f"{PACKAGE}/include/torch/{name}.h"] = files.pop(f"{PACKAGE}/include/{name}.h")
    for recipe in ("alpha", "beta"):
        files[f"{op_folder(recipe)}/tunables.h"] = files.pop(f"{op_folder(recipe)}/tuning.h")
    kernel = files[f"{op_folder('beta')}/kernel.cu"].splitlines(keepends=True)
    files[f"{op_folder('beta')}/kernel.cu"] = "".join(kernel[:22])
    files[f"{op_folder('beta')}/backward.cu"] = "".join(kernel[22:]) + lines("backward", 5)
    question = "flavour:\n  type: str\n  default: plain\n"
    small.write(repository, files, "v3.0", executable=("tools/run.sh",), questions=question)
    del files["docs/new.md"]
    files["README.md.jinja"] = edited(files["README.md.jinja"], 5, "{{ flavour }} version")
    files = {path.replace("ops_by_recipe.alpha", "ops_by_recipe.delta"): text for path, text in files.items()}
    files |= {f"{op_folder('gamma')}/{name}": lines(f"gamma {name}") for name in ("__init__.py", "kernel.cu")}
    small.write(repository, files, "v4.0", recipes=("delta", "beta", "gamma"), questions=question)


class Life(RuleBasedStateMachine):
    """A project, its owner and its template."""

    source: Path

    def __init__(self) -> None:
        super().__init__()
        self.scratch = Path(tempfile.mkdtemp(prefix="life-"))
        self.root = self.scratch / "my-kernels"
        self.markers: set[bytes] = set()
        self.count, self.version = 0, 1
        self.pristine = True
        self.ops_by_hand = False

    def teardown(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)

    # What everything below is made of

    def run(self, *arguments: str, allowed: tuple[int, ...] = (0,)) -> int:
        out, error = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(error):
            code = main([*arguments, "--project", str(self.root)])
        assert "Traceback" not in error.getvalue(), error.getvalue()
        assert code in allowed, (arguments, code, error.getvalue())
        self.said = error.getvalue()
        return code

    def refused(self, *arguments: str) -> bool:
        """Run a verb that may refuse; then nothing has changed."""
        before = tree(self.root)
        if self.run(*arguments, allowed=(0, 1, 2, 3)) == 0:
            return False
        assert tree(self.root) == before, self.said
        return True

    def marker(self) -> bytes:
        self.count += 1
        self.pristine = False
        self.markers.add(mark := b"owner's line %d." % self.count)
        return mark

    def files(self) -> list[Path]:
        """The files that the owner edits, by hand."""
        files = [self.root / path for path in tree(self.root) if path != ANSWERS and not path.startswith(".kernelgen/")]
        return [path for path in files if path.is_file() and not path.is_symlink()]

    def pick(self, number: int) -> Path:
        files = self.files()
        assume(files)
        return files[number % len(files)]

    def forget(self, path: Path) -> None:
        """The owner deletes these lines."""
        for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
            if file.is_file():
                self.markers = {mark for mark in self.markers if mark not in file.read_bytes()}

    def record(self) -> dict[str, dict]:
        return {op["name"]: op for op in parse_yaml((self.root / ANSWERS).read_bytes())["ops"]}

    def recorded_version(self) -> int:
        return int(parse_yaml((self.root / ANSWERS).read_bytes())["_commit"][1])

    def commit(self) -> None:
        commit_all(self.root)

    # The rules

    @initialize()
    def stamp(self) -> None:
        answers = Renderer(
            self.template_at(1), {"ops": [{"name": "alpha", "recipe": "alpha"}]} | self.stamped(1), self.root.name
        )
        for path, file in answers.everything().items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_bytes(file.content)
        self.commit()

    def template_at(self, version: int) -> Path:
        return template.extract(self.source, template.resolve(self.source, f"v{version}.0"))

    def stamped(self, version: int) -> dict[str, str]:
        return {"_commit": f"v{version}.0", "_src_path": str(self.source)}

    @rule(name=st.sampled_from(NAMES), recipe=st.sampled_from(("alpha", "beta", "gamma", "delta")))
    def add_op(self, name: str, recipe: str) -> None:
        if not self.refused("add-op", name, "--recipe", recipe):
            assert name in self.record()

    @rule(name=st.sampled_from((*NAMES, "alpha")), force=st.booleans())
    def remove_op(self, name: str, force: bool) -> None:
        folder = self.root / OPS / name
        marks = {mark for mark in self.markers if any(mark in f.read_bytes() for f in folder.rglob("*") if f.is_file())}
        if not self.refused("remove-op", name, *(["--force"] if force else [])):
            assert force or not marks
            self.markers -= marks
            assert not folder.exists()

    @rule(file=any_number, line=any_number)
    def edit_a_line(self, file: int, line: int) -> None:
        path = self.pick(file)
        parts = path.read_bytes().split(b"\n")
        line %= len(parts)
        self.forget_line(parts[line])
        parts[line] = self.marker()
        path.write_bytes(b"\n".join(parts))

    def forget_line(self, line: bytes) -> None:
        self.markers = {mark for mark in self.markers if mark not in line}

    @rule(file=any_number, kind=st.sampled_from(("append", "crlf", "latin-1", "binary", "no newline")))
    def edit_bytes(self, file: int, kind: str) -> None:
        path = self.pick(file)
        text = path.read_bytes()
        mark = self.marker()
        if kind == "append":
            text += mark + b"\n"
        elif kind == "crlf":
            text = text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") + mark + b"\r\n"
        elif kind == "latin-1":
            text = "é".encode("latin-1") + mark + b"\n" + text
        elif kind == "binary":
            text += b"\0\xff" + mark
        else:
            text = text.rstrip(b"\n") + b"\n" + mark
        path.write_bytes(text)

    @rule(file=any_number, name=st.sampled_from(("x.txt", "sub/y.h", "z z.cu", "ä.md")))
    def create(self, file: int, name: str) -> None:
        path = self.pick(file).parent / name
        if not os.path.lexists(path) and path.parent.is_dir() | (not os.path.lexists(path.parent)):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(self.marker() + b"\n")

    @rule(file=any_number, name=st.sampled_from(("moved.txt", "kernel2.cu", "deeper/moved.h")))
    def rename(self, file: int, name: str) -> None:
        path = self.pick(file)
        target = path.parent / name
        if not os.path.lexists(target) and os.path.lexists(target.parent) | target.parent.is_dir() is not False:
            target.parent.mkdir(exist_ok=True)
            path.rename(target)
            self.pristine = False
            self.ops_by_hand |= OPS in str(path)

    @precondition(lambda self: len(self.files()) > 5)
    @rule(file=any_number)
    def delete(self, file: int) -> None:
        path = self.pick(file)
        self.forget(path)
        path.unlink()
        self.pristine = False
        self.ops_by_hand |= OPS in str(path)

    @rule(file=any_number)
    def replace_by_a_link(self, file: int) -> None:
        path = self.pick(file)
        self.forget(path)
        path.unlink()
        path.symlink_to("/dev/null")
        self.pristine = False

    @rule(file=any_number)
    def replace_by_a_folder(self, file: int) -> None:
        path = self.pick(file)
        self.forget(path)
        path.unlink()
        path.mkdir()
        (path / "inside.txt").write_bytes(self.marker())
        self.ops_by_hand |= OPS in str(path)

    @rule(file=any_number)
    def change_mode(self, file: int) -> None:
        path = self.pick(file)
        path.chmod(path.stat().st_mode ^ 0o111)
        self.pristine = False

    @rule(setting=st.sampled_from(SETTINGS))
    def configure(self, setting: tuple[str, str]) -> None:
        git(self.root, "config", *setting)

    @rule()
    def commit_work(self) -> None:
        self.commit()

    @rule(name=st.sampled_from(NAMES), overtaken=st.booleans())
    def branch_and_merge(self, name: str, overtaken: bool) -> None:
        """An op is added on a branch, while the project goes on, or is even updated."""
        self.commit()
        main_branch = git(self.root, "branch", "--show-current")
        git(self.root, "checkout", "--quiet", "-B", "topic")
        self.refused("add-op", name, "--recipe", "beta")
        self.commit()
        git(self.root, "checkout", "--quiet", main_branch)
        if overtaken:
            self.update(True)
        merged = subprocess.run(["git", "-C", str(self.root), "merge", "--quiet", "topic"], capture_output=True)
        if merged.returncode:
            conflicts = git(self.root, "diff", "--name-only", "--diff-filter=U").splitlines()
            if conflicts == [ANSWERS]:
                kept = [x for x in (self.root / ANSWERS).read_text().splitlines() if not x.startswith(MARKS)]
                (self.root / ANSWERS).write_text("\n".join(kept) + "\n")
                self.commit()
                if not self.refused("list"):
                    return
                git(self.root, "reset", "--quiet", "--hard", "HEAD~1")
            else:
                git(self.root, "merge", "--abort")

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True))
    def add_ops_at_once(self, names: list[str]) -> None:
        children = {}
        before = self.record()
        for name in names:
            child = os.fork()
            if child == 0:
                with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                    os._exit(main(["add-op", name, "--recipe", "beta", "--project", str(self.root)]))
            children[name] = child
        codes = {name: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for name, child in children.items()}
        added = {name for name, code in codes.items() if code == 0}
        assert set(self.record()) == set(before) | added, codes

    @rule(
        write=st.integers(0, 40), verb=st.sampled_from(("add-op", "remove-op", "update")), name=st.sampled_from(NAMES)
    )
    def kill(self, write: int, verb: str, name: str) -> None:
        arguments = [verb, *({"add-op": [name, "--recipe", "beta"], "remove-op": [name]}.get(verb, []))]
        if verb == "update":
            self.commit()
            arguments += ["--to", f"v{min(self.version + 1, 4)}.0"]
        before = tree(self.root)

        def work() -> None:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                main([*arguments, "--project", str(self.root)])

        killed = killed_at(write, work, self.root)
        journal.recover(self.root)
        if killed and tree(self.root) != before:
            # Killed while the journal was removed: then all of it is done.
            assert not (self.root / ".kernelgen").exists()
        if (self.root / ".kernelgen").exists():
            self.end_conflicts(False, before)
        self.version = self.recorded_version()

    @rule()
    def update_and_resolve(self) -> None:
        self.update(True)

    @rule(conflicts_stay=st.booleans())
    def update(self, conflicts_stay: bool) -> None:
        self.version = min(self.version + 1, 4)
        self.commit()
        before = tree(self.root)
        code = self.run("update", "--to", f"v{self.version}.0", allowed=(0, 1, 3))
        if (self.root / ".kernelgen").exists():
            assert code == 3
            self.check_markers()
            self.end_conflicts(conflicts_stay, before)
        elif code:
            assert tree(self.root) == before, self.said
            self.version = self.recorded_version()
        else:
            self.commit()

    def end_conflicts(self, stay: bool, before: dict) -> None:
        if not stay:
            self.run("update", "--abort")
            assert tree(self.root) == before
            assert git(self.root, "status", "--porcelain", "--untracked-files=all") == ""
            self.version = self.recorded_version()
            return
        self.run("update", "--continue", allowed=(3,))
        for path in self.root.rglob("*.from-template"):
            path.unlink()
        for path in self.files():
            text = path.read_bytes().split(b"\n")
            kept = [line for line in text if not line.startswith(tuple(mark.encode() for mark in MARKS))]
            if kept != text:
                path.write_bytes(b"\n".join(kept))
        git(self.root, "add", "--all")
        self.run("update", "--continue")
        self.pristine = False
        self.commit()

    def lags(self) -> bool:
        """Whether an op came from a branch that missed an update."""
        answers = parse_yaml((self.root / ANSWERS).read_bytes())
        return any(op.get("version", answers["_commit"]) != answers["_commit"] for op in answers["ops"])

    @precondition(lambda self: self.pristine and self.version < 3 and not self.lags())
    @rule()
    def update_by_copier(self) -> None:
        """Of what nobody edited, stock Copier makes the same; it cannot follow a renamed recipe, or an op that lags."""
        import copier

        self.commit()
        self.version += 1
        copier.run_update(self.root, vcs_ref=f"v{self.version}.0", defaults=True, overwrite=True, quiet=True)
        self.commit()

    # What holds after every rule

    @invariant()
    def check_markers(self) -> None:
        contents = [content for content, _ in tree(self.root).values()] if self.root.exists() else []
        lost = {mark for mark in self.markers if not any(mark in content for content in contents)}
        assert not lost, lost

    @invariant()
    def record_is_folders(self) -> None:
        if not self.root.exists() or self.ops_by_hand:
            return
        folders = {path.parent.name for path in (self.root / OPS).glob("*/__init__.py")}
        assert set(self.record()) <= folders
        if self.pristine:
            assert set(self.record()) == folders

    @invariant()
    def nothing_is_left_behind(self) -> None:
        assert not (self.root / ".kernelgen").exists()

    @invariant()
    def an_unedited_project_equals_a_fresh_one(self) -> None:
        if not self.pristine or not self.root.exists():
            return
        if self.lags():
            return
        answers = parse_yaml((self.root / ANSWERS).read_bytes())
        version = int(answers["_commit"][1])
        fresh = Renderer(self.template_at(version), answers, self.root.name).everything()
        mine = tree(self.root)
        assert {path: content for path, (content, _) in mine.items()} == {p: f.content for p, f in fresh.items()}
        assert {path for path, (_, executable) in mine.items() if executable} == {
            path for path, file in fresh.items() if file.executable
        }


@pytest.mark.slow
@pytest.mark.parametrize("lives", with_sample((10, LIVES), {10}))
def test_no_life_of_a_project_loses_a_line(tmp_path, lives):
    repository = tmp_path / "template"
    repository.mkdir()
    versions(repository)
    Life.source = repository
    options = settings(
        max_examples=lives,
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        print_blob=True,
    )
    with patch.object(template, "HOME", repository):
        run_state_machine_as_test(Life, settings=options)
