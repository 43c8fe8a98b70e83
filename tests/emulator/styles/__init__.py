"""Ten small CUDA ops as other people write them, each with problems whose results are known.

A style is a `.cu` beside this file. It exports `cudaError_t run_NAME(...)`, which takes pointers, int64_t and double
and launches on the default stream; there is no torch in it. nvcc compiles it as it is, for the style's architecture.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

FOLDER = Path(__file__).parent


class Memory(Protocol):
    """Where a problem's tensors lie: the emulator's guarded memory, or a GPU's."""

    def copy(self, tensor: torch.Tensor, shift: int = 0) -> torch.Tensor: ...

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32, shift: int = 0) -> torch.Tensor: ...


Results = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Problem:
    """The arguments of one call, the results that it writes, and what they have to be."""

    arguments: tuple[Any, ...]
    results: Results
    expected: Results
    # The largest error, relative to max(|expected|, 1).
    tolerance: float = 0.0
    # Brings results whose order is free into a defined order.
    arranged: Callable[[Results], Results] = lambda results: results

    def check(self) -> None:
        """Asserts that the results are those expected."""
        results = self.arranged({name: result.cpu() for name, result in self.results.items()})
        for name, expected in self.expected.items():
            result, scale = results[name].double(), expected.double().abs().clamp(min=1)
            error = (result - expected.double()).abs() / scale
            assert (error <= self.tolerance).all(), f"{name}: off by {error.max():.2e}, not {self.tolerance:.2e}"


@dataclass(frozen=True)
class Style:
    """One op: what it shows, the GPUs that it is for, and the problems that it is tested with."""

    name: str
    idiom: str
    make: Callable[..., Problem]
    sizes: tuple[tuple[int, ...], ...]
    architecture: str = "sm_80"

    @property
    def source(self) -> Path:
        return FOLDER / f"{self.name}.cu"

    @property
    def function(self) -> str:
        return f"run_{self.name}"

    @property
    def capability(self) -> int:
        """90 for sm_90a."""
        return int(self.architecture.removeprefix("sm_").rstrip("a"))

    def problems(self, memory: Memory) -> list[Problem]:
        return [self.make(memory, *sizes) for sizes in self.sizes]


def _generator(*sizes: int) -> torch.Generator:
    """Random numbers that depend on the sizes alone."""
    return torch.Generator().manual_seed(hash(sizes) % 2**31)


def _row_logsumexp(memory: Memory, rows: int, columns: int, shift: int = 0) -> Problem:
    x = torch.randn(rows, columns, generator=_generator(rows, columns)) * 4
    out = memory.empty(rows)
    expected = {"out": torch.logsumexp(x.double(), 1)}
    return Problem((memory.copy(x, shift), out, rows, columns), {"out": out}, expected, 1e-5)


_BINS = 48


def _histogram(memory: Memory, n: int) -> Problem:
    values = torch.randint(-3, _BINS + 3, (n,), generator=_generator(n), dtype=torch.int32)
    inside = values[(values >= 0) & (values < _BINS)]
    counts = torch.bincount(inside.long(), minlength=_BINS)
    results = {
        "counts": memory.empty(_BINS, dtype=torch.int32),
        "outside": memory.empty(1, dtype=torch.int32),
        "density": memory.empty(_BINS),
    }
    expected = {"counts": counts, "outside": torch.tensor([n - len(inside)]), "density": counts.double() / len(inside)}
    return Problem((memory.copy(values), n, *results.values()), results, expected, 1e-6)


def _matmul(memory: Memory, m: int, n: int, k: int) -> Problem:
    generator = _generator(m, n, k)
    a, b = (torch.randn(*shape, generator=generator) for shape in ((m, k), (k, n)))
    c = memory.empty(m, n)
    return Problem((memory.copy(a), memory.copy(b), c, m, n, k), {"c": c}, {"c": a.double() @ b.double()}, 1e-5)


def _fma_pipeline(memory: Memory, n: int, blocks: int) -> Problem:
    x, w = torch.randn(2, n, generator=_generator(n, blocks))
    out = memory.empty(n)
    expected = x.double() * w.double() + 0.5
    return Problem((memory.copy(x), memory.copy(w), 0.5, out, n, blocks), {"out": out}, {"out": expected}, 1e-6)


def _gemm(memory: Memory, m: int, n: int, k: int) -> Problem:
    generator = _generator(m, n, k)
    a, b = (torch.randn(*shape, generator=generator).half() for shape in ((m, k), (n, k)))
    c = memory.empty(m, n)
    return Problem((memory.copy(a), memory.copy(b), c, m, n, k), {"c": c}, {"c": a.double() @ b.double().T}, 1e-4)


