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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import results_file
from compiled import compiled
from kernelgen.lab import statistics
from kernelgen.worker import ceilings
from kernelgen.worker.clock import CudaClock, captured
from kernelgen.worker.environment import describe
from peers import versions
from project import import_package, on_path

# m, k, n: the input is (m, k), the weight (n, k).
BOUND_CASES = ((512, 1024, 4096), (8192, 1024, 4096), (8192, 4096, 4096), (8192, 4096, 16384), (16384, 512, 2048))
# Few rows, some of them whole tiles; few columns and many.
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


def peers(reference: Any, activation: str, arguments: tuple[torch.Tensor, ...], with_compile: bool) -> Calls:
    calls: Calls = {"eager": functools.partial(reference, *arguments, activation)}
    if with_compile:
        torch._dynamo.reset()
        calls["torch.compile"] = functools.partial(torch.compile(reference, dynamic=False), *arguments, activation)
    x, w, b = arguments
    if activation in ("relu", "gelu") and not x.requires_grad:
        # Its GELU is the approximation by tanh.
        calls["_addmm_activation"] = lambda: torch._addmm_activation(b, x, w.t(), use_gelu=activation == "gelu")
    return calls


def with_backward(
    call: Callable[[], Any], arguments: tuple[torch.Tensor, ...], grad: torch.Tensor
) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(call(), arguments, grad)


def replays(clock: CudaClock, calls: Calls) -> tuple[Calls, dict[str, str]]:
    """The calls as CUDA graphs, so that no launch comes between their kernels; and why some of them are left out."""
    graphs, left_out = {}, {}
    for name, call in calls.items():
        for _ in range(3):
            clock.sample([call])
        if replay := captured(call):
            graphs[name] = replay
        else:
            left_out[name] = "it cannot be captured in a CUDA graph"
    return graphs, left_out


def measured(clock: CudaClock, calls: Calls, samples: int) -> dict[str, dict[str, float]]:
    """Microseconds by name."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(samples):
        for name, call in calls.items():
            times[name].append(clock.sample([call])[0])
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        name: {"median_us": 1e6 * interval.value, "low_us": 1e6 * interval.low, "high_us": 1e6 * interval.high}
        for name, interval in medians.items()
    }


def row(
    size: tuple[int, int, int],
    activation: str,
    direction: str,
    path: str,
    implementations: dict[str, Any],
    left_out: dict[str, str],
) -> dict[str, Any]:
    m, k, n = size
    with_gradient = direction == "both"
    moved = (m * k + n * k + m * n + n) * (3 if with_gradient else 1) * 2
    return {
        "op": "linear_activation",
        "case": f"{m} x {k} x {n}, {activation}",
        "dtype": "bfloat16",
        "direction": direction,
        "path": path,
        "implementations": implementations,
        "left_out": left_out,
        "bytes": moved,
        "flops": 2 * m * n * k * (3 if with_gradient else 1),
        "bound": {"of": "linear", "fraction": BOUND}
        if not with_gradient and path == "sm_90a" and size in BOUND_CASES
        else None,
    }


def rows_of(
    clock: CudaClock,
    op: Any,
    reference: Any,
    variable: str,
    size: tuple[int, int, int],
    with_gradient: bool,
    samples: int,
) -> Any:
    m, _, n = size
    arguments = inputs(*size, gradient=with_gradient)
    grad = torch.randn(m, n, device="cuda", dtype=torch.bfloat16)
    for activation in ACTIVATIONS:
        recipe = functools.partial(op, *arguments, activation)
        calls: Calls = {
            "op": recipe,
            "portable": on_path(recipe, variable, "sm80"),
            **peers(reference, activation, arguments, size in BOUND_CASES),
        }
        if with_gradient:
            calls = {name: with_backward(call, arguments, grad) for name, call in calls.items() if name != "portable"}
        else:
            calls["linear"] = functools.partial(functional.linear, *arguments)
        graphs, left_out = replays(clock, calls)
        times = measured(clock, graphs, samples)
        portable_times = times.pop("portable", None)
        direction = "both" if with_gradient else "forward"
        yield row(size, activation, direction, "sm_90a" if size not in ODD_CASES else "portable", times, left_out)
        if portable_times and size not in ODD_CASES:
            yield row(size, activation, direction, "portable", {**times, "op": portable_times}, left_out)


def show(row: dict[str, Any]) -> None:
    times = {name: time["median_us"] for name, time in row["implementations"].items()}
    own_us = times["op"]
    best = min((name for name in times if name not in ("op", "linear")), key=times.__getitem__)
    text = (
        f"{row['direction']:8} {row['path']:8} {row['case']:28} {own_us:8.1f} us  {times[best] / own_us:.3f} x {best}"
    )
    if "linear" in times:
        text += f"  {times['linear'] / own_us:.3f} x linear"
    if row["bound"]:
        text += ": met" if times["linear"] / own_us >= BOUND else ": MISSED"
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
    clock, results = CudaClock(), {"kind": "kernelgen kernels", "title": "Linear and activation"}
    results["command"] = "python benchmarks/linear_activation.py --project DIR"
    results["environment"] = describe("cuda", project, {"samples": options.samples})
    results["peers"] = versions()
    results["ceilings"] = ceilings.measure("cuda", (torch.bfloat16,))
    results["rows"], (results["kernels"], results["compile_seconds"]) = [], compiled(project, ("linear_activation",))
    for with_gradient, sizes in ((False, BOUND_CASES + SMALL_CASES + ODD_CASES), (True, BOUND_CASES)):
        for size in sizes:
            for result in rows_of(clock, op, reference, variable, size, with_gradient, options.samples):
                results["rows"].append(result)
                show(result)
            if options.json:  # After each, so that an interrupt loses little.
                results_file.write(options.json, results)


if __name__ == "__main__":
    main()
