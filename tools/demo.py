"""`make demo`: from nothing to a project with an op of its own, built and tested, by the commands that a user types."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "demo-kernels"
BIN = Path(sys.executable).parent

SOFTPLUS = '''\
import torch
from torch import Tensor


def scaled_softplus(x: Tensor, beta: float = 1.0) -> Tensor:
    """softplus(beta * x) / beta, computed without overflow."""
    y = beta * x
    return (torch.relu(y) + torch.log1p(torch.exp(-y.abs()))) / beta
'''


def step(title: str, command: list[str], folder: Path) -> float:
    """Print a command, run it with its output on the terminal, and return its seconds; exit if it fails."""
    text = " ".join(f"'{word}'" if re.search(r"[ ()]", word) else word for word in command)
    print(f"\n\033[1m{title}\033[0m\n$ {text}", flush=True)
    start = time.perf_counter()
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(BIN.parent)}
    code = subprocess.run(command, cwd=folder, env=environment, check=False).returncode
    if code:
        sys.exit(f"\n`{text}` failed with exit code {code}; its messages are above.")
    return time.perf_counter() - start


def main() -> None:
    if PROJECT.exists():
        sys.exit(f"{PROJECT.name} exists and may hold your work; if it does not: rm -rf {PROJECT.name} && make demo")
    function = ROOT / "build" / "softplus.py"
    function.parent.mkdir(exist_ok=True)
    function.write_text(SOFTPLUS)

    seconds = {
        "stamp a project": step(
            "1. A project with two ops, each with CPU and CUDA code.",
            ["kernelgen", "new", PROJECT.name, "--defaults"],
            ROOT,
        ),
        "add two ops": step(
            "2. One more op from a recipe: yours to change.",
            ["kernelgen", "add-op", "my_norm", "--recipe", "rms_norm"],
            PROJECT,
        )
        + step(
            "   And one from a PyTorch function of your own.",
            ["kernelgen", "add-op", "scaled_softplus", "--from", f"../build/{function.name}:scaled_softplus"],
            PROJECT,
        ),
        "build": step("3. Build.", ["kernelgen", "build"], PROJECT),
        "test": step("4. Test.", [str(BIN / "python"), "-m", "pytest", "-q"], PROJECT),
    }
    step("5. What there is now.", ["kernelgen", "list"], PROJECT)
    shutil.rmtree(function.parent, ignore_errors=True) if not any(function.parent.iterdir()) else function.unlink()
    account(seconds)


def account(seconds: dict[str, float]) -> None:
    cuda = (PROJECT / "src" / "demo_kernels" / "_cuda.so").exists()
    print("\n\033[1mWhat happened\033[0m")
    for name, taken in seconds.items():
        print(f"  {name:16} {taken:6.1f} s")
    print(
        f"\n  {PROJECT.name}/ is a PyTorch extension project with four tested ops, "
        + ("built for the CPU and for CUDA." if cuda else "built for the CPU (no CUDA toolkit here).")
    )
    print(
        "\n\033[1mNext\033[0m\n"
        f"  cd {PROJECT.name} && . ../.venv/bin/activate\n"
        "  $EDITOR src/demo_kernels/ops/scaled_softplus/kernel.cu     # written from the function: yours to change\n"
        "  kernelgen build                                           # seconds: only what changed is compiled\n"
        "  pytest src/demo_kernels/ops/scaled_softplus\n"
        "  less README.md                                            # the project's own documentation"
    )


if __name__ == "__main__":
    main()
