"""`kernelgen tune --dry-run --chip` for several GPUs that are not here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.tune.device_limits import DEVICE_LIMITS
from tests.stamped.conftest import REPOSITORY, stamp

LAB = Path("src/demo_kernels/ops/swiglu/lab.py")
# Of four points, one too large for a multiprocessor; another space on 9.0, and none on 7.5. Each estimate is counted.
CHANGES = """

def _estimate(values, dtype, **sizes):
    with open("estimates.txt", "a") as file:
        file.write(f"{dict(values)}\\n")
    return {"threads": 128, "shared": 1024 * values["kib"]}


TUNABLES = {"cuda 7.5": {}, "cuda": {"kib": (1, 2, 60, 200)}, "cuda 9.0": {"kib": (1, 300)}}
ESTIMATES = {"cuda": _estimate, "cuda 9.0": _estimate}
UNTUNED = SHAPE_CLASSES = {}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    project = stamp(tmp_path_factory.mktemp("chips") / "project", ops=[{"name": "swiglu", "recipe": "swiglu"}])
    (project / LAB).open("a").write(CHANGES)
    return project


def dry_run(project: Path, chips: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelgen", "tune", "swiglu", "--dry-run", "--chip", chips, *more]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_a_dry_run_shows_the_spaces_on_all_chips_and_asks_for_equal_estimates_once(project):
    result = dry_run(project, "all", "--json")
    assert result.returncode == 0, result.stderr
    answers = {answer["chip"]: answer for answer in json.loads(result.stdout)["chips"]}
    assert list(answers) == list(DEVICE_LIMITS)
    assert "has nothing to tune" in answers.pop("7.5")["error"]
    kept = {chip: answer["classes"][0]["kept"] for chip, answer in answers.items()}
    # 60 KiB leave room for one block, too few warps, where a multiprocessor has 100.
    few = {"8.6": 2, "8.9": 2, "12.0": 2, "12.1": 2}
    assert {chip: count for chip, count in kept.items() if count != 3} == {"9.0": 1, **few}
    assert {answer["points"] for chip, answer in answers.items() if chip != "9.0"} == {4}
    cases = {len(answer["classes"][0]["cases"]) for answer in answers.values()}
    lines = (project / "estimates.txt").read_text().splitlines()
    # The two spaces have a point in common.
    assert len(lines) == (4 + 2 - 1) * cases.pop()
    # Which would take minutes.
    assert not (project / "build" / "tune").exists()


def test_chips_are_named_with_what_the_gates_reject(project):
    result = dry_run(project, "7.5,8.9,9.0a")
    assert result.returncode == 0, result.stderr
    assert "swiglu on 7.5: swiglu has nothing to tune for cuda" in result.stdout
    assert "swiglu on 8.9: 4 points\n" in result.stdout
    assert f"such as {200 * 1024} bytes of shared memory a block" in result.stdout
    assert "swiglu on 9.0a: 2 points\n" in result.stdout


def test_a_chip_that_is_not_known_is_refused(project):
    result = dry_run(project, "8.0,6.0")
    assert result.returncode == 3
    assert "--chip 6.0 is not known; known are 7.5, 8.0, " in result.stderr
