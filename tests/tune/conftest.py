"""A project whose op has a planted optimum, and values with which it crashes, hangs, is wrong or does not compile."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.tune.candidates import CandidateCompiler
from tests.conftest import Result
from tests.stamped.conftest import REPOSITORY, edit, quickly, stamp

OP = Path("src/demo_kernels/ops/elementwise")

MODES = """    tuned::elementwise::visit<Defaults>([&](auto values) {
      using Tuned = decltype(values);
      static_assert(Tuned::mode != 4, "mode 4 is none");
      if constexpr (Tuned::mode == 1) std::abort();
      if constexpr (Tuned::mode == 2) sleep(1000);
      for (int i = 0; i < Tuned::work; ++i)
"""
WRONG = "      if (Tuned::mode == 3 && out.numel() > 0) dtypes::mutable_data<T>(out)[0] = T(12345.0f);\n"

LAB = """
# The tunables of the tests.
TUNABLES = {"cpu": {"work": (1, 2, 16, 20, 24), "mode": (0, 1, 2, 3, 4)}}
"""
GOOD_MODES = '"mode": (0,)'
ESTIMATES = """

def _cpu_estimate(values, dtype, rows, columns):
    return f"{values['work']} times the work" if values["work"] > 16 else {"threads": 32}


ESTIMATES = {"cpu": _cpu_estimate}
"""


@pytest.fixture(scope="session")
def planted_once(made_once) -> Path:
    """The project, with candidates in its cache. Its default does the work 16 times, and one case is measured:
    so far from the optimum that no other work on the machine hides it.

    Shared: do not change it.
    """

    def make(folder: Path) -> None:
        project = plant(folder / "demo")
        with pytest.MonkeyPatch.context() as patch:
            compile_quickly(patch)
            compiler = CandidateCompiler(project, Path(sys.executable), "elementwise", "cpu", ["work", "mode"])
            compiler.prepare()
            for work in (1, 2, 16, 20, 24):
                compiler.compile({"work": work, "mode": 0})

    return made_once("planted", make) / "demo"


def compile_quickly(patch: pytest.MonkeyPatch) -> None:
    """For candidates that differ by work that is planted, and not by what an optimiser makes of it."""
    for name, value in quickly("-O1").items():
        patch.setenv(name, value)


def plant(folder: Path) -> Path:
    project = stamp(folder, ops=[{"name": "elementwise", "recipe": "elementwise"}])
    edit(
        project / OP / "tuning.h",
        ("  static constexpr int chunk", "  static constexpr int work = 16, mode = 0;\n  static constexpr int chunk"),
    )
    edit(
        project / OP / "cpu.cpp",
        ("#include <type_traits>\n", "#include <unistd.h>\n\n#include <cstdlib>\n#include <type_traits>\n"),
        ("    tuned::elementwise::visit<Defaults>([&](auto values) {\n", MODES),
        ("    });\n  });\n  return out;", f"{WRONG}    }});\n  }});\n  return out;"),
    )
    lab = project / OP / "lab.py"
    lab.write_text(
        lab.read_text().replace("BENCH_DTYPES = (torch.float32, torch.bfloat16)", "BENCH_DTYPES = (torch.float32,)")
        + LAB
        + 'CPU_CASES = {"small": {"rows": 64, "columns": 1024}}\n'
    )
    return project


@pytest.fixture
def planted(planted_once, tmp_path, monkeypatch) -> Path:
    """A copy of it; the test is inside."""
    project = Path(shutil.copytree(planted_once, tmp_path / "demo"))
    monkeypatch.chdir(project)
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    compile_quickly(monkeypatch)
    return project


@pytest.fixture
def steady(planted) -> Path:
    """The same, with modes that work alone."""
    edit(planted / OP / "lab.py", ('"mode": (0, 1, 2, 3, 4)', GOOD_MODES))
    return planted


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "kernelgen", "tune", "elementwise", "--device", "cpu", *map(str, arguments)]


def variables() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "VIRTUAL_ENV": sys.prefix, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def tune():
    """`kernelgen tune elementwise` on the CPU, as a process of its own; in the folder where the test is."""

    def call(*arguments: object) -> Result:
        result = subprocess.run(command(*arguments), env=variables(), capture_output=True, text=True, check=False)
        assert "Traceback" not in result.stderr, result.stderr
        return Result(result.returncode, result.stdout, result.stderr)

    return call
