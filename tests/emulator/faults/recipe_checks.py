"""Checks that call the recipes' kernels, and what comes of them: with a fault planted, or without.

They call functions of entries/, which have the few instantiations that a check needs: a project's library takes minutes
to compile, and each fault needs one of its own.
"""

import functools
import importlib.util
import itertools
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from tests.emulator import test_recipes as recipes
from tests.emulator import test_sm90_varlen as varlen
from tests.emulator import test_vocabulary as vocabulary
from tests.emulator.conftest import ALL_SCHEDULES, ENTRIES, RECIPES, build, copy_op
from tests.emulator.faults import Fault
from tests.emulator.faults.outcome import Outcome, outcome_of
from tests.emulator.faults.registered import REGISTRATION, RegisteredMemory, RegisteringLibrary
from tests.stamped.conftest import stamp


def _norms(compiled, reference, memory) -> None:
    aligned_or_short = ((9, 1021, 0, 0), (3, 4100, 0, 0), (37, 20, 0, 0), (9, 512, 0, 0))
    for rows, n, shift, apart in (*aligned_or_short, (19, 1021, 1, 5)):
        recipes.check_norm(compiled, reference, memory, "rms_norm", True, rows, n, 90, torch.float32, shift, apart)


def _elementwise(compiled, reference, memory) -> None:
    for shift in (0, 1):
        recipes.test_elementwise(compiled, reference, memory, torch.float32, 1003, shift)


def _linear_activation(compiled, reference, memory) -> None:
    m, n, k = 330, 392, 328
    x, bias = (memory.copy(recipes.random(*size, dtype=torch.float16)) for size in ((m, k), (n,)))
    weight = memory.copy((recipes.random(n, k) / k**0.5).to(torch.float16))
    expected = reference("linear_activation").linear_activation(x.double(), weight.double(), bias.double(), "none")
    for tile in CHECKED_TILES:
        for seed in ALL_SCHEDULES:
            y, z = (memory.empty(m, n, dtype=torch.float16) for _ in "yz")
            compiled("")(tile, x, weight, bias, y, z, m, n, k, seed=seed, multiprocessors=8)
            recipes.close(z, expected)


def _direct(compiled, reference, memory) -> None:
    """Fewer and more tiles than one, of which several warps share k."""
    for high, wide, warps, m, n, k in ((1, 1, 2, 5, 17, 45), (2, 4, 4, 37, 41, 131)):
        x, bias = (memory.copy(recipes.random(*size, dtype=torch.float16), shift=1) for size in ((m, k), (n,)))
        weight = memory.copy((recipes.random(n, k) / k**0.5).to(torch.float16), shift=1)
        expected = reference("linear_activation").linear_activation(x.double(), weight.double(), bias.double(), "none")
        for seed in ALL_SCHEDULES:
            y, z = (memory.empty(m, n, dtype=torch.float16) for _ in "yz")
            compiled("")(f"direct_{high}_{wide}", x, weight, bias, y, z, m, n, k, warps, seed=seed)
            recipes.close(z, expected)


def _flash_attention(compiled, reference, memory) -> None:
    for seed in ALL_SCHEDULES:
        attention = recipes.Attention(memory, 64, (1, 2, 1, 150, 260, 64), causal=True)
        inputs = (attention.q.float(), attention.k.float(), attention.v.float())
        expected = reference("flash_attention").flash_attention(*inputs, causal=True)
        recipes.close(attention.forward(compiled("flash_attention"), seed=seed)[0], expected)


def _flash_attention_gradient(compiled, reference, memory) -> None:
    """Of two tiles of keys and four of queries."""
    attention = recipes.Attention(memory, 64, (1, 2, 1, 150, 100, 64), window=(60, 60))
    leaves = [tensor.float().requires_grad_() for tensor in (attention.q, attention.k, attention.v)]
    expected, lse = reference("flash_attention").flash_attention(*leaves, window=(60, 60), return_lse=True)
    grad = attention.random_tensor(*expected.shape)
    expected.backward(grad.float())
    out, lse = memory.copy(expected.detach().half()), memory.copy(lse.detach())
    for seed in ALL_SCHEDULES:
        grads = attention.backward(compiled("flash_attention"), out, lse, grad, None, False, seed=seed)
        for gradient, leaf in zip(grads, leaves, strict=True):
            recipes.close(gradient, leaf.grad)


def _sm90_attention_forward(compiled, reference, memory) -> None:
    for seed in ALL_SCHEDULES:
        attention = recipes.Attention(memory, 64, (1, 2, 1, 200, 300, 64), causal=True)
        inputs = (attention.q.float(), attention.k.float(), attention.v.float())
        expected = reference("flash_attention").flash_attention(*inputs, causal=True)
        out, lse = attention.empty_like(attention.q), memory.empty(*attention.rows)
        compiled("")("forward", *attention.inputs(), out, lse, seed=seed, multiprocessors=2)
        recipes.close(out, expected)


