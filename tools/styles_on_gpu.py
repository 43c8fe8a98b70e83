"""Compares a GPU with the emulated one on the ten kernels of tests/emulator/styles.

    python tools/styles_on_gpu.py [--out DIR] [--only STYLE ...] [--build-only]

nvcc builds each kernel as it is; the GPU and the emulated GPU solve the same problems. Printed are, for each result,
the largest difference between the two, relative to max(|GPU's|, 1), or that they agree to the bit. The exit code counts
the kernels that are wrong on either.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.emulator.conftest import Memory  # noqa: E402
from tests.emulator.faults.plant import compile_style  # noqa: E402
from tests.emulator.styles import STYLES, Problem, Style  # noqa: E402
from tests.emulator.styles.hardware import compile_for_gpu  # noqa: E402

LIMIT_S = 300


def main() -> int:
    options = _options()
    architecture = "sm_90a" if options.build_only else _architecture()
    wrong = 0
    for name in options.only or STYLES:
        style = STYLES[name]
        if int(architecture.removeprefix("sm_").rstrip("a")) < style.capability:
            print(f"{name:24} needs {style.architecture}")
            continue
        library = options.out / f"{name}.so"
        compile_for_gpu(style.source.read_text(), architecture, library)
        if options.build_only:
            print(f"{name:24} built")
        else:
            wrong += not _compared(style, library)
    return wrong


def _architecture() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def _compared(style: Style, library: Path) -> bool:
    saved = library.with_suffix(".pt")
    module = [sys.executable, "-m", "tests.emulator.styles.hardware"]
    command = [*module, str(library), style.name, "--save", str(saved)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if process.returncode:
        print(f"{style.name:24} WRONG on the GPU: {(process.stdout + process.stderr).strip()[-300:]}")
        return False
    kernel = compile_style(style)
    for problem, results in zip(style.problems(Memory()), torch.load(saved), strict=True):
        kernel(style.function, *problem.arguments, capability=style.capability)
        problem.check()
        print(f"{style.name:24} {_difference(problem, results)}")
    return True


def _difference(problem: Problem, on_gpu: dict[str, torch.Tensor]) -> str:
    emulated, on_gpu = problem.arranged(problem.results), problem.arranged(on_gpu)
    parts = []
    for name, result in on_gpu.items():
        error = (emulated[name].double() - result.double()).abs() / result.double().abs().clamp(min=1)
        same = torch.equal(emulated[name], result)
        parts.append(f"{name}: {'the same bits' if same else f'differs by {error.max():.1e}'}")
    return ", ".join(parts)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu" / "styles", help="default: build/gpu/styles")
    parser.add_argument("--only", nargs="+", default=[], metavar="STYLE", choices=STYLES)
    parser.add_argument("--build-only", action="store_true", help="compile with nvcc for sm_90a; needs no GPU")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
