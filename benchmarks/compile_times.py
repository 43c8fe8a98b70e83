"""How long each object of the recipes' kernels takes to compile: processor time, for one architecture.

    python benchmarks/compile_times.py [--architecture 9.0a] [--json FILE]

A few minutes on one core. It needs nvcc and no GPU. A `.cu` file that is instantiated several times has as many
objects, which are compiled side by side; an edit compiles all of them.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import results_file
from build import Project, Time, call

RECIPES = ["elementwise", "rms_norm", "layer_norm", "swiglu", "linear_activation", "flash_attention"]
RECIPES += ["quantize_fp8", "rms_norm_fp8", "swiglu_fp8", "linear_fp8"]
RECIPES += ["append_to_cache", "flash_attention_fp8", "flash_attention_paged", "flash_attention_varlen"]
RESULTS = Path(__file__).parent / "results" / "compile_times.json"


def rows(project: Project) -> list[dict[str, Any]]:
    """A row for each object of a `.cu` file: the recipe, the object's label, and seconds."""
    variables = {"TORCH_CUDA_ARCH_LIST": project.architecture, "USE_CCACHE": "0", "USE_CUDA": "1"}
    call([sys.executable, "-m", "build_tools", "configure"], project.root, **variables)
    configuration = project.configuration()
    measured = []
    for output, label in configuration["objects"].items():
        if ".cu" not in label:
            continue
        ninja = [configuration["ninja"], "-f", "build/release/build.ninja", "-j1", output]
        seconds = Time.of(lambda ninja=ninja: call(ninja, project.root))["cpu"]
        op = Path(output).relative_to("build/release").parts[0]
        measured.append({"op": op, "object": label, "seconds": round(seconds, 2)})
        print(f"{seconds:6.2f} s  {op} {label}", flush=True)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", default="9.0a")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = rows(Project(Path(folder) / "demo-kernels", RECIPES, options.architecture))
    nvcc = subprocess.check_output(["nvcc", "--version"], text=True).strip().splitlines()[-1]
    cpu = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    facts = {"command": "python benchmarks/compile_times.py", "architecture": options.architecture, "nvcc": nvcc}
    results_file.write(options.json, {**facts, "cpu": cpu.partition(": ")[2], "rows": measured})


if __name__ == "__main__":
    main()
