"""What pages are run in: an environment with torch and this checkout's kernelgen, and a shell in an empty folder."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm_start
from tests.conftest import make_checkout
from tests.docs.pages import Command

SCRIPT = '#!/bin/sh\nexec {python} {arguments} "$@"\n'


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> dict[str, str]:
    """The variables of a shell with kernelgen installed and a virtual environment active."""
    home = tmp_path_factory.mktemp("docs")
    checkout = make_checkout(home / "kernelgen-checkout", "kernelgen", "docs")
    # It sees the packages of the tests' own environment, so nothing is downloaded; what a page installs stays in it.
    venv.create(home / "venv", symlinks=True)
    python = home / "venv" / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.check_output([python, "-c", ask], text=True).strip()
    # As a site folder, so that packages which that environment borrows by a .pth file are there as well.
    borrow = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
    Path(packages, "docs.pth").write_text(f"{checkout}\n{borrow}\n")
    commands = {"kernelgen": warm_start.kernelgen()}
    commands |= {module: ["-m", module] for module in ("pip", "pytest")}
    for name, arguments in commands.items():
        script = home / "venv" / "bin" / name
        script.write_text(SCRIPT.format(python=shlex.quote(str(python)), arguments=shlex.join(arguments)))
        script.chmod(0o755)
    path = [home / "venv" / "bin", Path(sys.executable).parent, os.environ["PATH"]]
    return {
        **os.environ,
        "PATH": os.pathsep.join(map(str, path)),
        "VIRTUAL_ENV": str(home / "venv"),
        "TORCH_CUDA_ARCH_LIST": "9.0a",
        "PIP_NO_INDEX": "1",
        "PYTHONWARNINGS": "ignore",
    }


Step = Command | tuple[str, str]
CommandResult = tuple[Command, int, str]


@pytest.fixture
def shell(environment, tmp_path) -> Callable[..., list[CommandResult]]:
    """Runs steps in order in one shell, so that `cd` and variables last; other variables may be given.

    Returns each command that ran with its exit code and all that it printed.
    """
    folder = tmp_path / "reader"
    folder.mkdir()
    mark = "@@docs@@"

    def run(steps: list[Step], **variables: str) -> list[CommandResult]:
        script, commands = ["exec 2>&1 </dev/null"], []
        for step in steps:
            if isinstance(step, Command):
                commands.append(step)
                script += [step.text, f"docs_code=$?; printf '\\n{mark} %s\\n' $docs_code; (exit $docs_code)"]
            else:
                path, text = step
                script.append(f"cat > {shlex.quote(path)} <<'{mark}'\n{text}{mark}")
        result = subprocess.run(
            ["bash", "-c", "\n".join(script)],
            cwd=folder,
            env=environment | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        parts = result.stdout.split(f"\n{mark} ")
        outputs, codes = [parts[0]], []
        for part in parts[1:]:
            code, _, output = part.partition("\n")
            codes.append(int(code))
            outputs.append(output)
        return list(zip(commands, codes, outputs, strict=False))

    return run