def _grid_reduction(memory: Memory, n: int, blocks: int) -> Problem:
    # Whole numbers, whose sum does not depend on the order.
    x = torch.randint(-50, 50, (n,), generator=_generator(n, blocks)).float()
    partials, out = memory.empty(blocks, 2), memory.empty(2)
    expected = torch.stack([x.sum(), x.max()])
    return Problem((memory.copy(x), partials, out, n, blocks), {"out": out}, {"out": expected})


_TILE = 256


def _scan(memory: Memory, n: int) -> Problem:
    x = torch.randint(0, 1000, (n,), generator=_generator(n), dtype=torch.int32)
    out, workspace = (memory.empty(size, dtype=torch.int32) for size in (n, 1 + 3 * -(-n // _TILE)))
    return Problem((memory.copy(x), out, workspace, n), {"out": out}, {"out": x.cumsum(0)})


def _softmax(memory: Memory, rows: int, columns: int) -> Problem:
    x = torch.randn(rows, columns, generator=_generator(rows, columns))
    y = memory.empty(rows, columns)
    return Problem((memory.copy(x), y, rows, columns), {"y": y}, {"y": x.double().softmax(1)}, 1e-5)


def _topk(memory: Memory, rows: int, n: int, k: int) -> Problem:
    # Few distinct values, so that columns break ties.
    x = torch.randint(0, max(n // 2, 2), (rows, n), generator=_generator(rows, n, k)).float()
    values, columns = memory.empty(rows, k), memory.empty(rows, k, dtype=torch.int32)
    order = torch.sort(x, dim=1, descending=True, stable=True)
    expected = {"values": order.values[:, :k], "columns": order.indices[:, :k]}
    return Problem((memory.copy(x), values, columns, rows, n, k), {"values": values, "columns": columns}, expected)


def _partition(memory: Memory, n: int, buckets: int) -> Problem:
    generator = _generator(n, buckets)
    values = torch.randn(n, generator=generator)
    places = torch.randint(-1, buckets, (n,), generator=generator, dtype=torch.int32)
    counts = torch.bincount(places[places >= 0].long(), minlength=buckets)
    capacity = int(counts.max()) + 1 if n else 1
    lists = torch.zeros(buckets, capacity)
    for bucket in range(buckets):
        lists[bucket, : counts[bucket]] = values[places == bucket].sort().values

    def arranged(results: Results) -> Results:
        ordered = torch.zeros(buckets, capacity)
        for bucket, count in enumerate(results["counts"].tolist()):
            ordered[bucket, :count] = results["lists"][bucket, :count].sort().values
        return {"counts": results["counts"], "lists": ordered}

    results = {"counts": memory.empty(buckets, dtype=torch.int32), "lists": memory.empty(buckets, capacity)}
    arguments = (memory.copy(values), memory.copy(places), *results.values(), n, buckets, capacity)
    return Problem(arguments, results, {"counts": counts, "lists": lists}, arranged=arranged)


STYLES = {
    style.name: style
    for style in (
        Style("row_logsumexp_cub", "CUB's block reductions", _row_logsumexp, ((3, 260), (2, 133), (2, 40, 1))),
        Style("histogram_cg", "cooperative groups: tiles, grid barrier, atomics", _histogram, ((1000,), (37,))),
        Style("matmul_tiled", "tiles in shared memory, two barriers a step", _matmul, ((32, 32, 48), (19, 37, 41))),
        Style(
            *("fma_pipeline_sm90", "warp-specialised, mbarriers, bulk copies", _fma_pipeline),
            *(((4100, 2), (512, 1), (5000, 1)), "sm_90a"),
        ),
        Style("gemm_multistage_sm80", "cp.async ring, ldmatrix, mma.sync", _gemm, ((64, 64, 160), (70, 50, 72))),
        Style(
            *("grid_reduction_ticket", "the last block adds up, fences and a ticket"),
            *(_grid_reduction, ((3000, 5), (100, 3))),
        ),
        Style("scan_lookback", "decoupled look-back, volatile flags", _scan, ((2000,), (1,), (256 * 3,))),
        Style(
            *("softmax_cluster_sm90", "distributed shared memory of a cluster", _softmax),
            *(((2, 1000), (1, 130)), "sm_90a"),
        ),
        Style("topk_bitonic", "a sort in 64 KB of dynamic shared memory", _topk, ((3, 200, 10), (1, 6500, 4))),
        Style("partition_match", "match, ballot, warp-aggregated atomics", _partition, ((500, 5), (96, 2))),
    )
}
