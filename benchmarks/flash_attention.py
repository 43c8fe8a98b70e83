"""How fast the recipe flash_attention is on this GPU, on each of its paths, beside its peers.

    python benchmarks/flash_attention.py --project DIR [--samples 30] [--cases "4096 x 128" ...] [--json FILE]

DIR is a built project that holds the recipe under its own name, and this Python has its torch and kernelgen's lab. For
each case and direction the recipe's paths and its peers are measured in turns, on random inputs, with a cold L2 cache:
medians with 95% intervals. A row of results is one path beside the peers; the rows of a case are of one run. A bound is
a share of the speed of a row's fastest peer, or of PyTorch's FlashAttention-2 for the portable path. It holds for the
geometric mean over rows, which is printed last, with few queries on many keys apart from the others; for a single query
it holds for each row. `--device cpu` measures the CPU's few small cases, which have no bounds.
"""

import argparse
import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch

import results_file
from compiled import compiled
from kernelgen.errors import LabError
from kernelgen.lab import statistics
from kernelgen.protocol import OP
from kernelgen.worker import ceilings
from kernelgen.worker.environment import describe
from kernelgen.worker.op import Op, load
from peers import versions
from project import import_package
from timed_case import TimedCase

# The paths as results name them, and as the environment does.
VALUES = {"hopper": "sm90", "portable": "sm80"}
# For each path: the peer whose speed is the measure (None: the fastest of a row), and the share of it to reach, forward
# and backward.
BOUNDS = {"hopper": (None, (0.97, 0.93)), "portable": ("torch flash", (1.0, 0.95))}
DECODE_BOUND = (None, 1.0)
FEW_QUERIES = "few queries on many keys"
FEW_QUERIES_BOUND = (None, 0.95)  # On Hopper, where heads that share keys are packed into tiles and keys are split.
# Peers that take gigabytes for the larger cases and are never the fastest.
LEFT_OUT = ("torch math",)
# Cases in float16; the others are in bfloat16.
FLOAT16_CASES = ("batches of 512 x 64",)


def flash_attn_4() -> dict[str, Callable[..., Any]]:
    """FlashAttention's kernels for Hopper and later, where they are installed."""
    try:
        from flash_attn.cute import flash_attn_func
    except ImportError:
        return {}

    def attention(
        q: Any, k: Any, v: Any, causal: bool, deterministic: bool, scale: float | None = None, *options: Any
    ) -> Any:
        if options:
            raise NotImplementedError("it is called without a window, a softcap, sinks and LSE")
        result = flash_attn_func(q, k, v, causal=causal, softmax_scale=scale)
        return result[0] if isinstance(result, tuple) else result

    return {"flash-attn 4": attention}


@contextlib.contextmanager
def on_path(variable: str, path: str | None) -> Iterator[None]:
    if path is None:
        yield
        return
    os.environ[variable] = VALUES[path]
    try:
        yield
    finally:
        del os.environ[variable]


class Case:
    """A case of the op in one direction: its paths and peers, warmed up, and why some of them cannot run."""

    def __init__(self, op: Op, name: str, device: str, variable: str, backward: bool) -> None:
        self.op, self.name, self.backward, self.variable = op, name, backward, variable
        self.sizes = (op.cases if device == "cuda" else op.cpu_cases)[name]
        self.dtype = torch.float16 if name in FLOAT16_CASES else torch.bfloat16
        self.is_decode = self.sizes["queries"] == 1
        self.has_few_queries = not self.is_decode and self.sizes["queries"] < self.sizes["keys"]
        self.timed = TimedCase(op, self.sizes, self.dtype, device, backward=backward)
        # The recipe's implementations, and the path that each is forced to take.
        self.paths: dict[str, str | None] = {OP: None} if device == "cpu" else {f"{OP} {path}": path for path in BOUNDS}
        # The decode kernel counts as the portable path's.
        if self.is_decode:
            self.paths.pop(f"{OP} hopper", None)
        self.left_out: dict[str, str] = {}
        peers = {name: peer for name, peer in {**op.peers, **flash_attn_4()}.items() if name not in LEFT_OUT}
        for function, call in {**dict.fromkeys(self.paths, op.function), **peers}.items():
            self.timed.functions[function] = call
            try:
                for _ in range(6):
                    self.sample(function)
            except Exception as error:
                if function in self.paths and not self._lacks_hopper(function):
                    raise
                del self.timed.functions[function]
                self.left_out[function] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"

    def _lacks_hopper(self, function: str) -> bool:
        return self.paths[function] == "hopper" and torch.cuda.get_device_capability() != (9, 0)

    def sample(self, function: str) -> float:
        with on_path(self.variable, self.paths.get(function)):
            return self.timed.sample(function)

    def measured(self, samples: int) -> dict[str, dict[str, float]]:
        """Microseconds by name."""
        seconds: dict[str, list[float]] = {name: [] for name in self.timed.functions}
        for _ in range(samples):
            for name in random.sample(list(seconds), len(seconds)):
                seconds[name].append(self.sample(name))
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        return {
            name: {"median_us": 1e6 * interval.value, "low_us": 1e6 * interval.low, "high_us": 1e6 * interval.high}
            for name, interval in medians.items()
        }

    def rows(self, samples: int) -> Iterator[dict[str, Any]]:
        """Rows as README.md of this folder describes them: one for each path."""
        times_by_name = self.measured(samples)
        peers = {name: times for name, times in times_by_name.items() if name not in self.paths}
        moved, flops = self.op.bytes_moved, self.op.flops
        if self.backward:
            moved, flops = self.op.backward_bytes_moved, self.op.backward_flops
        for name, path in self.paths.items():
            if name in times_by_name:
                yield {
                    "op": self.op.name,
                    "case": self.name,
                    "dtype": str(self.dtype).removeprefix("torch."),
                    "direction": "backward" if self.backward else "forward",
                    "path": path or "portable",
                    "implementations": {OP: times_by_name[name], **peers},
                    "left_out": self.left_out,
                    "bytes": moved(self.dtype, **self.sizes),
                    "flops": flops(**self.sizes),
                    "bound": self.bound(path, peers),
                }

    def bound(self, path: str | None, peers: dict[str, dict[str, float]]) -> dict[str, Any] | None:
        # No peer has a deterministic backward, and `deterministic` does not change the forward.
        if path is None or self.sizes.get("deterministic"):
            return None
        of, fractions = BOUNDS[path]
        fraction, of_mean = fractions[self.backward], True
        if self.has_few_queries:
            if path != "hopper":
                return None
            (of, fraction), of_mean = FEW_QUERIES_BOUND, FEW_QUERIES
        if self.is_decode:
            of, fraction = DECODE_BOUND
        of = of or min(peers, key=lambda name: peers[name]["median_us"], default=None)
        return {"of": of, "fraction": fraction, "of_mean": not self.is_decode and of_mean} if of in peers else None


