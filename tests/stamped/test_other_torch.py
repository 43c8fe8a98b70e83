"""The libraries of one build pass the project's tests under another torch, an older one and a newer one.

They install that other torch (2 to 3 GB) and therefore run only where KERNELGEN_OTHER_TORCH asks for it, by a version
such as 2.10.0; CI does.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from kernelgen.toolchain.wheel import build_wheel
from tests.stamped.conftest import ARCHITECTURES, own_tests, run
from tests.stamped.other_torch import install

VERSION = os.environ.get("KERNELGEN_OTHER_TORCH")
PACKAGE = Path("src/demo_kernels")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not VERSION, reason="installs another torch: set KERNELGEN_OTHER_TORCH=2.10.0"),
]


@pytest.fixture(scope="session")
def other_python() -> Path:
    return install(VERSION)


@pytest.fixture
def recipes(full_project, copy_of) -> Path:
    """A copy of the project with two recipes' ops alone."""
    project = copy_of(full_project)
    setup = (project / "setup.py").read_text()
    for op in (project / PACKAGE / "ops").iterdir():
        if op.is_dir() and op.name not in ("elementwise", "rms_norm"):
            shutil.rmtree(op)
            setup = re.sub(rf', "{op.name}": \[[^]]*\]', "", setup)  # No flags of an op that is not there.
    (project / "setup.py").write_text(setup)
    return project


def version(python: Path | str) -> str:
    return run([str(python), "-c", "import torch; print(torch.__version__)"], Path()).stdout.strip()


def swap_libraries(wheel_folder: Path, project: Path) -> None:
    """Puts the libraries of a wheel where those of the project's own build were."""
    for library in (project / PACKAGE).glob("_c*.so"):
        library.unlink()
    shutil.rmtree(project / "build")
    (wheel,) = wheel_folder.glob("*.whl")
    shutil.unpack_archive(wheel, wheel_folder / "unpacked", "zip")
    for library in (wheel_folder / "unpacked" / "demo_kernels").glob("_c*.so"):
        shutil.copy(library, project / PACKAGE)


@pytest.mark.parametrize("built_with_other", [False, True], ids=["built_here", "built_with_the_other"])
def test_the_libraries_pass_under_another_torch(recipes, other_python, tmp_path, built_with_other):
    own_python = Path(sys.executable)
    assert version(own_python).split("+")[0] != version(other_python).split("+")[0]
    builds, tests = (other_python, own_python) if built_with_other else (own_python, other_python)
    # The other torch may want an nvcc of another major version; its libraries need none to load.
    # The project's own architectures: what was compiled for these is up to date, so that the wheel needs only a link.
    environment = {**os.environ, "TORCH_CUDA_ARCH_LIST": ARCHITECTURES, "USE_CUDA": "0" if built_with_other else "1"}
    findings = build_wheel(recipes, builds, tmp_path / "dist", environment)
    assert not [finding for finding in findings if finding.state == "error"]
    swap_libraries(tmp_path / "dist", recipes)
    loads = (
        "from demo_kernels._library import missing; print(sorted(name for name in missing if missing[name] is None))"
    )
    backends = run([str(tests), "-c", loads], recipes, PYTHONPATH="src").stdout.strip()
    assert backends == ("['CPU']" if built_with_other else "['CPU', 'CUDA']")
    outcomes = own_tests(recipes, python=tests)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    assert [f"{outcome.op} {outcome.test}[{outcome.case}]: {outcome.message}" for outcome in failed] == []
    assert {outcome.op for outcome in outcomes if outcome.status == "passed"} >= {"elementwise", "rms_norm"}
