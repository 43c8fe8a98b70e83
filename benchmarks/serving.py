"""Attention of sequences of different lengths and over a cache of pages, on a GPU.

    python benchmarks/serving.py --project DIR [--samples 8] [--only varlen paged] [--json FILE]

DIR is a built project with flash_attention, flash_attention_varlen, flash_attention_paged and append_to_cache under
their own names. Sequences of different lengths stand beside PyTorch's varlen_attn and, where all lengths are equal,
beside flash_attention on its path for every GPU ("dense sm80") and on the one that it chooses ("dense"); attention over
pages, beside flash_attention over the same keys without pages; and both beside FlashAttention 4 and FlashInfer, where
these are installed (serving_peers.py). Where heads of queries share keys, varlen_attn gets copies of the keys, made
before. bfloat16; microseconds are medians, all implementations of a row take turns, and the L2
cache is flushed before each call.
"""

import argparse
import inspect
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

import results_file
from peers import versions
from project import import_package, on_path
from serving_peers import (
    FLASH_ATTN_4,
    FLASHINFER,
    flash_attn_4_paged,
    flash_attn_4_varlen,
    flashinfer_paged,
    flashinfer_varlen,
    peers_of,
)

Calls = dict[str, Callable[[], Any]]
MIXED = [32, 64, 128, 256, 512, 1024, 2048, 4096, 4096, 2048, 1024, 512, 256, 128, 96, 64]


class Batch(NamedTuple):
    name: str
    lengths: list[int]
    heads: int
    kv_heads: int
    dim: int
    causal: bool


BATCHES = (
    Batch("4 x 4096", [4096] * 4, 32, 32, 64, False),
    Batch("4 x 4096", [4096] * 4, 32, 32, 64, True),
    Batch("32 x 512", [512] * 32, 16, 16, 128, True),
    Batch("4 x 4096", [4096] * 4, 16, 16, 128, False),
    Batch("4 x 4096", [4096] * 4, 16, 16, 128, True),
    Batch("64 x 256", [256] * 64, 32, 8, 128, True),
    Batch("32 to 4096", MIXED, 16, 16, 128, True),
    Batch("32 to 4096", MIXED, 32, 8, 128, False),
    Batch("32 to 4096", MIXED, 32, 32, 64, True),
)
# Sequences, keys and queries of each; 32 heads of 128 dimensions on 8 heads of keys.
CACHES = (
    *((1, 4096, 1), (1, 32768, 1), (1, 131072, 1), (16, 4096, 1), (16, 32768, 1), (64, 4096, 1), (256, 1024, 1)),
    *((8, 16384, 4), (2, 16384, 512), (4, 4096, 4096)),
)
PAGE_SIZES = (16, 64, 128, 256)


def cumulated(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths], device="cuda").cumsum(0, dtype=torch.int32)


def drawn(*shape: int, gradient: bool = False) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=gradient)


class Clock:
    """Times calls in turns, each after a write of 256 MiB."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.other = torch.empty(64 * 2**20, dtype=torch.int32, device="cuda")

    def medians(self, calls: Calls) -> dict[str, float]:
        """Microseconds."""
        times: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
        for i in range(self.samples + 2):
            for name, call in calls.items():
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                self.other.zero_()
                begin.record()
                call()
                end.record()
                if i >= 2:  # The first ones warm up.
                    times[name].append((begin, end))
        torch.cuda.synchronize()
        return {
            name: round(1000 * statistics.median(begin.elapsed_time(end) for begin, end in pairs), 1)
            for name, pairs in times.items()
        }


def portable(package: ModuleType, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call with flash_attention on its path for every GPU."""
    return on_path(call, f"{package.__name__}_flash_attention_path".upper(), "sm80")


def varlen_attn(causal: bool) -> Callable[..., Tensor]:
    """PyTorch's, whose argument for a causal mask has had two names."""
    from torch.nn.attention import varlen

    by_window = "window_size" in inspect.signature(varlen.varlen_attn).parameters
    option = {"window_size": (-1, 0)} if by_window else {"is_causal": True}
    return lambda *args: varlen.varlen_attn(*args, **(option if causal else {}))


class Form(NamedTuple):
    """An implementation: its call, and the tensors that take a gradient."""

    call: Callable[[], Any]
    leaves: list[Tensor]


def forms_of(batch: Batch, package: ModuleType) -> dict[str, Form]:
    starts, longest, causal = cumulated(batch.lengths), max(batch.lengths), batch.causal
    q = drawn(sum(batch.lengths), batch.heads, batch.dim, gradient=True)
    k, v = (drawn(len(q), batch.kv_heads, batch.dim, gradient=True) for _ in range(2))
    shared = batch.heads // batch.kv_heads
    wide = [tensor.detach().repeat_interleave(shared, 1).requires_grad_() for tensor in (k, v)]
    peer = varlen_attn(causal)
    forms = {
        "op": Form(lambda: package.flash_attention_varlen(q, k, v, starts, starts, causal=causal), [q, k, v]),
        "varlen_attn": Form(lambda: peer(q, *wide, starts, starts, longest, longest), [q, *wide]),
    }
    installed = peers_of(
        (FLASH_ATTN_4, lambda: flash_attn_4_varlen(q, k, v, starts, longest, causal)),
        (FLASHINFER, lambda: flashinfer_varlen(q.detach(), k.detach(), v.detach(), starts, causal)),
    )
    # FlashInfer has no gradient.
    forms |= {name: Form(call, [] if name == FLASHINFER else [q, k, v]) for name, call in installed.items()}
    if set(batch.lengths) == {longest}:
        dense = [tensor.detach().unflatten(0, (-1, longest)).requires_grad_() for tensor in (q, k, v)]
        forms["dense"] = Form(lambda: package.flash_attention(*dense, causal=causal), dense)
        forms["dense sm80"] = Form(portable(package, forms["dense"].call), dense)
    return forms


