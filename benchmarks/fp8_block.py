"""A transformer block with random weights, from bfloat16 to 8-bit floating point: its speed and its error on this GPU.

    python benchmarks/fp8_block.py --project DIR [--tokens 8192] [--samples 20] [--json FILE]

DIR is a built project with rms_norm, swiglu, rms_norm_fp8, swiglu_fp8, quantize_fp8, linear_fp8 and
flash_attention_fp8 under their own names. The block is a norm, a projection to queries, keys and values, causal
attention, a projection back, a norm, and an MLP with SwiGLU, each half added to what came in. Attention is PyTorch's,
in bfloat16, unless said:

    bfloat16                 the project's rms_norm and swiglu, and PyTorch's products
    ours, rows               rms_norm_fp8, swiglu_fp8 and quantize_fp8 by row, linear_fp8 with fast sums
    ours, blocks             the same by groups, weights by blocks, promoted sums
    ours, rows, attention    as ours by row; the projection's result is codes, and flash_attention_fp8 reads them
    ours, blocks, attention  likewise by groups and blocks
    torch, rows              the same as ours by row, by torch.compile and PyTorch's scaled_mm

Queries, keys and values in 8 bits share one scale, by which the largest of them in bfloat16 is 448: in a model a
calibration finds it.

All versions take turns, with a cold L2 cache. The error is that of what the block adds to its input, against float32:
the root of the mean square over that of the exact result.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import results_file
from kernelgen.lab import statistics
from kernelgen.worker.clock import CudaClock
from kernelgen.worker.environment import describe
from project import import_package

HIDDEN, HEADS, HEAD, MLP, SEQUENCE = 4096, 32, 128, 14336, 4096
EPS = 1e-5
Weights = dict[str, Tensor]
Block = Callable[[Tensor], Tensor]


def draw_weights() -> Weights:
    def draw(rows: int, columns: int) -> Tensor:
        return (torch.randn(rows, columns, device="cuda") * columns**-0.5).bfloat16()

    norms = {name: (1 + 0.1 * torch.randn(HIDDEN, device="cuda")).bfloat16() for name in ("before", "between")}
    attention = {"qkv": draw(3 * HIDDEN, HIDDEN), "out": draw(HIDDEN, HIDDEN)}
    return {**norms, **attention, "up": draw(2 * MLP, HIDDEN), "down": draw(HIDDEN, MLP)}


def attention(qkv: Tensor) -> Tensor:
    q, k, v = qkv.view(-1, min(SEQUENCE, len(qkv)), 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(-1, HIDDEN)


def exact_block(weights: Weights) -> Block:
    w = {name: tensor.float() for name, tensor in weights.items()}

    def block(x: Tensor) -> Tensor:
        x = x.float()
        middle = x + attention(functional.rms_norm(x, (HIDDEN,), w["before"], EPS) @ w["qkv"].T) @ w["out"].T
        gate, up = (functional.rms_norm(middle, (HIDDEN,), w["between"], EPS) @ w["up"].T).chunk(2, -1)
        return middle + (functional.silu(gate) * up) @ w["down"].T

    return block


def bfloat16_block(package: Any, w: Weights) -> Block:
    def block(x: Tensor) -> Tensor:
        attended = attention(package.rms_norm(x, w["before"], EPS) @ w["qkv"].T) @ w["out"].T
        normalised, middle = package.rms_norm(attended, w["between"], EPS, x)
        gate, up = (normalised @ w["up"].T).chunk(2, -1)
        return middle + package.swiglu(gate, up) @ w["down"].T

    return block


def attention_of_codes(package: Any, codes: Tensor, scale: Tensor) -> Tensor:
    q, k, v = codes.view(-1, min(SEQUENCE, len(codes)), 3, HEADS, HEAD).unbind(2)
    of_queries = scale.expand(*q.shape[:3], 1)
    of_keys = scale.expand(len(k), -(-k.shape[1] // 128), HEADS)
    return package.flash_attention_fp8(q, of_queries, k, of_keys, v, of_keys, True).view(-1, HIDDEN)


def our_block(package: Any, weights: Weights, by_row: bool, qkv_scale: Tensor | None = None) -> Block:
    """With a scale of queries, keys and values, attention is in 8 bits too."""
    scaling, of_weight = ("row", "row") if by_row else ("group", "block")
    norms = weights["before"], weights["between"]
    w = {name: package.quantize_fp8(t, of_weight) for name, t in weights.items() if t.ndim == 2}

    def product(codes: Tensor, scales: Tensor, name: str, **options: Any) -> Tensor:
        return package.linear_fp8(codes, scales, *w[name], fast_accumulation=by_row, **options)

    def attend(codes: Tensor, scales: Tensor) -> Tensor:
        if qkv_scale is None:
            return attention(product(codes, scales, "qkv"))
        qkv = product(codes, scales, "qkv", dtype=torch.float8_e4m3fn, y_scale=qkv_scale)
        return attention_of_codes(package, qkv, qkv_scale)

    def block(x: Tensor) -> Tensor:
        attended = attend(*package.rms_norm_fp8(x, norms[0], EPS, scaling=scaling))
        attended = product(*package.quantize_fp8(attended, scaling), "out")
        *normalised, middle = package.rms_norm_fp8(attended, norms[1], EPS, x, scaling)
        activated = package.swiglu_fp8(product(*normalised, "up"), None, scaling)
        return middle + product(*activated, "down")

    return block


def torch_block(weights: Weights) -> Block:
    """By row. What is not a product is compiled, so that quantising is fused with what comes before."""
    from torch.nn.functional import ScalingType, scaled_mm

    def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
        scales = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
        return (x.float() / scales).clamp(-448, 448).to(torch.float8_e4m3fn), scales

    norms = weights["before"], weights["between"]
    w = {name: quantise(tensor) for name, tensor in weights.items() if tensor.ndim == 2}
    kind = ScalingType.RowWise

    def product(codes: Tensor, scales: Tensor, name: str) -> Tensor:
        of_weight, weight_scales = w[name]
        return scaled_mm(codes, of_weight.T, scales, kind, weight_scales.T, kind, use_fast_accum=True)

    @torch.compile(dynamic=False)
    def norm(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return quantise(functional.rms_norm(x, (HIDDEN,), weight, EPS))

    @torch.compile(dynamic=False)
    def norm_of_sum(x: Tensor, attended: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        middle = x + attended
        return *quantise(functional.rms_norm(middle, (HIDDEN,), weight, EPS)), middle

    @torch.compile(dynamic=False)
    def activate(gate_and_up: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = gate_and_up.chunk(2, -1)
        return quantise(functional.silu(gate) * up)

    compiled_quantise = torch.compile(quantise, dynamic=False)

    def block(x: Tensor) -> Tensor:
        attended = product(*compiled_quantise(attention(product(*norm(x, norms[0]), "qkv"))), "out")
        *normalised, middle = norm_of_sum(x, attended, norms[1])
        return middle + product(*activate(product(*normalised, "up")), "down")

    return block


def error_of(result: Tensor, exact: Tensor, x: Tensor) -> float:
    added = exact.double() - x.double()
    return float((result.double() - exact.double()).square().mean().sqrt() / added.square().mean().sqrt())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, required=True, help="a built project")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--samples", type=int, default=20, help="samples of each version")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    package = import_package(options.project.resolve())
    torch.manual_seed(0)
    weights = draw_weights()
    x = torch.randn(options.tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        qkv = package.rms_norm(x, weights["before"], EPS) @ weights["qkv"].T
        qkv_scale = qkv.abs().amax().float() / torch.finfo(torch.float8_e4m3fn).max
        blocks = {
            "bfloat16": bfloat16_block(package, weights),
            "ours, rows": our_block(package, weights, True),
            "ours, blocks": our_block(package, weights, False),
            "ours, rows, attention": our_block(package, weights, True, qkv_scale),
            "ours, blocks, attention": our_block(package, weights, False, qkv_scale),
            "torch, rows": torch_block(weights),
        }
        exact = exact_block(weights)(x)
        errors = {name: error_of(block(x), exact, x) for name, block in blocks.items()}
        clock, times = CudaClock(), {name: [] for name in blocks}
        for _ in range(options.samples):
            for name in random.sample(list(blocks), len(blocks)):
                times[name].append(clock.sample([lambda name=name: blocks[name](x)])[0])
    medians = {name: statistics.median(values) for name, values in times.items()}
    facts: dict[str, Any] = {"kind": "fp8 block", "command": "python benchmarks/fp8_block.py --project DIR"}
    facts["environment"] = describe("cuda", options.project.resolve(), {"samples": options.samples})
    facts["tokens"] = options.tokens
    facts["versions"] = {}
    for name, median in medians.items():
        speed = medians["bfloat16"].value / median.value
        facts["versions"][name] = {"us": 1e6 * median.value, "error": errors[name], "speed": speed}
        print(f"{name:23} {1e6 * median.value:9.1f} us  {speed:5.2f} x bfloat16  error {errors[name]:.4f}", flush=True)
    if options.json:
        results_file.write(options.json, facts)


if __name__ == "__main__":
    main()
