"""Attention of one long sequence over several GPUs by a ring, beside all of it on one of them.

    python benchmarks/ring.py --project DIR [--rows 65536] [--samples 10] [--json FILE]

DIR is a built project with flash_attention under its own name; all GPUs of this machine take part. 16 heads of 128
dimensions, causal, bfloat16. A sample is a forward and a backward; the processes start each together, and it takes as
long as the last of them. The one GPU takes its turns while the others wait.
"""

import argparse
import importlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import Tensor

import results_file
from project import import_package

HEADS, DIM = 16, 128


def seconds(function: Callable[[], Tensor], samples: int, group: dist.ProcessGroup | None) -> list[float]:
    """How long each forward and backward takes on the GPU that takes longest."""
    taken = []
    for _ in range(samples + 2):
        if group:
            dist.barrier(group)
        torch.cuda.synchronize()
        start = time.perf_counter()
        function().sum().backward()
        torch.cuda.synchronize()
        slowest = torch.tensor(time.perf_counter() - start, device="cuda")
        if group:
            dist.all_reduce(slowest, dist.ReduceOp.MAX, group)
        taken.append(slowest.item())
    return taken[2:]


def one_process(rank: int, size: int, store: str, options: argparse.Namespace) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", store=dist.FileStore(store, size), rank=rank, world_size=size, device_id=torch.device("cuda", rank)
    )
    package = import_package(options.project)
    ring = importlib.import_module(f"{package.__name__}.ops.flash_attention.ring")
    torch.manual_seed(0)
    whole = [torch.randn(1, options.rows, HEADS, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    rows = ring.positions(options.rows, causal=True).cuda()
    parts = [tensor.index_select(1, rows).requires_grad_() for tensor in whole]
    for tensor in whole:
        tensor.requires_grad_()
    by_ring = seconds(lambda: ring.ring_attention(*parts, causal=True), options.samples, dist.group.WORLD)
    dist.barrier()
    if rank == 0:
        alone = seconds(lambda: package.flash_attention(*whole, causal=True), options.samples, None)
        report(options, size, statistics.median(by_ring), statistics.median(alone))
    dist.barrier()
    dist.destroy_process_group()


def report(options: argparse.Namespace, size: int, ring: float, alone: float) -> None:
    gpu = torch.cuda.get_device_name()
    print(f"{size} x {gpu}, {options.rows} rows: ring {ring * 1e3:.2f} ms, one GPU {alone * 1e3:.2f} ms")
    print(f"{alone / ring:.2f} times as fast")
    if options.json:
        facts = {"gpu": gpu, "gpus": size, "torch": torch.__version__, "samples": options.samples}
        row = {"rows": options.rows, "heads": HEADS, "dim": DIM, "ring_s": ring, "alone_s": alone}
        results_file.write(options.json, facts | {"rows": [row]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, required=True, help="a built project")
    parser.add_argument("--rows", type=int, default=65536)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    size = torch.cuda.device_count()
    if size < 2:
        parser.error(f"this machine has {size} GPUs; a ring takes two or more")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(one_process, (size, f"{folder}/store", options), nprocs=size)


if __name__ == "__main__":
    main()
