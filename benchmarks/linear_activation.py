"""How fast the recipe linear_activation is on this GPU, on each of its paths, beside its peers.

    python benchmarks/linear_activation.py --project DIR [--samples 30] [--json FILE]

DIR is a built project that holds the recipe under its own name, and this Python has its torch and kernelgen's lab. All
implementations of a case are replayed from CUDA graphs in turns, on random inputs and with a cold L2 cache: medians
with 95% intervals. "op" is the recipe on the path that the row names, "linear" PyTorch's product and bias without an
activation, which is cuBLAS; a row's bound is a share of its speed.
"""

import argparse
import functools
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import results_file
import torch
from compiled import compiled
from peers import versions
from project import import_package
from torch.nn import functional

from kernelgen.lab import statistics
from kernelgen.worker import ceilings
from kernelgen.worker.clock import CudaClock, captured
from kernelgen.worker.environment import describe

# m, k, n: the input is (m, k), the weight (n, k).
BOUND_CASES = ((512, 1024, 4096), (8192, 1024, 4096), (8192, 4096, 4096), (8192, 4096, 16384), (16384, 512, 2048))
# Few rows, as many as tiles have and not; few columns, and many.
SMALL_CASES = (
    *((1, 4096, 4096), (16, 4096, 4096), (64, 4096, 4096), (65, 4096, 4096), (128, 4096, 4096), (256, 4096, 4096)),
    *((384, 4096, 4096), (1024, 4096, 4096), (16, 4096, 1024), (128, 4096, 1024), (128, 4096, 6144)),
    *((128, 4096, 14336), (320, 4096, 14336), (160, 14336, 4096)),
)
ODD_CASES = ((4099, 1023, 2049),)
BOUND = 0.95
ACTIVATIONS = ("none", "relu", "gelu", "silu")
Calls = dict[str, Callable[[], Any]]


def inputs(m: int, k: int, n: int, gradient: bool) -> tuple[torch.Tensor, ...]:
    def draw(*shape: int, scale: float = 1) -> torch.Tensor:
        return (torch.randn(shape, device="cuda", dtype=torch.bfloat16) * scale).requires_grad_(gradient)

    return draw(m, k), draw(n, k, scale=k**-0.5), draw(n)


def on_path(call: Callable[[], Any], variable: str, path: str) -> Callable[[], Any]:
    def forced() -> Any:
        os.environ[variable] = path
        try:
            return call()
        finally:
            del os.environ[variable]

    return forced


def peers(reference: Any, activation: str, given: tuple[torch.Tensor, ...], with_compile: bool) -> Calls:
    found: Calls = {"eager": functools.partial(reference, *given, activation)}
    if with_compile:
        torch._dynamo.reset()
        found["torch.compile"] = functools.partial(torch.compile(reference, dynamic=False), *given, activation)
    x, w, b = given
    if activation in ("relu", "gelu") and not x.requires_grad:
        # Its GELU is the approximation by tanh.
        found["_addmm_activation"] = lambda: torch._addmm_activation(b, x, w.t(), use_gelu=activation == "gelu")
    return found


def with_backward(call: Callable[[], Any], given: tuple[torch.Tensor, ...], grad: torch.Tensor) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(call(), given, grad)


def replays(clock: CudaClock, calls: Calls) -> tuple[Calls, dict[str, str]]:
    """The calls as CUDA graphs, so that no launch comes between their kernels; and why some of them are left out."""
    found, left_out = {}, {}
    for name, call in calls.items():
        for _ in range(3):
            clock.sample([call])
        if replay := captured(call):
            found[name] = replay
        else:
            left_out[name] = "it cannot be captured in a CUDA graph"
    return found, left_out


