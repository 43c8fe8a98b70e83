"""Which kernels of the recipes spill registers, for every GPU that they are compiled for.

    python benchmarks/spills.py --project DIR [--architectures LIST] [--recipes NAME ...]

It needs nvcc and no GPU, and takes about an hour on one core for all. DIR keeps what is compiled: a run that was cut
off goes on there. It prints a line for each object, with the seconds of processor time that it took for all of the
architectures, and fails if a kernel spills. `kernelgen build --resources` shows the same for a project of your own.
"""

import argparse
import sys
from pathlib import Path

from build import Project, Time, call
from compile_times import RECIPES
from kernelgen.toolchain import resources

ARCHITECTURES = "7.5;8.0;8.6;8.9;9.0a;10.0;12.0"


def stamped(folder: Path, recipes: list[str], architectures: str) -> Project:
    """The project in a folder, stamped there unless it is already."""
    project = Project.__new__(Project) if (folder / "setup.py").exists() else Project(folder, recipes, architectures)
    project.root, project.architecture = folder, architectures
    return project


def spills_of(project: Project, output: str, label: str) -> list[str]:
    """Compiles an object. A line for each of its kernels that spills."""
    configuration = project.configuration()
    command = [configuration["ninja"], "-f", "build/release/build.ninja", "-j1", output]
    seconds = Time.of(lambda: call(command, project.root))["cpu"]
    kernels = resources.parse(label, (project.root / f"{output}.txt").read_text())
    print(f"{len(kernels):4} kernels {seconds:7.2f} s  {label}", flush=True)
    return [
        f"{kernel.spill_stores} + {kernel.spill_loads} bytes, {kernel.registers} registers, on {kernel.architecture}: "
        f"{kernel.name}"
        for kernel in resources.demangled(kernels)
        if kernel.spill_stores or kernel.spill_loads
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, required=True, metavar="DIR")
    parser.add_argument("--architectures", default=ARCHITECTURES)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, choices=RECIPES, metavar="NAME")
    options = parser.parse_args()
    project = stamped(options.project, options.recipes, options.architectures)
    variables = {"TORCH_CUDA_ARCH_LIST": options.architectures, "USE_CCACHE": "0", "USE_CUDA": "1"}
    call([sys.executable, "-m", "build_tools", "configure"], project.root, **variables)
    spills = []
    for output, label in project.configuration()["objects"].items():
        if resources.is_kernel_object(output):
            for line in spills_of(project, output, label):
                print(f"      {line}", flush=True)
                spills.append(line)
    sys.exit(f"{len(spills)} kernels spill" if spills else 0)


if __name__ == "__main__":
    main()
