"""The CPU time of a call on a tiny tensor, beside torch.relu and a Python custom_op, in one interleaved run.

    python benchmarks/overhead.py --project DIR [--rounds 40] [--json FILE]

DIR is a built project that holds the recipe `elementwise`, and this Python has its torch. On CUDA a round does not wait
for its kernels: with tensors too small to fill a GPU, the CPU's time is the limit. Printed are the median over the
rounds, its 95% interval, and the ratio to torch.relu.
"""

import argparse
import platform
import random
import time
from collections.abc import Callable
from pathlib import Path

import results_file
import torch
from order_statistics import interval, median
from project import import_package

CALLS = 300
# Ratios to torch.relu, for an op without a gradient on a CUDA tensor.
BOUND, AIM = 1.2, 1.0


@torch.library.custom_op("kernelgen_benchmark::relu", mutates_args=())
def custom_relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


custom_relu.register_fake(torch.empty_like)
custom_relu.register_autograd(lambda ctx, grad: grad)


def calls(package: object, device: str) -> dict[str, Callable[[], object]]:
    x = torch.randn(8, device=device)
    grad = torch.randn(8, device=device, requires_grad=True)
    op = package.elementwise
    return {
        "torch.relu": lambda: torch.relu(x),
        "torch.addcmul": lambda: torch.addcmul(x, x, x),
        "elementwise": lambda: op(x, x, x),
        "Python custom_op": lambda: custom_relu(x),
        "torch.relu, with gradient": lambda: torch.relu(grad),
        "torch.addcmul, with gradient": lambda: torch.addcmul(grad, x, x),
        "elementwise, with gradient": lambda: op(grad, x, x),
        "Python custom_op, with gradient": lambda: custom_relu(grad),
    }


def measure(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Microseconds per call, a figure for each round; each round calls the functions in another order."""
    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds + 1):
        for name in random.sample(list(functions), len(functions)):
            synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                functions[name]()
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

    relu = taken["torch.relu"]
    rows = []
    for name, values in taken.items():
        ratio = median([value / base for value, base in zip(values, relu, strict=True)])
        low, high = interval(values)
        rows.append({"call": name, "median_us": median(values), "low_us": low, "high_us": high, "ratio": ratio})
        print(f"{name:32} {median(values):7.2f} us  ({low:.2f} to {high:.2f})  {ratio:5.2f} x torch.relu")
    own_ratio = next(row["ratio"] for row in rows if row["call"] == "elementwise")
    if device == "cuda":
        verdict = "met" if own_ratio <= BOUND else "MISSED"
        print(f"elementwise: {own_ratio:.2f}, at most {BOUND} (aim {AIM}): {verdict}")
    if options.json:
        name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
        machine = {"device": name, "torch": torch.__version__, "python": platform.python_version()}
        results_file.write(options.json, machine | {"rounds": options.rounds, "rows": rows})


if __name__ == "__main__":
    main()
