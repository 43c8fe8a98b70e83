"""Attention in 8 bits on a GPU, beside attention in bfloat16.

    python benchmarks/fp8_attention.py --project DIR [--samples 20] [--json FILE]

DIR is a built project with flash_attention_fp8 and flash_attention under their own names. 16,384 tokens and a model
dimension of 2,048. Codes and scales are made before ("ours"); peers get the same numbers in bfloat16: flash_attention
("ours, bfloat16") and PyTorch's scaled_dot_product_attention by cuDNN and by FlashAttention. Where
`nvidia-cudnn-frontend` is installed, cuDNN's own attention in 8 bits is a peer too, with a scale for each tensor and a
result in 8 bits. Microseconds are medians, all implementations of a row take turns, and the L2 cache is flushed before
each call. `error` is the root mean square of each result's difference to that of numbers which were not quantised, in
float32, over its own root mean square, for a few heads.
"""

import argparse
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import cudnn_fp8
import peers
import results_file
from project import import_package
from serving import Calls, Clock, drawn

TOKENS, MODEL = 16384, 2048
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
# The share of our bfloat16 forward's speed to reach with heads of 128 and 4,096 keys and more.
BOUND, OURS, BFLOAT16, CUDNN = 1.4, "ours", "ours, bfloat16", "cudnn, 8 bits"
BACKENDS = {"torch cudnn": SDPBackend.CUDNN_ATTENTION, "torch flash": SDPBackend.FLASH_ATTENTION}


def torch_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, backend: SDPBackend) -> Tensor:
    with sdpa_kernel([backend]):
        heads_first = (tensor.transpose(1, 2) for tensor in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=causal).transpose(1, 2)


def calls_of(package: ModuleType, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Calls:
    quantise = import_module(f"{package.__name__}.ops.flash_attention_fp8.quantise")
    codes = quantise.quantised(q, k, v)
    return {
        OURS: lambda: package.flash_attention_fp8(*codes, causal),
        BFLOAT16: lambda: package.flash_attention(q, k, v, causal=causal),
        **{
            name: lambda backend=backend: torch_attention(q, k, v, causal, backend)
            for name, backend in BACKENDS.items()
        },
    }


def error(result: Tensor, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> float:
    """Of the first batch's first head."""
    heads = (tensor[:1, :, :1].float().transpose(1, 2) for tensor in (q, k, v))
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]):
        exact = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal).transpose(1, 2)
    return ((result[:1, :, :1].float() - exact).norm() / exact.norm()).item()


def rows(package: ModuleType, clock: Clock) -> Iterator[dict[str, Any]]:
    for dim in (64, 128):
        for causal in (False, True):
            for length in LENGTHS:
                q, k, v = (drawn(TOKENS // length, length, MODEL // dim, dim) for _ in range(3))
                calls = calls_of(package, q, k, v, causal)
                results = {name: calls[name]() for name in (OURS, BFLOAT16)}
                if cudnn_fp8.is_installed():
                    calls[CUDNN], scale = cudnn_fp8.attention(q, k, v, causal)
                    results[CUDNN] = calls[CUDNN]().float() * scale
                errors = {name: round(error(result, q, k, v, causal), 5) for name, result in results.items()}
                us = clock.medians(calls)
                operations = 4 * TOKENS * length * MODEL // (2 if causal else 1)
                yield {
                    "op": "flash_attention_fp8",
                    "dim": dim,
                    "causal": causal,
                    "length": length,
                    "us": us,
                    "error": errors,
                    "tflops": round(operations / us[OURS] / 1e6),
                    "of bfloat16": round(us[BFLOAT16] / us[OURS], 3),
                    **({"of cudnn": round(us[CUDNN] / us[OURS], 3)} if CUDNN in us else {}),
                    "bound": BOUND if dim == 128 and length >= 4096 else None,
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    package, clock = import_package(options.project), Clock(options.samples)
    result: dict[str, Any] = {
        "kind": "attention in 8 bits",
        "command": "python benchmarks/fp8_attention.py --project DIR",
        "environment": {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__},
        "peers": peers.versions(),
        "rows": [],
    }
    for row in rows(package, clock):
        result["rows"].append(row)
        print(*(f"{key}={value}" for key, value in row.items()), flush=True)
        if options.json:
            results_file.write(options.json, result)


if __name__ == "__main__":
    main()
