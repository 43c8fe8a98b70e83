"""How fast the recipes of 8-bit floating point are on this GPU, beside every peer that is installed.

    python benchmarks/fp8.py --project DIR [--samples 30] [--ops quantize_fp8] [--without torch.compile] [--json FILE]

As fused.py, whose rows these are.
"""

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import fp8_training
import results_file
from compiled import compiled
from fused import row, show
from kernelgen.errors import LabError
from kernelgen.worker import ceilings
from kernelgen.worker.environment import describe
from kernelgen.worker.op import Op, load
from peers import versions
from project import import_package

OPS = ("linear_fp8", "quantize_fp8", "rms_norm_fp8", "swiglu_fp8")
# The share of this GPU's copy rate to reach, where so many bytes move at least.
BOUND, BOUND_BYTES = 0.85, 64 * 2**20
# The share of the speed of PyTorch's product to reach: by row with 1,024 rows of x and more, and else. Training has to
# be as fast as PyTorch's layer in 16 bits.
PRODUCT, PRODUCT_BOUNDS = "torch scaled_mm", (0.95, 1.0)
TRAINING, LINEAR = "training", "torch linear"
# Bias and activation may take 3% of the same product's time without them. The product with each activation is a case.
BARE, EPILOGUE = "without bias and activation", 0.03
ACTIVATIONS = {"gelu": 2, "silu": 4}  # As lab.py numbers them.


def with_epilogues(op: Op) -> Op:
    """The op with a case for each activation behind each product of 1,024 rows and more, beside that product alone."""

    def bare(*args: Any) -> torch.Tensor:
        return op.function(*args[:4], None, "none", *args[6:])

    cases = {
        f"{case}, bias and {name}": {**sizes, "biased": 1, "activation": number}
        for case, sizes in op.cases.items()
        if sizes["m"] >= 1024 and not sizes["biased"] and TRAINING not in case
        for name, number in ACTIVATIONS.items()
    }
    return dataclasses.replace(op, cases=cases, peers={BARE: bare})


def product_bound(case: str, sizes: dict[str, int], peers: Mapping[str, Any]) -> dict[str, Any]:
    if TRAINING in case:
        return {"of": LINEAR, "fraction": 1.0}
    if BARE in peers:
        return {"of": BARE, "fraction": 1 / (1 + EPILOGUE)}
    by_row_with_many_rows = "rows" in case and sizes["m"] >= 1024
    return {"of": PRODUCT, "fraction": PRODUCT_BOUNDS[0 if by_row_with_many_rows else 1]}


def measurements(package: str, names: list[str], without: list[str]) -> Iterator[tuple[Op, str, bool]]:
    """Each op's cases, forward; and backward those of training, beside PyTorch's own layer in 8 bits too; last those of
    products with an epilogue, beside the same ones without."""
    for op in (load(package, name) for name in names):
        op = dataclasses.replace(op, peers={name: peer for name, peer in op.peers.items() if name not in without})
        trained = dataclasses.replace(op, peers={**op.peers, PRODUCT: fp8_training.layer})
        for case in op.cases:
            if TRAINING in case:
                yield from ((trained, case, backward) for backward in (False, True))
            else:
                yield op, case, False
        if op.name == "linear_fp8":
            epilogues = with_epilogues(op)
            yield from ((epilogues, case, False) for case in epilogues.cases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, required=True, help="a built project")
    parser.add_argument("--ops", nargs="+", choices=OPS, default=OPS)
    parser.add_argument("--samples", type=int, default=30, help="samples of each implementation of each case")
    parser.add_argument("--without", nargs="*", default=[], metavar="PEER", help="peers to leave out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    project = options.project.resolve()
    package, dtype = import_package(project).__name__, torch.bfloat16

    facts: dict[str, Any] = {"kind": "kernelgen kernels", "title": "8-bit floating point"}
    facts["command"] = "python benchmarks/fp8.py --project DIR"
    facts["environment"] = describe("cuda", project, {"samples": options.samples})
    facts["peers"] = versions()
    facts["ceilings"] = ceilings.measure("cuda", (dtype,))
    facts["kernels"], facts["compile_seconds"] = compiled(project, tuple(options.ops))
    print(f"copy: {facts['ceilings']['copy_bytes_per_s'] / 1e9:.0f} GB/s", flush=True)
    facts["rows"] = []
    for op, case, backward in measurements(package, options.ops, options.without):
        try:
            measured = row(op, case, dtype, backward, options.samples, BOUND)
        except (LabError, torch.OutOfMemoryError) as error:
            print(f"{op.name} {case}: {error}", file=sys.stderr)
            continue
        if op.name == "linear_fp8":
            measured |= {"path": "sm90", "bound": product_bound(case, op.cases[case], op.peers)}
        elif measured["bytes"] < BOUND_BYTES:
            measured["bound"] = None
        facts["rows"].append(measured)
        show(facts["rows"][-1], facts["ceilings"]["copy_bytes_per_s"])
        if options.json:  # After each, so that an interrupt loses little.
            results_file.write(options.json, facts)


if __name__ == "__main__":
    main()