def _sm90_ordered_gradient(compiled, reference, memory) -> None:
    """Of the deterministic backward: four tiles of keys, not the same for each of two tiles of queries."""
    _ordered_gradient(compiled, reference, memory, 64)


def _sm90_stepped_gradient(compiled, reference, memory) -> None:
    """The same of heads of 96, whose tiles of queries have two steps."""
    _ordered_gradient(compiled, reference, memory, 96)


def _ordered_gradient(compiled, reference, memory, dims: int) -> None:
    options = {"window": (300, 60)}
    attention = recipes.Attention(memory, dims, (1, 2, 1, 200, 520, dims), **options)
    leaves = [tensor.float().requires_grad_() for tensor in (attention.q, attention.k, attention.v)]
    expected, lse = reference("flash_attention").flash_attention(*leaves, **options, return_lse=True)
    grad = attention.random_tensor(*expected.shape)
    expected.backward(grad.float())
    out, lse = memory.copy(expected.detach().half()), memory.copy(lse.detach())
    first = None
    for seed in ALL_SCHEDULES:
        grads = [attention.empty_like(tensor) for tensor in (attention.q, attention.k, attention.v)]
        scratch = memory.empty(512, 2), memory.empty(512, dims), memory.empty(5, dtype=torch.int32)
        arguments = (*attention.inputs(), out, lse, grad, *grads, *scratch)
        compiled("")("backward", *arguments, seed=seed, multiprocessors=2)
        for gradient, leaf in zip(grads, leaves, strict=True):
            recipes.close(gradient, leaf.grad)
        first = first or grads
        assert all(map(torch.equal, first, grads)), f"seed {seed}: other bits"


def _sm90_few_keys_gradient(compiled, reference, memory) -> None:
    """Of one tile of keys, to whose first tile of queries there is no key, and of a group of heads in two splits."""
    for seed in ALL_SCHEDULES:
        attention = recipes.Attention(memory, 64, (1, 2, 1, 200, 40, 64), causal=True)
        leaves = [tensor.float().requires_grad_() for tensor in (attention.q, attention.k, attention.v)]
        expected, lse = reference("flash_attention").flash_attention(*leaves, causal=True, return_lse=True)
        grad = attention.random_tensor(*expected.shape)
        expected.backward(grad.float())
        out, lse = memory.copy(expected.detach().half()), memory.copy(lse.detach())
        grads = [attention.empty_like(tensor) for tensor in (attention.q, attention.k, attention.v)]
        arguments = (*attention.inputs(), out, lse, grad, *grads, memory.empty(512, 2), memory.empty(2, 64, 128))
        compiled("")("backward", *arguments, seed=seed, multiprocessors=2)
        for gradient, leaf in zip(grads, leaves, strict=True):
            recipes.close(gradient, leaf.grad)


def _sm90_wide_gradient(compiled, reference, memory) -> None:
    """Of heads of 192 and of 256, in any order and in a fixed one: more tiles of queries than stages, and two tiles of
    keys, each with two blocks."""
    for seed, ordered in itertools.product(ALL_SCHEDULES, (False, True)):
        dims = (192, 256)[(seed + ordered) % 2]
        attention = recipes.Attention(memory, dims, (1, 1, 1, 200, 150, dims))
        leaves = [tensor.float().requires_grad_() for tensor in (attention.q, attention.k, attention.v)]
        expected, lse = reference("flash_attention").flash_attention(*leaves, return_lse=True)
        grad = attention.random_tensor(*expected.shape)
        expected.backward(grad.float())
        out, lse = memory.copy(expected.detach().half()), memory.copy(lse.detach())
        grads = [attention.empty_like(tensor) for tensor in (attention.q, attention.k, attention.v)]
        accum = memory.empty(256, dims) if ordered else memory.empty(256, dims).zero_()
        scratch = memory.empty(256, 2), accum, memory.empty(5, dtype=torch.int32) if ordered else None
        arguments = (*attention.inputs(), out, lse, grad, *grads, *scratch)
        compiled("")("backward", *arguments, seed=seed, multiprocessors=2)
        for gradient, leaf in zip(grads, leaves, strict=True):
            recipes.close(gradient, leaf.grad)


def _sm90_drawn_gradient(compiled, reference, memory) -> None:
    """Of sequences of different lengths: blocks draw several tiles of keys, for some of which there are no queries."""
    for case in ("lengths", "one tile each", "splits"):
        varlen.check(compiled(""), reference, memory, varlen.CASES[case], ALL_SCHEDULES)


