"""A stamped project whose builds are measured, and what it takes to compile it by hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from build_times import Time, call

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/demo_kernels")
# The kernel that is edited, of the recipe `elementwise`.
KERNEL = PACKAGE / "ops/elementwise/kernel.cu"
ALL_ARCHITECTURES = "7.5;8.0;8.6;8.9;9.0;10.0;12.0"


class Project:
    """A stamped project, and what it takes to compile it by hand."""

    def __init__(self, folder: Path, recipes: list[str], architecture: str) -> None:
        from copier import run_copy

        self.root, self.architecture = folder, architecture
        source = folder.parent / "template-copy"
        shutil.copytree(REPOSITORY / "template", source / "template")
        shutil.copy(REPOSITORY / "copier.yml", source)
        ops = [{"name": "my_op" if recipe == "blank" else recipe, "recipe": recipe} for recipe in recipes]
        ops.sort(key=lambda op: op["name"])
        run_copy(str(source), folder, data={"project_name": "demo-kernels", "ops": ops}, defaults=True, quiet=True)

    def build(self, *arguments: str, **variables: str) -> Time:
        """`kernelgen build`, as a process."""
        variables = {"TORCH_CUDA_ARCH_LIST": self.architecture, "USE_CCACHE": "0", **variables}
        variables |= {"PYTHONPATH": str(REPOSITORY), "USE_CUDA": "1"}
        command = [sys.executable, "-m", "kernelgen", "build", "--python", sys.executable, *arguments]
        return Time.of(lambda: call(command, self.root, **variables))

    def cold(self, **variables: str) -> Time:
        shutil.rmtree(self.root / "build", ignore_errors=True)
        for library in (self.root / PACKAGE).glob("*.so"):
            library.unlink()
        return self.build(**variables)

    def configuration(self) -> dict[str, Any]:
        """What the build's definition was written from and for."""
        return json.loads((self.root / "build/release/environment.json").read_text())

    def compile_seconds(self) -> dict[str, list[float]]:
        """How long each kernel's file took in the last build, by op."""
        objects = self.configuration()["objects"]
        seconds: dict[str, list[float]] = {}
        for line in (self.root / "build/release/.ninja_log").read_text().splitlines()[1:]:
            start, end, _, output, _ = line.split("\t")
            label = objects.get(output, "")
            if ".cu" in label:
                op = Path(output).relative_to("build/release").parts[0]
                seconds.setdefault(op, []).append((int(end) - int(start)) / 1000)
        return {op: sorted(times) for op, times in sorted(seconds.items())}

    def bare_commands(self) -> dict[str, str]:
        """Compiler and linker command lines by output, with the flags of the build and nothing else."""
        command = [self.configuration()["ninja"], "-f", "build/release/build.ninja", "-t", "commands"]
        lines = subprocess.check_output(command, cwd=self.root, text=True).splitlines()
        commands = {}
        for line in lines:
            line = re.sub(r"^rm -f \S+; |\$COMPILER_CACHE | -MD -MF \S+| \$\{NVCC_TIMES\S+| -Xptxas=-v", "", line)
            line = re.sub(r" --threads=\S+| 2> .*$| && mv .*$", "", line)
            output = re.search(r" -o (\S+)", line)[1]
            commands[output.removesuffix(".new")] = line.replace(f" -o {output}", " -o /dev/shm/bare.out")
        return commands

    def bare(self, *outputs: str) -> Time:
        commands = self.bare_commands()
        return Time.of(lambda: [call(commands[output], self.root) for output in outputs])

    def bare_at_once(self, *outputs: str) -> Time:
        """The same compilations, as many at once as there are cores, with nothing else done."""
        from concurrent.futures import ThreadPoolExecutor

        bare_commands = self.bare_commands()
        commands = [bare_commands[name].replace("/bare.out", f"/bare{n}.out") for n, name in enumerate(outputs)]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return Time.of(lambda: list(pool.map(lambda command: call(command, self.root), commands)))

    def edit(self, path: Path) -> None:
        with (self.root / path).open("a") as file:
            file.write(f"// {time.time_ns()}\n")
