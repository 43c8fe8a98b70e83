"""How fast this machine copies memory and multiplies matrices: the ceilings of an op's figures."""

import statistics
from typing import Any

import torch

from kernelgen.worker import clock
from kernelgen.worker.op import dtype_name

# Large enough that no cache holds it, small enough for a laptop.
COPY_BYTES = {"cuda": 2**30, "cpu": 2**27}
MATRIX_SIZE = {"cuda": 8192, "cpu": 1024}
SAMPLES = 10


def measure(device: str, dtypes: tuple[torch.dtype, ...]) -> dict[str, Any]:
    """`copy_bytes_per_s`, read plus written, and `matrix_flops_per_s` by dtype; medians of ten, by the ops' clock. Of a
    GPU also `cache_bytes`, the size of L2."""
    watch = clock.clock_for(device)
    kind = torch.device(device).type
    rates = {}
    for dtype in dtypes:
        if dtype.is_floating_point:
            size = MATRIX_SIZE[kind] // (8 if kind == "cpu" and dtype.itemsize < 4 else 1)
            a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
            rates[dtype_name(dtype)] = 2 * size**3 / _median(watch, lambda a=a, b=b: a @ b)
    caches = {"cache_bytes": torch.cuda.get_device_properties(device).L2_cache_size} if kind == "cuda" else {}
    return {"copy_bytes_per_s": _copy_rate(watch, device, kind), "matrix_flops_per_s": rates, **caches}


def _copy_rate(watch: Any, device: str, kind: str) -> float:
    source = torch.randn(COPY_BYTES[kind] // 4, device=device)
    target = torch.randn_like(source)  # Written once: pages are there before the clock runs.
    return 2 * COPY_BYTES[kind] / _median(watch, lambda: target.copy_(source))


def _median(watch: Any, call: clock.Call) -> float:
    clock.warm_up(watch, call, 0.05)
    return statistics.median(watch.sample([call])[0] for _ in range(SAMPLES))
