"""What most tests share: a committed checkout to stamp from, and `kernelgen` run in process."""

import fcntl
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kernelgen.cli import main
from kernelgen.scaffold import template
from tests import json_schemas, quick_copier, warm_start

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
# Where the emulator keeps what it compiled, by what went into it.
EMULATOR = ROOT / "build" / "emulator"
# Set before anything loads torch: a thread of OpenMP that waits for others then leaves its core to other tests.
# Spinning made the norms' own tests take three times as long on shared cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@dataclass(frozen=True)
class Result:
    """One run of the command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit_all(folder: Path, message: str = "work") -> None:
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)


def tree(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """The content of every file below a folder but git's, and whether it is executable. A link's is its target."""
    files = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if inside.parts[0] != ".git" and (path.is_symlink() or path.is_file()):
            content = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
            files[inside.as_posix()] = content, os.access(path, os.X_OK)
    return files


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock goes with its process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def with_sample(corpus: Iterable[T], sample: Collection[T]) -> list[Any]:
    """The cases of a corpus, to parametrize a test by: `make test` runs the sample, `make corpora` all others."""
    cases = list(corpus)
    assert set(sample) <= set(cases), f"not in the corpus: {set(sample) - set(cases)}"
    return [case if case in sample else pytest.param(case, marks=pytest.mark.corpus) for case in cases]


def make_checkout(folder: Path, *packages: str) -> Path:
    """A repository of its own with the template of this one, and these further folders, committed."""
    folder.mkdir(parents=True)
    junk = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so")
    for name in ("template", *packages):
        # The bytecode of packages comes along, for every process that imports them would compile them anew where
        # PYTHONDONTWRITEBYTECODE is set. Git ignores it.
        shutil.copytree(ROOT / name, folder / name, ignore=junk if name == "template" else None)
    # Copier takes a checkout with anything uncommitted, such as Python's caches, for another template.
    for name in ("copier.yml", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    commit_all(folder, "a template")
    return folder


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config) -> int:
    """One more than there are cores: often a worker waits for a project that another builds."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


def pytest_configure(config):
    """Has workers forked from a process that has imported torch, and from which each forks what it starts."""
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        warm_start.activate()


# Once those that `-m` leaves out are gone: the stretches below are of what will run.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = dealt(items, lambda item: item.path, lambda item: bool(item.get_closest_marker("slow")), workers)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    # What is imported meanwhile stays: searching it for garbage was a quarter of the time, in every worker.
    gc.disable()
    # As `make test` has it for kernelgen: otherwise each worker of each run compiles all tests, which takes it 2 s.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    yield
    sys.dont_write_bytecode = before
    gc.enable()


def pytest_collection_finish():
    # The tests and what they import stay. Searching for garbage there was 7 % of the time of tests/worker.
    gc.freeze()
    gc.set_threshold(*warm_start.RARE_COLLECTIONS)