def gradient_of(form: Form) -> Callable[[], Any]:
    output = form.call()
    grad = torch.randn_like(output)
    return lambda: torch.autograd.grad(output, form.leaves, grad, retain_graph=True)


def varlen_rows(package: ModuleType, clock: Clock) -> Iterator[dict[str, Any]]:
    for batch in BATCHES:
        forms = forms_of(batch, package)
        facts = {**batch._asdict(), "lengths": sorted(set(batch.lengths)), "sequences": len(batch.lengths)}
        with torch.no_grad():
            yield {**facts, "direction": "forward", "us": clock.medians({name: forms[name].call for name in forms})}
        backward = {name: gradient_of(form) for name, form in forms.items() if form.leaves}
        if "dense sm80" in backward:
            backward["dense sm80"] = portable(package, backward["dense sm80"])
        yield {**facts, "direction": "backward", "us": clock.medians(backward)}


def calls_over_pages(package: ModuleType, q: Tensor, k: Tensor, v: Tensor, size: int) -> Calls:
    """The op and its peers with these keys and values in pages of `size` rows, in random order."""
    (sequences, queries), (keys, kv_heads, dim) = q.shape[:2], k.shape[1:]
    order = torch.randperm(sequences * keys // size, device="cuda")
    pages = [torch.empty_like(tensor).view(-1, size, kv_heads, dim) for tensor in (k, v)]
    for tensor, cache in zip((k, v), pages, strict=True):
        cache[order] = tensor.view(cache.shape)
    starts, table = cumulated([queries] * sequences), order.int().view(sequences, -1)
    lengths = torch.full((sequences,), keys, device="cuda", dtype=torch.int32)
    args = q.flatten(0, 1), *pages, starts, table
    peers = peers_of(
        (FLASH_ATTN_4, lambda: flash_attn_4_paged(*args, lengths, queries, keys)),
        (FLASHINFER, lambda: flashinfer_paged(*args, queries)),
    )
    return {
        f"pages of {size}": lambda: package.flash_attention_paged(*args, lengths, causal=True),
        **{f"{name}, pages of {size}": call for name, call in peers.items()},
    }


def paged_rows(package: ModuleType, clock: Clock) -> Iterator[dict[str, Any]]:
    for sequences, keys, queries in CACHES:
        q = drawn(sequences, queries, 32, 128)
        k, v = (drawn(sequences, keys, 8, 128) for _ in range(2))
        calls: Calls = {"dense": lambda q=q, k=k, v=v: package.flash_attention(q, k, v, causal=True)}
        for size in PAGE_SIZES:
            calls |= calls_over_pages(package, q, k, v, size)
        facts = {"sequences": sequences, "keys": keys, "queries": queries}
        yield {**facts, "us": clock.medians(calls)}


def append_rows(package: ModuleType, clock: Clock) -> Iterator[dict[str, Any]]:
    """New rows in pages of 64, with rotary embedding and without; bytes are those of the rows, read and written."""
    for sequences, added in ((64, 1), (8, 2048), (16, 4096)):
        k, v = (drawn(sequences * added, 8, 128) for _ in range(2))
        columns = -(-added // 64)
        pages = [drawn(sequences * columns, 64, 8, 128) for _ in range(2)]
        table = torch.randperm(sequences * columns, device="cuda").int().view(sequences, -1)
        lengths = torch.full((sequences,), added, device="cuda", dtype=torch.int32)
        args = k, v, *pages, cumulated([added] * sequences), table, lengths
        angles = torch.randn(2, added, 64, device="cuda")
        calls: Calls = {
            "op": lambda args=args: package.append_to_cache(*args),
            "op, rotated": lambda args=args, angles=angles: package.append_to_cache(*args, *angles),
        }
        yield {"sequences": sequences, "added": added, "bytes": 4 * k.numel() * 2, "us": clock.medians(calls)}


PARTS = {"varlen": varlen_rows, "paged": paged_rows, "append": append_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    package, clock = import_package(options.project), Clock(options.samples)
    result: dict[str, Any] = {
        "kind": "attention for serving",
        "environment": {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__},
        "peers": versions(),
    }
    for part in options.only:
        result[part] = []
        for row in PARTS[part](package, clock):
            result[part].append(row)
            print(part, *(f"{key}={value}" for key, value in row.items()), flush=True)
            if options.json:
                results_file.write(options.json, result)


if __name__ == "__main__":
    main()
