"""`kernelgen doctor`."""

import argparse
import json
import tempfile
from pathlib import Path

from kernelgen.cli import patient
from kernelgen.cli.parser import Parser
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
    patient.add_options(parser)
    text = "install what pip can: Ninja, setuptools, a CUDA toolkit that matches torch"
    parser.add_argument("--fix", action="store_true", help=text)
    parser.add_json()
    options = parser.parse_args(arguments)

    with tempfile.TemporaryDirectory() as scratch:
        findings, installed = _examine(patient.find(options, Path(scratch)), options.fix)
    if options.json:
        found = [finding.as_dict() for finding in findings]
        print(json.dumps({"builds": builds(findings), "installed": installed, "findings": found}))
    else:
        print(table(findings))
        if options.fix and not installed:
            print("\nThere is nothing here that --fix could install; see the cures above.")
        print(f"\n{_SUMMARY[exit_code(findings)]}")
    return exit_code(findings)


def _examine(found: patient.Patient, fix: bool) -> tuple[list[Finding], list[str]]:
    """The findings, after installing whatever cures them if that is wanted; and what was installed."""
    from kernelgen.toolchain import doctor, packages

    def examine() -> list[Finding]:
        return [*found.problems, *doctor.examine(found.root, found.tools, found.python, found.subject)]

    findings = examine()
    wanted = list(dict.fromkeys(name for finding in findings for name in finding.packages))
    if not fix or not wanted or isinstance(found.python, str):
        return findings, []
    packages.install(found.python, wanted)
    return examine(), wanted
