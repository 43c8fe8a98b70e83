"""What `doctor` and `env` examine: a project and its Python or, outside a project, this machine alone."""

import argparse
import shlex
from dataclasses import dataclass
from pathlib import Path

from kernelgen.cli.parser import Parser
from kernelgen.errors import KernelgenError, UsageError
from kernelgen.toolchain.checks.project import CheckedProject
from kernelgen.toolchain.finding import Finding, error


@dataclass(frozen=True)
class Target:
    """What to examine.

    Args:
        root: the project, or the folder that --project names.
        tools: the folder that holds the build_tools to call.
        python: the project's Python, or a sentence that says why there is none.
        checked: what doctor checks of the project; None outside of one.
        problems: findings about the project's record.
    """

    root: Path
    tools: Path
    python: Path | str
    checked: CheckedProject | None
    problems: list[Finding]


def add_options(parser: Parser) -> None:
    parser.add_project()
    parser.add_python()


def find(options: argparse.Namespace, scratch: Path) -> Target:
    """The project that the options name or, outside one, a stand-in for its build_tools, written to `scratch`.

    Raises:
        KernelgenError: --project names no project; or kernelgen's installation is damaged.
    """
    from kernelgen.scaffold import project, template

    here = options.project.resolve()
    if not here.exists():
        raise UsageError(f"There is no folder {options.project}; name the project with --project.")
    projects = [folder for folder in (here, *here.parents) if (folder / template.ANSWERS_FILE).is_file()]
    if not projects and options.project != Path():
        project.find(here)
    root, checked, problems = (projects or [here])[0], None, []
    if projects:
        try:
            home = project.find(here)
            checked = CheckedProject(root, home.package, [op["name"] for op in home.ops])
        except project.MissingPackageError as problem:
            problems.append(error("project", str(problem), f"git -C {shlex.quote(str(root))} status", stops="cpu"))
        except KernelgenError as problem:
            cure = f"git -C {shlex.quote(str(root))} checkout -- {template.ANSWERS_FILE}"
            problems.append(error("project", str(problem), cure))
    tools = root if projects else _stand_in(scratch)
    return Target(root, tools, _python(root, options.python), checked, problems)


def _python(root: Path, chosen: Path | None) -> Path | str:
    from kernelgen.toolchain.python import find_python

    try:
        return find_python(root, chosen)
    except UsageError:
        raise
    except KernelgenError as problem:
        return str(problem)


def _stand_in(scratch: Path) -> Path:
    """The template's setup.py and build_tools, rendered: they find on this machine what a project's own would."""
    from kernelgen.scaffold import render, template

    rendered = render.Renderer(template.installed().folder, {"ops": []}, "kernelgen").everything()
    (scratch / "build_tools").mkdir()
    for path, file in rendered.items():
        if path == "setup.py" or path.startswith("build_tools/"):
            (scratch / path).write_bytes(file.content)
    return scratch
