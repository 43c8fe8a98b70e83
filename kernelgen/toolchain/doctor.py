"""Runs every check, side by side where they wait for other processes."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from kernelgen.errors import KernelgenError
from kernelgen.toolchain import facts
from kernelgen.toolchain.build_tools import OlderLayoutError
from kernelgen.toolchain.checks import compiler, cuda, machine, project, python
from kernelgen.toolchain.facts import Facts
from kernelgen.toolchain.finding import Finding, error


def examine(root: Path, tools: Path, chosen: Path | str, checked: project.CheckedProject | None) -> list[Finding]:
    """All findings.

    Args:
        root: the project, or the folder to check outside of one.
        tools: the folder with the build_tools to ask.
        chosen: the project's Python, or the sentence that says why there is none.
        checked: None outside of a project.
    """
    with ThreadPoolExecutor() as pool:

        def start(findings: Iterator[Finding]) -> Future[list[Finding]]:
            return pool.submit(list, findings)

        # Started first: it imports torch, which takes longer than all the rest.
        of_project = start(project.check(checked, None if isinstance(chosen, str) else chosen)) if checked else None
        gathered, python_findings = _gather(root, tools, chosen)
        others = [start(module.check(gathered)) for module in (compiler, cuda, machine)]
        project_findings = of_project.result() if of_project else []
        if gathered["torch"].value is None:  # The findings on Python say so already.
            project_findings = [finding for finding in project_findings if finding.check != "import"]
        return [*python_findings, *(finding for other in others for finding in other.result()), *project_findings]


def _gather(root: Path, tools: Path, chosen: Path | str) -> tuple[Facts, list[Finding]]:
    try:
        if isinstance(chosen, str):
            raise KernelgenError(chosen)
        gathered = facts.gather(root, tools, chosen)
    except OlderLayoutError as problem:
        return Facts(root, None, {}), [error("build_tools", str(problem), "kernelgen update", stops="cpu")]
    except KernelgenError as problem:
        cure = "python3 -m venv .venv && .venv/bin/pip install --group dev, or name another with --python"
        return Facts(root, None, {}), [error("python", str(problem), cure, stops="cpu")]
    return gathered, list(python.check(gathered))
