"""The CPU time of a call on a tiny tensor, beside PyTorch's own function, in one interleaved run.

    python benchmarks/overhead.py --project DIR [--rounds 40] [--json FILE]

DIR is a built project that holds the recipes `elementwise`, `rms_norm` and `layer_norm`, or one of them, and this
Python has its torch. Each is called with tensors that need no gradient in grad mode, under no_grad and in inference
mode, and with tensors that need one. On CUDA a round does not wait for its kernels: with tensors too small to fill a
GPU, the CPU's time is the limit. Printed are the median over the rounds, its 95% interval, and the ratio to PyTorch's
counterpart in the same mode. A Python custom_op shows what such an operator costs otherwise.
"""

import argparse
import contextlib
import platform
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional

import results_file
from order_statistics import interval, median
from project import import_package

CALLS = 300
# Ratios to PyTorch's counterpart.
BOUND = 1.1
MODES = {
    "grad mode": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "with gradient": contextlib.nullcontext,
}


@torch.library.custom_op("kernelgen_benchmark::relu", mutates_args=())
def custom_relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


custom_relu.register_fake(torch.empty_like)
custom_relu.register_autograd(lambda ctx, grad: grad)


Call = Callable[[], object]


def calls(package: object, device: str) -> dict[str, tuple[str, Call]]:
    """By name: the mode, and what is called in it. The name of a counterpart begins with `torch.`."""
    x, row = torch.randn(8, device=device), torch.randn(1, 8, device=device)
    taken: dict[str, tuple[str, Call]] = {}
    for mode in MODES:
        needs_grad = mode == "with gradient"
        a, b = x.clone().requires_grad_(needs_grad), row.clone().requires_grad_(needs_grad)
        functions = {
            "torch.relu": partial(torch.relu, a),
            "Python custom_op": partial(custom_relu, a),
            "torch.elementwise": partial(torch.addcmul, a, x, x),
            # PyTorch's own, called as every operator of a library is: through torch.ops.
            "torch.ops.elementwise": partial(torch.ops.aten.addcmul.default._op, a, x, x),
            "torch.rms_norm": partial(functional.rms_norm, b, (8,), x, 1e-6),
            "torch.layer_norm": partial(functional.layer_norm, b, (8,), x, x, 1e-5),
        }
        for name, arguments in (("elementwise", (a, x, x)), ("rms_norm", (b, x)), ("layer_norm", (b, x, x))):
            if hasattr(package, name):
                functions[name] = partial(getattr(package, name), *arguments)
        taken |= {f"{name}, {mode}": (mode, function) for name, function in functions.items()}
    return taken


def measure(functions: dict[str, tuple[str, Call]], rounds: int) -> dict[str, list[float]]:
    """Microseconds per call, a figure for each round; each round calls the functions in another order."""
    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds + 1):
        for name in random.sample(list(functions), len(functions)):
            mode, function = functions[name]
            synchronize()
            with MODES[mode]():
                start = time.perf_counter()
                for _ in range(CALLS):
                    function()
            taken[name].append((time.perf_counter() - start) / CALLS * 1e6)
            synchronize()
    return {name: values[1:] for name, values in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, required=True, help="a built project")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    taken = measure(calls(import_package(options.project), device), options.rounds)

    rows = []
    for name, values in taken.items():
        op, mode = name.split(", ")
        of_torch = f"torch.{op.removeprefix('torch.').removeprefix('ops.')}, {mode}"
        counterpart = taken.get(of_torch) or taken[f"torch.relu, {mode}"]
        ratio = median([value / base for value, base in zip(values, counterpart, strict=True)])
        low, high = interval(values)
        rows.append({"call": name, "median_us": median(values), "low_us": low, "high_us": high, "ratio": ratio})
        verdict = "" if op.startswith(("torch", "Python")) else ": met" if ratio <= BOUND else f": over {BOUND}"
        print(f"{name:32} {median(values):7.2f} us  ({low:.2f} to {high:.2f})  {ratio:5.2f} x PyTorch's{verdict}")
    if options.json:
        name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
        machine = {"device": name, "torch": torch.__version__, "python": platform.python_version()}
        results_file.write(options.json, machine | {"rounds": options.rounds, "rows": rows})


if __name__ == "__main__":
    main()
