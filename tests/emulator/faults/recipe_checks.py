"""Faults in recipes, planted outside of pytest."""

import importlib.util
import shutil
import tempfile
from pathlib import Path
from types import ModuleType

from tests.emulator.conftest import RECIPES, copy_op
from tests.emulator.faults import Fault
from tests.stamped.conftest import stamp


class Recipes:
    """A project with every recipe, stamped when it is first needed, and removed at the end."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()

    @property
    def ops(self) -> Path:
        project = Path(self._folder.name) / "p"
        if not project.exists():
            stamp(project, ops=[{"name": name, "recipe": name} for name in RECIPES])
        return project / "src" / "demo_kernels" / "ops"

    def failure(self, fault: Fault) -> str:
        """The first failure that the fault's check has, or ""."""
        from tests.emulator import test_mutants

        subject = test_mutants.FOLDERS.get(fault.subject, fault.subject)
        project = Path(self._folder.name) / "mutant"
        op = copy_op(self.ops, subject, project)
        try:
            fault.apply(op)
            return test_mutants._failure(op.parent, fault.subject, self._reference)
        finally:
            shutil.rmtree(project)

    def _reference(self, name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{name}_reference", self.ops / name / "reference.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
