"""Verbs as processes of their own, with the template of the test that runs them."""

import os
import subprocess
import sys

from kernelgen.scaffold import template
from tests.conftest import ROOT

# Only a process that hangs takes so long, however busy the machine is.
LIMIT_S = 600


def kernelgen(*arguments: str, **options) -> subprocess.Popen:
    """`kernelgen` as a process, with the template of this test."""
    code = (
        "import sys; from pathlib import Path; from kernelgen.scaffold import template; "
        "template.HOME = Path(sys.argv.pop(1)); from kernelgen.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, str(template.HOME), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | options.pop("env", {})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.Popen(command, env=environment, **pipes)