def measured(clock: CudaClock, calls: Calls, samples: int) -> dict[str, dict[str, float]]:
    """Microseconds by name."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(samples):
        for name, call in calls.items():
            times[name].append(clock.sample([call])[0])
    medians = {name: statistics.median(found) for name, found in times.items()}
    return {
        name: {"median_us": 1e6 * it.value, "low_us": 1e6 * it.low, "high_us": 1e6 * it.high}
        for name, it in medians.items()
    }


def row(
    size: tuple[int, int, int],
    activation: str,
    direction: str,
    path: str,
    found: dict[str, Any],
    left_out: dict[str, str],
) -> dict[str, Any]:
    m, k, n = size
    both = direction == "both"
    moved = (m * k + n * k + m * n + n) * (3 if both else 1) * 2
    return {
        "op": "linear_activation",
        "case": f"{m} x {k} x {n}, {activation}",
        "dtype": "bfloat16",
        "direction": direction,
        "path": path,
        "implementations": found,
        "left_out": left_out,
        "bytes": moved,
        "flops": 2 * m * n * k * (3 if both else 1),
        "bound": {"of": "linear", "fraction": BOUND} if not both and path == "sm_90a" and size in BOUND_CASES else None,
    }


def rows_of(
    clock: CudaClock, op: Any, reference: Any, variable: str, size: tuple[int, int, int], both: bool, samples: int
) -> Any:
    m, _, n = size
    given = inputs(*size, gradient=both)
    grad = torch.randn(m, n, device="cuda", dtype=torch.bfloat16)
    for activation in ACTIVATIONS:
        ours = functools.partial(op, *given, activation)
        calls: Calls = {
            "op": ours,
            "portable": on_path(ours, variable, "sm80"),
            **peers(reference, activation, given, size in BOUND_CASES),
        }
        if both:
            calls = {name: with_backward(call, given, grad) for name, call in calls.items() if name != "portable"}
        else:
            calls["linear"] = functools.partial(functional.linear, *given)
        graphs, left_out = replays(clock, calls)
        found = measured(clock, graphs, samples)
        other = found.pop("portable", None)
        direction = "both" if both else "forward"
        yield row(size, activation, direction, "sm_90a" if size not in ODD_CASES else "portable", found, left_out)
        if other and size not in ODD_CASES:
            yield row(size, activation, direction, "portable", {**found, "op": other}, left_out)


def show(found: dict[str, Any]) -> None:
    times = {name: it["median_us"] for name, it in found["implementations"].items()}
    ours = times["op"]
    best = min((name for name in times if name not in ("op", "linear")), key=times.__getitem__)
    text = (
        f"{found['direction']:8} {found['path']:8} {found['case']:28} {ours:8.1f} us  {times[best] / ours:.3f} x {best}"
    )
    if "linear" in times:
        text += f"  {times['linear'] / ours:.3f} x linear"
    if found["bound"]:
        text += ": met" if times["linear"] / ours >= BOUND else ": MISSED"
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, required=True, help="a built project")
    parser.add_argument("--samples", type=int, default=30, help="samples of each implementation of each case")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    project = options.project.resolve()
    package = import_package(project)
    op = package.linear_activation
    reference = importlib.import_module(f"{package.__name__}.ops.linear_activation.reference").linear_activation
    variable = f"{package.__name__}_linear_activation_PATH".upper()

    torch.manual_seed(1)
    clock, found = CudaClock(), {"kind": "kernelgen kernels", "title": "Linear and activation"}
    found["command"] = "python benchmarks/linear_activation.py --project DIR"
    found["environment"] = describe("cuda", project, {"samples": options.samples})
    found["peers"] = versions()
    found["ceilings"] = ceilings.measure("cuda", (torch.bfloat16,))
    found["rows"], (found["kernels"], found["compile_seconds"]) = [], compiled(project, ("linear_activation",))
    for both, sizes in ((False, BOUND_CASES + SMALL_CASES + ODD_CASES), (True, BOUND_CASES)):
        for size in sizes:
            for it in rows_of(clock, op, reference, variable, size, both, options.samples):
                found["rows"].append(it)
                show(it)
            if options.json:  # After each, so that an interrupt loses little.
                results_file.write(options.json, found)


if __name__ == "__main__":
    main()