def dealt(tests: Sequence[T], file_of: Callable[[T], Path], is_slow: Callable[[T], bool], workers: int) -> list[T]:
    """The order in which tests run: every worker begins with its share of the slow ones, whole files at a time.

    xdist gives each worker a stretch of this order, all of the same length. Who is through with it takes tests from the
    end of another's stretch, but never the last two: if those are slow, the others wait for them.
    """
    slow = [list(group) for _, group in groupby(filter(is_slow, tests), file_of)]
    quick = (test for test in tests if not is_slow(test))
    order: list[T] = []
    for worker in range(workers):
        order += chain.from_iterable(slow[worker::workers])
        order += islice(quick, max(0, len(tests) * (worker + 1) // workers - len(order)))
    return order


@pytest.fixture(scope="session", autouse=True)
def _isolated_environment(tmp_path_factory):
    """No test sees the settings, the caches or the identity of the user who runs it."""
    world = tmp_path_factory.mktemp("world")
    (world / "gitconfig").write_text(
        "[user]\nname = Ada Lovelace\nemail = ada@example.com\n[init]\ndefaultBranch = main\n"
        '[protocol "file"]\nallow = always\n[commit]\ngpgSign = false\n'
        # A thousand repositories need neither a dozen sample hooks nor a process that looks what could be packed.
        f"[init]\ntemplateDir = {world / 'of-repositories'}\n[maintenance]\nauto = false\n"
    )
    # All but the emulated GPU itself, which takes a minute to compile: once for all workers, and for later runs.
    (world / "of-repositories" / "info").mkdir(parents=True)
    for folder in (world / "cache" / "kernelgen", EMULATOR):
        folder.mkdir(parents=True, exist_ok=True)
    (world / "cache" / "kernelgen" / "emulator").symlink_to(EMULATOR)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(world / "gitconfig"))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        # Who copies a repository that all workers look at would meet its lock now and then.
        patch.setenv("GIT_OPTIONAL_LOCKS", "0")
        base = tmp_path_factory.getbasetemp()
        patch.setenv("KERNELGEN_TEST_RUN", str(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base))
        patch.setenv("XDG_CACHE_HOME", str(world / "cache"))
        patch.setenv("COPIER_CACHE_DIR", str(world / "copier"))
        (world / "settings.yml").write_text("{}\n")
        patch.setenv("COPIER_SETTINGS_PATH", str(world / "settings.yml"))
        patch.delenv("VIRTUAL_ENV", raising=False)
        # A script's background, nohup and many CI runners ignore Ctrl-C or a hangup, and every child inherits that.
        warm_start.activate()
        quick_copier.install(patch)
        before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGHUP, signal.SIG_DFL)
        yield
        for number, handler in zip((signal.SIGINT, signal.SIGHUP), before, strict=True):
            signal.signal(number, handler)


@pytest.fixture
def cold_start() -> Iterator[None]:
    """Workers and ops' processes of this test are started as users' are, and not as warm_start.py starts them."""
    with warm_start.cold():
        yield


def shared_folder() -> Path:
    """The folder of this run that all workers share."""
    return Path(os.environ["KERNELGEN_TEST_RUN"])


@pytest.fixture(scope="session")
def made_once() -> Callable[[str, Callable[[Path], None]], Path]:
    """A folder that one worker of this run fills and all of them use."""
    base = shared_folder()

    def made(name: str, fill: Callable[[Path], None]) -> Path:
        folder = base / name
        with locked(base / f"{name}.lock"):
            if not (base / f"{name}.filled").exists():
                assert not folder.exists(), f"{name} could not be made: see the first test that needed it"
                folder.mkdir()
                fill(folder)
                (base / f"{name}.filled").touch()
        return folder

    return made


@pytest.fixture(scope="session")
def shared_checkout(made_once) -> Path:
    """A checkout for tests that leave it as it is."""

    def fill(folder: Path) -> None:
        # Packed, since copying and cloning a thousand small files takes as long as all else in many tests.
        git(make_checkout(folder / "kernelgen-checkout"), "repack", "-adq")

    return made_once("template", fill) / "kernelgen-checkout"


@pytest.fixture
def checkout(shared_checkout, monkeypatch) -> Path:
    """The checkout that kernelgen stamps from in this test; not to be changed."""
    monkeypatch.setattr(template, "HOME", shared_checkout)
    return shared_checkout


@pytest.fixture
def own_checkout(shared_checkout, tmp_path, monkeypatch) -> Path:
    """A checkout that the test may change and commit to."""
    folder = Path(shutil.copytree(shared_checkout, tmp_path / "kernelgen-checkout"))
    monkeypatch.setattr(template, "HOME", folder)
    return folder


@pytest.fixture
def run(capsys):
    """`kernelgen` with these arguments, in process."""

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        json_schemas.check([str(argument) for argument in arguments], out)
        return Result(code, out, err)

    return call


@pytest.fixture
def stamp(run, tmp_path):
    """A new project with these first ops, in a folder of its own; its path."""

    def call(*recipes: str, name: str = "my-kernels") -> Path:
        result = run("new", tmp_path / name, "--defaults", "--data", f"recipes=[{', '.join(recipes)}]")
        assert result.code == 0, result.err
        return tmp_path / name

    return call


@pytest.fixture
def project(checkout, stamp, monkeypatch) -> Path:
    """A project with the one op `elementwise`; the test is inside it."""
    folder = stamp("elementwise")
    monkeypatch.chdir(folder)
    return folder