def _sm90_drawn_wide_gradient(compiled, reference, memory) -> None:
    """The same of wide heads, of which blocks draw tiles for either gradient."""
    for case in ("lengths", "splits"):
        varlen.check(compiled(""), reference, memory, varlen.WIDE_CASES[case], ALL_SCHEDULES)


def _include(compiled, reference, memory) -> None:
    kernels = compiled("include")
    for seed in ALL_SCHEDULES:
        for group in ("lanes", "part", "block", "cluster"):
            vocabulary.test_groups_take_each_row_once_and_sum_it(kernels, memory, group, 50, 100, seed)
        for group in ("lanes", "part", "block"):
            vocabulary.test_a_pipeline_loads_rows_and_column_sums_add_them(kernels, memory, group, 37, 60, 2, seed)
    vocabulary.test_no_more_clusters_are_launched_than_fit(kernels, 100, 8)
    vocabulary.test_a_persistent_block_is_filled_with_groups(kernels, 64, 1000, 256, 4)
    vocabulary.test_a_divisor_divides_every_int(kernels, 7)
    for steps in range(6):
        vocabulary.test_a_ring_advances_by_many_steps_at_once(kernels, steps)


CHECKED_TILES = ("four_beside", "ping_pong", "halves", "swapped_alone")


def _checked_tiles() -> str:
    """The entry with CHECKED_TILES only: clusters of blocks beside and below each other, ping-pong, a tile that two
    blocks split, and swapped operands."""
    lines = (ENTRIES / "linear_activation_sm90.cu").read_text().splitlines()
    return "\n".join(
        line
        for line in lines
        if not line.startswith(("FORWARD(", "SWAPPED(")) or line[8:].split(",")[0] in CHECKED_TILES
    )


DIRECT = """
#define INSTANCE_T float16
#include "sm80/direct.cu"
using namespace linear_activation_kernel;
#define DIRECT(high, wide) \\
  extern "C" cudaError_t direct_##high##_##wide( \\
      const float16* x, const float16* weight, const float16* bias, float16* y, float16* z, int64_t m, int64_t n, \\
      int64_t k, int warps) { \\
    using Tile = sm80::DirectTile<high, wide>; \\
    return sm80::direct_by<float16, GeluTanh, Tile>({x, weight, bias, y, z, m, n, k}, warps, nullptr); \\
  }
DIRECT(1, 1)
DIRECT(2, 4)
"""


SM90_ATTENTION = """
#define INSTANCE_T float16
#define INSTANCE_D 64
#include "flash_attention_problem.h"
#include "sm90/forward.cu"
extern "C" cudaError_t forward(
    const Shape* shape, void* q, void* k, void* v, double softcap, void* out, float* lse) {
  static int counter;
  Forward p{problem(*shape, q, k, v, softcap), shape->of_queries(out), lse};
  p.tile_counter = &counter;
  return sm90::forward<float16, 64>(p, nullptr);
}
"""


SM90_ORDERED_GRADIENT = """
#define INSTANCE_T float16
#define INSTANCE_D 64
#define INSTANCE_KIND kOrdered
#include "flash_attention_problem.h"
#include "sm90/backward.cu"
extern "C" cudaError_t backward(
    const Shape* shape, void* q, void* k, void* v, double softcap, void* out, float* lse, void* grad, void* grad_q,
    void* grad_k, void* grad_v, float* stats, float* accum, int* progress) {
  const Backward p{
      problem(*shape, q, k, v, softcap), shape->of_queries(out), shape->of_queries(grad), shape->of_queries(grad_q),
      shape->of_keys(grad_k), shape->of_keys(grad_v), lse, nullptr, stats, accum, progress};
  return sm90::backward<float16, 64, BackwardKind::kOrdered>(p, nullptr);
}
"""


SM90_STEPPED_GRADIENT = SM90_ORDERED_GRADIENT.replace("INSTANCE_D 64", "INSTANCE_D 96").replace("16, 64", "16, 96")


SM90_FEW_KEYS_GRADIENT = """
#define INSTANCE_T float16
#define INSTANCE_D 64
#define INSTANCE_KIND kSingle
#include "flash_attention_problem.h"
#include "sm90/backward.cu"
extern "C" cudaError_t backward(
    const Shape* shape, void* q, void* k, void* v, double softcap, void* out, float* lse, void* grad, void* grad_q,
    void* grad_k, void* grad_v, float* stats, float* sums) {
  const Backward p{
      problem(*shape, q, k, v, softcap), shape->of_queries(out), shape->of_queries(grad), shape->of_queries(grad_q),
      shape->of_keys(grad_k), shape->of_keys(grad_v), lse, nullptr, stats, nullptr, nullptr, 2, sums};
  return sm90::backward<float16, 64, BackwardKind::kSingle>(p, nullptr);
}
"""


