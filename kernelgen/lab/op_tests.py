"""Runs the tests in an op's folder for a verdict."""

import os
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

from kernelgen.lab import trusted_tests
from kernelgen.lab.selection import Selection
from kernelgen.lab.step import FAILED, OPEN, PASSED, Step
from kernelgen.lab.trust import WORKING_TREE, trusted

MOST_NAMED = 3
_CONFINED = (
    "import sys; sys.path[0] = sys.argv[1]; from pathlib import Path; "
    "from kernelgen.cores import usable_cores; from kernelgen.worker.confinement import confine; "
    "sys.platform == 'linux' and confine(Path(sys.argv[2])); sys.path[0] = ''; import importlib.util, pytest; "
    "more = ['-n', '4'] if usable_cores() >= 8 and importlib.util.find_spec('xdist') else []; "
    "sys.exit(pytest.main(sys.argv[3:] + more))"
)
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]


class OpTests:
    """The tests in the op's folder, which run in a process of their own until the context ends; those of the revision
    `trust`, if there is one. They run code of the op beside its judge: like the op's process they can write to scratch
    and caches alone, where Linux can refuse it."""

    def __init__(self, selection: Selection, trust: str | None = None) -> None:
        self._selection, self._trust, self._stack = selection, trust, ExitStack()
        self._scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._file, self._output = self._scratch / "tests.xml", self._scratch / "output.txt"
        self._changed: list[str] = []
        root = selection.root
        if trust not in (None, WORKING_TREE):
            root = self._linked(self._stack.enter_context(trusted(selection.root, trust)))
        folder = root / "src" / selection.package / "ops" / selection.ops[0]
        command = [str(selection.python), "-c", _CONFINED, str(_PACKAGE_PARENT), str(self._scratch)]
        command += ["-q", "--no-build", "-p", "no:cacheprovider", f"--junitxml={self._file}", str(folder)]
        scratch = dict.fromkeys(("TMPDIR", "HYPOTHESIS_STORAGE_DIRECTORY"), str(self._scratch))
        variables = {**os.environ, **scratch, "PYTHONDONTWRITEBYTECODE": "1"}
        with self._output.open("w") as output:
            self._process = subprocess.Popen(command, cwd=root, stdout=output, stderr=subprocess.STDOUT, env=variables)

    def _linked(self, rule: Path) -> Path:
        """The project with the tests of a rule; its changes since are noted."""
        root, package, op = self._selection.root, self._selection.package, self._selection.ops[0]
        folder = self._scratch / "project"
        folder.mkdir()
        trusted_tests.link(folder, root, rule, package, op)
        self._changed = trusted_tests.changes(root, rule, package, op)
        return folder

    def __enter__(self) -> "OpTests":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()
        self._stack.close()

    def step(self) -> Step:
        """Waits for them."""
        self._process.wait()
        if not self._file.is_file():
            last = self._output.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
            return Step("tests", OPEN, f"pytest did not run: {last[0]}")
        step = step_of(ElementTree.parse(self._file).getroot())
        if self._changed:
            more = f" and {len(self._changed) - MOST_NAMED} more" if len(self._changed) > MOST_NAMED else ""
            changed = f"{', '.join(self._changed[:MOST_NAMED])}{more}"
            step.text += f"; by the tests of {self._trust}, since which {changed} changed"
        return step


def step_of(root: ElementTree.Element) -> Step:
    cases = list(root.iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    counts = {
        "passed": len(cases) - len(failed) - skipped,
        "skipped": skipped,
        "failed": [c.get("name") for c in failed],
    }
    if failed:
        names = ", ".join(str(case.get("name")) for case in failed[:MOST_NAMED])
        more = f" and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
        reason = next((str(part.get("message")) for part in failed[0] if part.get("message")), "")
        text = f"{len(failed)} of {len(cases)} failed: {names}{more}"
        first = reason.strip().splitlines()[:1]
        return Step("tests", FAILED, "\n".join([text, *first]), facts=counts)
    if not counts["passed"]:
        return Step("tests", OPEN, f"no test ran; {skipped} were skipped", facts=counts)
    return Step("tests", PASSED, f"{counts['passed']} passed, {skipped} skipped", facts=counts)
