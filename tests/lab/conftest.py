"""A stamped project whose CPU library is built, once for all tests of the lab's commands."""

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.conftest import commit_all, locked
from tests.stamped.conftest import CACHE, build, quickly, stamp, template_hash

# Smaller than any that is worth measuring: these tests ask what is said, not how fast anything is.
SMALL = """
CASES = CPU_CASES = {"small": {"rows": 64, "columns": 64}, "odd": {"rows": 31, "columns": 33}}
BENCH_DTYPES = (torch.float32,)
PEERS = {"torch": REFERENCE}
"""


@pytest.fixture(scope="session")
def built_project() -> Path:
    """Holds `elementwise`, with small cases. Shared: do not change it, copy it (`lab_project`)."""
    folder = CACHE.parent / "lab"
    home = folder / hashlib.sha256(f"{template_hash()} {SMALL}".encode()).hexdigest()[:16]
    with locked(folder / "lock"):
        if not (home / "built").exists():
            shutil.rmtree(folder / "unfinished", ignore_errors=True)
            for old in folder.glob("????????????????"):
                shutil.rmtree(old)
            root = stamp(folder / "unfinished" / "lab-kernels", project_name="lab-kernels", recipes=["elementwise"])
            with (root / "src" / "lab_kernels" / "ops" / "elementwise" / "lab.py").open("a") as lab:
                lab.write(SMALL)
            (folder / "unfinished").rename(home)
            result = build(home / "lab-kernels", USE_CUDA="0", **quickly("-O1"))
            assert result.returncode == 0, result.stdout + result.stderr
            (home / "built").touch()
    return home / "lab-kernels"


@pytest.fixture
def lab_project(built_project, tmp_path, monkeypatch) -> Path:
    """A copy of it in a repository of its own, committed; the test is inside it."""
    root = Path(shutil.copytree(built_project, tmp_path / "lab-kernels", symlinks=True))
    commit_all(root)
    monkeypatch.chdir(root)
    for name, value in {"USE_CUDA": "0", **quickly("-O1")}.items():
        monkeypatch.setenv(name, value)
    return root