SM90_WIDE_GRADIENT = """
#define INSTANCE_T float16
#define INSTANCE_D 192
#define INSTANCE_KIND kOrdinary
#include "flash_attention_problem.h"
#include "sm90/backward_wide.cu"
template <BackwardKind kKind>
cudaError_t run(const Backward& p) {
  return p.dim == 192 ? sm90::backward<float16, 192, kKind>(p, nullptr)
                      : sm90::backward<float16, 256, kKind>(p, nullptr);
}
extern "C" cudaError_t backward(
    const Shape* shape, void* q, void* k, void* v, double softcap, void* out, float* lse, void* grad, void* grad_q,
    void* grad_k, void* grad_v, float* stats, float* accum, int* progress) {
  const Backward p{
      problem(*shape, q, k, v, softcap), shape->of_outputs(out), shape->of_outputs(grad), shape->of_queries(grad_q),
      shape->of_keys(grad_k), shape->of_values(grad_v), lse, nullptr, stats, accum, progress};
  return progress ? run<BackwardKind::kOrdered>(p) : run<BackwardKind::kOrdinary>(p);
}
"""


def _first_export(name: str) -> str:
    """An entry with the first of its element types only."""
    head, first, *_ = re.split(r"^(?=EXPORT\(|#if )", (ENTRIES / name).read_text(), flags=re.MULTILINE)
    return head + first


@dataclass(frozen=True)
class Check:
    """An entry, the op whose sources it is compiled with, and what is done with its functions."""

    op: str
    entry: str
    run: Callable[..., None]
    sources: tuple[str, ...] = ()


CHECKS = {
    "elementwise": Check("elementwise", _first_export("elementwise.cu"), _elementwise, ("kernel.cu",)),
    "rms_norm": Check("rms_norm", _first_export("rms_norm.cu"), _norms),
    "linear_activation": Check("linear_activation", _checked_tiles(), _linear_activation),
    "linear_direct": Check("linear_activation", DIRECT, _direct),
    "flash_attention": Check("flash_attention", _first_export("flash_attention.cu"), _flash_attention),
    "flash_attention_gradient": Check(
        "flash_attention", _first_export("flash_attention.cu"), _flash_attention_gradient
    ),
    "sm90_attention": Check("flash_attention", SM90_ATTENTION, _sm90_attention_forward),
    "sm90_ordered_gradient": Check("flash_attention", SM90_ORDERED_GRADIENT, _sm90_ordered_gradient),
    "sm90_stepped_gradient": Check("flash_attention", SM90_STEPPED_GRADIENT, _sm90_stepped_gradient),
    "sm90_few_keys_gradient": Check("flash_attention", SM90_FEW_KEYS_GRADIENT, _sm90_few_keys_gradient),
    "sm90_wide_gradient": Check("flash_attention", SM90_WIDE_GRADIENT, _sm90_wide_gradient),
    "sm90_drawn_gradient": Check("flash_attention_varlen", varlen.ENTRY, _sm90_drawn_gradient),
    "sm90_drawn_wide_gradient": Check("flash_attention_varlen", varlen.WIDE_ENTRY, _sm90_drawn_wide_gradient),
    "include": Check("elementwise", (ENTRIES / "vocabulary.cu").read_text(), _include),
}


def checked(name: str, fault: Fault | None = None) -> Outcome:
    """What comes of a check, of the recipes as they are or with a fault.

    Raises:
        EmulatorError: the kernels do not compile.
    """
    check = CHECKS[name]
    with _copied(check.op) as op:
        if fault:
            fault.apply(op)
        library = build(op, check.entry + REGISTRATION, check.sources)
    memory = RegisteredMemory()
    registering = RegisteringLibrary(library, memory)
    torch.manual_seed(0)

    def run() -> None:
        check.run(lambda op, sources=(), capability=90: registering, _reference, memory)
        memory.check()

    return outcome_of(run)


@contextmanager
def _copied(op: str) -> Iterator[Path]:
    """A copy of an op that may be changed."""
    project = Path(_project().name) / "copy"
    try:
        yield copy_op(_ops(), op, project)
    finally:
        shutil.rmtree(project)


@functools.cache
def _project() -> tempfile.TemporaryDirectory[str]:
    """A project with every recipe, for each process; it is removed when the process ends."""
    folder = tempfile.TemporaryDirectory()
    stamp(Path(folder.name) / "p", ops=[{"name": name, "recipe": name} for name in RECIPES])
    return folder


def _ops() -> Path:
    return Path(_project().name) / "p" / "src" / "demo_kernels" / "ops"


def _reference(op: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{op}_reference", _ops() / op / "reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
