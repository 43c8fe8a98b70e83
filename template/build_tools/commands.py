"""The build as setuptools commands: what `pip install`, `pip wheel` and `python setup.py …` run."""

from __future__ import annotations

import shutil
from pathlib import Path

import setuptools
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

from . import build, messages
from .project import Project

from distutils.command.clean import clean  # isort: skip  (setuptools brings it where Python does not)

OLDEST_SETUPTOOLS = 77
# In wheels: what the kernels were compiled for, such as 9.0a or 9.0+PTX, an architecture a line.
ARCHITECTURES = "_cuda.architectures"
SOURCE_SUFFIXES = (".cpp", ".cu", ".cuh", ".h", ".json")


def setup(project: Project) -> None:
    """Runs the setuptools command that the command line names; pyproject.toml holds the metadata."""
    version = setuptools.__version__
    if int(version.split(".")[0]) < OLDEST_SETUPTOOLS:
        raise SystemExit(
            f"{project.package}: setuptools {version} is too old; get another with "
            f"`pip install --upgrade 'setuptools>={OLDEST_SETUPTOOLS}'`."
        )
    classes = {"build_ext": BuildNative, "build_py": BuildPython, "clean": CleanNative}
    setuptools.setup(
        # An extension without sources: setuptools compiles nothing, and tags the wheel for a platform.
        ext_modules=[setuptools.Extension(f"{project.package}._native", sources=[])],
        cmdclass={name: type(name, (command,), {"project": project}) for name, command in classes.items()},
        # One wheel for every CPython from 3.10 on: the libraries hold no Python at all.
        options={"bdist_wheel": {"py_limited_api": "cp310"}},
    )


class BuildNative(build_ext):
    """Builds in place, then copies the libraries to where a wheel is put together, with a list of their GPUs."""

    project: Project
    libraries_built: tuple[Path, ...] = ()

    def run(self) -> None:
        try:
            configuration = build.build_project(self.project, messages.printer(self.project.package))
        except (messages.BuildError, OSError) as error:
            raise SystemExit(f"{self.project.package}: {messages.sentence(error)}") from None
        self.libraries_built = tuple(map(Path, configuration.libraries))
        if not (self.inplace or getattr(self, "editable_mode", False)):
            for library, copy in zip(self.libraries_built, self.get_outputs()):
                Path(copy).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(library, copy)
            listed = Path(self.build_lib) / self.project.package / ARCHITECTURES
            listed.unlink(missing_ok=True)
            if configuration.architectures:
                listed.write_text("\n".join(configuration.architectures) + "\n", encoding="utf-8")

    def get_outputs(self) -> list[str]:
        return [str(Path(self.build_lib) / self.project.package / path.name) for path in self.libraries_built]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        """What a source distribution carries besides what MANIFEST.in names."""
        return [str(path) for path in self.project.source.rglob("*") if path.suffix in SOURCE_SUFFIXES]


class BuildPython(build_py):
    """Leaves out of wheels what only a developer needs."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        modules = super().find_package_modules(package, package_dir)
        return [module for module in modules if not module[1].startswith("test_") and module[1] != "lab"]


class CleanNative(clean):
    """Removes what builds wrote, too."""

    project: Project

    def run(self) -> None:
        super().run()
        build.clean(self.project, messages.printer(self.project.package))
