"""Compares a GPU with the emulated one on small generated kernels, a few instructions each.

    python tools/against_gpu.py [--seed N] [--only FAMILY ...] [--out DIR] [--jobs N] [--build-only]

Both run the same sources on the same operands (tests/emulator/instructions). Results must agree to the bit where PTX
defines the bits, else within the error that it documents. Printed are counts for each family, and each difference with
the instruction, the operands and both results. The exit code is 1 if a case differs.
"""

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kernelgen.emulator import compiler  # noqa: E402
from kernelgen.emulator.compile import compile_kernel  # noqa: E402
from kernelgen.emulator.link import link  # noqa: E402
from kernelgen.emulator.runtime import device_objects  # noqa: E402
from tests.emulator.instructions import PRELUDE, Case, cases  # noqa: E402
from tests.emulator.instructions.families import FAMILIES  # noqa: E402
from tests.emulator.instructions.run import FAULT  # noqa: E402

LIMIT_S = 300
MOST_WORDS = 6


def main() -> int:
    options = _options()
    families = [family for family in FAMILIES if family.__name__ in (options.only or _names())]
    every = cases(options.seed, families)
    if options.capability < 90:
        every = [case for case in every if case.capability <= options.capability]
    options.out.mkdir(parents=True, exist_ok=True)
    count = min(options.jobs, len(every))
    chunks = [Chunk(options.out / f"chunk{i}", every[i::count], options.capability) for i in range(count)]
    began = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        tasks: list[Callable[[], None]] = [chunk.build_emulated for chunk in chunks if not options.gpu_only]
        tasks += [chunk.build_for_gpu for chunk in chunks if not options.emulated_only]
        device_objects(compiler.find())
        list(pool.map(lambda task: task(), tasks))
        print(f"built {len(every)} kernels in {time.monotonic() - began:.0f} s", flush=True)
        if options.build_only:
            return 0
        if not options.gpu_only:
            list(pool.map(Chunk.run_emulated, chunks))
        if not options.emulated_only:
            list(pool.map(Chunk.run_on_gpu, chunks))
    return _report(chunks, emulated_only=options.emulated_only)


class Chunk:
    """Cases that share a source and a library."""

    def __init__(self, stem: Path, chosen: list[Case], capability: int) -> None:
        self.stem, self.cases, self.capability = stem, chosen, capability
        self.source = stem.with_suffix(".cu")
        self.source.write_text(PRELUDE + "".join(case.source for case in chosen))
        torch.save([(case.name, case.inputs, case.size) for case in chosen], stem.with_suffix(".cases"))

    def results_of(self, side: str) -> Path:
        return self.stem.with_suffix(f".{side}.pt")

    def build_for_gpu(self) -> None:
        number = f"{self.capability}" + ("a" if self.capability >= 90 else "")
        # -arch=sm_90a alone may also assemble for compute_90, which has no wgmma.
        architecture = f"arch=compute_{number},code=sm_{number}"
        flags = ["-std=c++17", "-gencode", architecture, "-w", "-shared", "-Xcompiler", "-fPIC"]
        command = ["nvcc", *flags, "-o", str(self.stem.with_suffix(".gpu.so")), str(self.source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"nvcc refuses {self.source}:\n{(done.stdout + done.stderr)[-4000:]}")

    def build_emulated(self) -> None:
        tools = compiler.find()
        target = self.stem.with_suffix(".emulated.o")
        compile_kernel(tools, self.source, target, [f"-DEMULATED_CUDA_ARCH={10 * self.capability}"])
        link(tools.command, self.stem.with_suffix(".emulated.so"), [str(target), *map(str, device_objects(tools))])

    def run_emulated(self) -> None:
        self.results_of("emulated").unlink(missing_ok=True)
        self._run("emulated", ["--emulated", str(self.capability)])

    def run_on_gpu(self) -> None:
        self.results_of("gpu").unlink(missing_ok=True)
        while self._run("gpu", []):  # After a fault, the rest in a new process.
            pass

    def _run(self, side: str, further: list[str]) -> int:
        module = [sys.executable, "-m", "tests.emulator.instructions.run"]
        library, listed = self.stem.with_suffix(f".{side}.so"), self.stem.with_suffix(".cases")
        command = [*module, str(library), str(listed), str(self.results_of(side)), *further]
        done = subprocess.run(command, cwd=ROOT, check=False, timeout=LIMIT_S)
        if done.returncode not in (0, FAULT):
            raise SystemExit(f"the process that runs {library} ended with {done.returncode}")
        return done.returncode


def _report(chunks: list[Chunk], *, emulated_only: bool) -> int:
    agreeing, differing = Counter[str](), Counter[str]()
    for chunk in chunks:
        emulated = torch.load(chunk.results_of("emulated"))
        on_gpu = {} if emulated_only else torch.load(chunk.results_of("gpu"))
        for case in chunk.cases:
            result = emulated[case.name]
            if emulated_only:
                text = result if isinstance(result, str) else ""
            else:
                text = _difference(case, on_gpu[case.name], result)
            (differing if text else agreeing)[case.family] += 1
            if text:
                print(f"{case.family}: {case.instruction}\n    {text}")
    for family in sorted({*agreeing, *differing}):
        total = agreeing[family] + differing[family]
        print(f"{family:16} {agreeing[family]:4} of {total:4} agree")
    print(f"{'all':16} {agreeing.total():4} of {agreeing.total() + differing.total():4} agree")
    return 1 if differing else 0


def _difference(case: Case, on_gpu: torch.Tensor | str, emulated: torch.Tensor | str) -> str:
    """How the results differ; empty if they agree, or if both stop."""
    if isinstance(on_gpu, str) and isinstance(emulated, str):
        return ""
    if isinstance(on_gpu, str) or isinstance(emulated, str):
        both = [result if isinstance(result, str) else "results" for result in (on_gpu, emulated)]
        return f"the GPU: {both[0]}; the emulated GPU: {both[1]}"
    apart = case.agreement.differ(emulated, on_gpu).nonzero().flatten().tolist()
    if not apart:
        return ""
    thread, word = divmod(apart[0], case.results)
    words = len(case.words) // (case.threads * case.blocks)
    given = " ".join(
        f"{value % 2**64:#x}" for value in case.words[thread * words : thread * words + MOST_WORDS][:words]
    )
    show = case.agreement.show
    return (
        f"{len(apart)} of {len(on_gpu)} results differ ({case.agreement.name}); thread {thread}, result {word}, "
        f"operands {given}: the GPU {show(int(on_gpu[apart[0]]))}, the emulated GPU {show(int(emulated[apart[0]]))}"
    )


def _names() -> list[str]:
    return [family.__name__ for family in FAMILIES]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="chooses the operands, and some of the instructions (0)")
    parser.add_argument("--only", nargs="+", default=[], metavar="FAMILY", choices=_names())
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu" / "instructions")
    parser.add_argument("--jobs", type=int, default=16, help="libraries, which are built at once (16)")
    parser.add_argument("--capability", type=int, default=90, help="of the GPU: 90 for 9.0 (90)")
    sides = parser.add_mutually_exclusive_group()
    sides.add_argument("--build-only", action="store_true", help="compile both halves; needs no GPU")
    sides.add_argument("--gpu-only", action="store_true", help="leave the emulated GPU's results as they are")
    sides.add_argument(
        "--emulated-only", action="store_true", help="report what the emulated GPU refuses; needs no GPU"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
