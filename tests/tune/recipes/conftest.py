"""A project with every recipe that has tunables, stamped once for all tests that look at them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stamped.conftest import stamp

from .survey import HOPPER, RECIPES, Surveys


@pytest.fixture(scope="module")
def project(made_once) -> Iterator[Path]:
    """All recipes with tunables, and their generated headers. Nothing is built, but they can be imported. Shared: do
    not change it, copy it."""

    def fill(folder: Path) -> None:
        ops = [{"name": recipe, "recipe": recipe} for recipe in sorted({*RECIPES, HOPPER})]
        project = stamp(folder / "project", project_name="tuned-recipes", ops=ops)
        environment = {**os.environ, "USE_CUDA": "0"}
        subprocess.run([sys.executable, "-m", "build_tools", "configure"], cwd=project, env=environment, check=True)

    project = made_once("tuned-recipes", fill) / "project"
    sys.path.insert(0, str(project / "src"))
    yield project
    sys.path.remove(str(project / "src"))


@pytest.fixture(scope="module")
def surveys(project, made_once) -> Surveys:
    return Surveys(project, made_once)
