"""`kernelgen doctor`."""

import argparse
import json
import tempfile
from pathlib import Path

from kernelgen.cli import target
from kernelgen.cli.parser import Parser
from kernelgen.errors import KernelgenError
from kernelgen.toolchain.finding import Finding, builds, exit_code, table

_CODES = """exit codes:
  0  a CPU and a CUDA build would both succeed
  1  not even a CPU build would, or what --fix ran failed
  2  wrong usage
  3  a CPU build would succeed, and a CUDA build would not"""
_SUMMARY = {
    0: "A CPU and a CUDA build would succeed.",
    1: "No build would succeed.",
    3: "A CPU build would succeed, a CUDA build would not.",
}


def run(arguments: list[str]) -> int:
    parser = Parser("doctor", "Check what a build needs here: what is wrong, and what cures it.")
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, _CODES
    target.add_options(parser)
    text = "install what pip can (Ninja, setuptools, a CUDA toolkit that matches torch), and mend the record of ops"
    parser.add_argument("--fix", action="store_true", help=text)
    parser.add_json()
    options = parser.parse_args(arguments)

    with tempfile.TemporaryDirectory() as scratch:
        examined = target.find(options, Path(scratch))
        mended = _mend(examined.root) if options.fix and examined.checked else []
        if mended:
            examined = target.find(options, Path(scratch))
        findings, installed = _examine(examined, options.fix)
    if options.json:
        listed = [finding.as_dict() for finding in findings]
        facts = {"builds": builds(findings), "installed": installed, "findings": listed}
        print(json.dumps(facts | ({"mended": mended} if mended else {})))
    else:
        print(table(findings))
        print("".join(f"\n{sentence}" for sentence in mended), end="\n" if mended else "")
        if options.fix and not installed and not mended:
            print("\nThere is nothing here that --fix could install; see the cures above.")
        print(f"\n{_SUMMARY[exit_code(findings)]}")
    return exit_code(findings)


def _mend(root: Path) -> list[str]:
    """Bring the record of ops together with their folders; returns what was changed."""
    from kernelgen.scaffold import mend, project

    with project.writing(root) as home:
        try:
            plan, sentences = mend.mend(home)
        except KernelgenError as problem:
            # The rest of the examination needs no template.
            return [f"The record of ops is as it was: {problem}"]
        plan.apply()
    return sentences


def _examine(examined: target.Target, fix: bool) -> tuple[list[Finding], list[str]]:
    """The findings, with `fix` after installing the packages that cure them; and the packages installed."""
    from kernelgen.toolchain import doctor, packages

    def examine() -> list[Finding]:
        return [
            *examined.problems,
            *doctor.examine(examined.root, examined.tools, examined.python, examined.checked),
        ]

    findings = examine()
    missing = list(dict.fromkeys(name for finding in findings for name in finding.packages))
    if not fix or not missing or isinstance(examined.python, str):
        return findings, []
    packages.install(examined.python, missing)
    return examine(), missing