def reached(row: dict[str, Any]) -> float:
    """The recipe's speed as a share of the speed of the peer that its bound names."""
    times = row["implementations"]
    return times[row["bound"]["of"]]["median_us"] / times[OP]["median_us"]


def show(row: dict[str, Any]) -> None:
    rates = {name: row["flops"] / times["median_us"] / 1e6 for name, times in row["implementations"].items()}
    text = "  ".join(f"{name} {rate:.3g}" for name, rate in rates.items())
    verdict = ""
    if row["bound"]:
        verdict = f"  {reached(row):.3f} x {row['bound']['of']}, to be {row['bound']['fraction']}"
    print(f"{row['path']:8} {row['case']:22} {row['direction']:8} TFLOP/s: {text}{verdict}", flush=True)


def show_means(rows: list[dict[str, Any]]) -> None:
    """The geometric mean over the rows of a path and direction."""
    groups: dict[tuple[str, str, bool | str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["bound"] and row["bound"]["of_mean"]:
            groups.setdefault((row["path"], row["direction"], row["bound"]["of_mean"]), []).append(row)
    for (path, direction, subset), group in groups.items():
        shares, fraction = [reached(row) for row in group], group[0]["bound"]["fraction"]
        verdict = "met" if geometric_mean(shares) >= fraction else "MISSED"
        kind = "rows" if subset is True else f"rows of {subset}"
        print(
            f"{path} {direction}: {geometric_mean(shares):.3f} in the mean over {len(group)} {kind} "
            f"({min(shares):.3f} at least), to be {fraction}: {verdict}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, required=True, help="a built project")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--cases", nargs="+", metavar="CASE", help="some of the cases of the op's lab.py; else all")
    parser.add_argument("--samples", type=int, default=30, help="samples of each implementation of each case")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    project = options.project.resolve()
    package = import_package(project).__name__
    op = load(package, "flash_attention")
    variable = f"{package}_flash_attention_PATH".upper()

    facts: dict[str, Any] = {"kind": "kernelgen kernels", "title": "Attention"}
    facts["command"] = "python benchmarks/flash_attention.py --project DIR"
    facts["environment"] = describe(options.device, project, {"samples": options.samples})
    facts["peers"] = versions()
    facts["ceilings"] = ceilings.measure(options.device, (torch.bfloat16,))
    facts["kernels"], facts["compile_seconds"] = compiled(project, ("flash_attention",))
    facts["rows"] = []
    for name in options.cases or (op.cases if options.device == "cuda" else op.cpu_cases):
        # Fewer queries than keys need no gradient: they occur in decoding and in chunks of a prompt, not in training.
        sizes = (op.cases if options.device == "cuda" else op.cpu_cases)[name]
        directions = (False,) if sizes["queries"] < sizes["keys"] else (False, True)
        for backward in directions:
            try:
                rows = list(Case(op, name, options.device, variable, backward).rows(options.samples))
            except (LabError, torch.OutOfMemoryError) as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            facts["rows"] += rows
            for row in rows:
                show(row)
        if options.json:  # After each, so that an interrupt loses little.
            results_file.write(options.json, facts)
    show_means(facts["rows"])


if __name__ == "__main__":
    main()
