"""The recipes of attention for serving pass their own tests, and faults in their kernels are found on the emulated GPU.

They are no part of the project of every recipe, whose build takes longest of all. What they share with flash_attention
is tested with that.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kernelgen.emulator.library import has_toolkit
from tests.conftest import with_sample

from .recipe_apart import Emulated, assert_passes_its_tests

OPS = ("append_to_cache", "flash_attention_paged", "flash_attention_varlen")
GPU = "sm_80"

# By recipe and file: what a line is, and what it becomes.
FAULTS = [
    # Where a sequence's rows are, and which belong to none.
    (
        "flash_attention_varlen",
        "packed_sequences.cuh",
        "return first_slot(sequence, tile, parts) <= slot;",
        "return true;",
    ),
    ("flash_attention_varlen", "packed_sequences.cuh", " + count + 1;", " + count;"),
    ("flash_attention_varlen", "packed_sequences.cuh", "offset < candidates && ", ""),
    ("flash_attention_varlen", "sequence.cuh", "(view, 0, head, extent_.first_key)", "(view, 0, head)"),
    ("flash_attention_varlen", "sequence.cuh", "if (number == p.queries.count)", "if (false)"),
    ("flash_attention_varlen", "sequence.cuh", "+ extent_.first_query + query", "+ query"),
    ("flash_attention_varlen", "backward_keys.cu", ", Sequence::Of::kKeys", ""),
    # A cache's pages, a group's heads, split keys.
    ("flash_attention_paged", "paged_rows.cuh", "numbers[row >> shift]", "numbers[0]"),
    ("flash_attention_paged", "paged_rows.cuh", "row & ((1 << shift) - 1)", "row"),
    (
        "flash_attention_paged",
        "sequence.cuh",
        "(kv_head - query) * p_.group.value() + row",
        "kv_head * p_.group.value()",
    ),
    ("flash_attention_paged", "attention_packed_rows.cuh", "mask.end(group.divide(row))", "mask.end(row)"),
    ("flash_attention_paged", "attention_forward.cuh", "marks ? kNoKeys : sum", "sum"),
    ("flash_attention_paged", "partial_softmax.h", "sum += weight * other.sum;", "sum += weight;"),
    ("flash_attention_paged", "partial_softmax.h", "group < thread.groups; ++group", "group < 1; ++group"),
    # Decoding: pages of a step, marks of rows without keys, more rows than a tile has, rows of no sequence.
    ("flash_attention_paged", "paged_rows.cuh", "place.number, i)", "place.number, 0)"),
    ("flash_attention_paged", "attention_decode.cuh", "marks ? kNoKeys : sum", "sum"),
    ("flash_attention_paged", "decode.cu", "row += kDecodeRows", "row += sequence.mask().queries"),
    ("flash_attention_paged", "decode.cu", " || !sequence.leaves_rows()) return", " || true) return"),
    # New rows' places, and rotation.
    ("append_to_cache", "kernel.cu", "p.lengths[sequence] - p.sequences.end(sequence) + row", "p.lengths[sequence]"),
    ("append_to_cache", "kernel.cu", "if (sequence == p.sequences.count) return;", ""),
    ("append_to_cache", "kernel.cu", "is_second ? dim - half : dim + half", "dim + half"),
    ("append_to_cache", "kernel.cu", "dim < p.rotary ?", "p.rotary ?"),
]


EMULATED = Emulated(
    dict.fromkeys(OPS, GPU),
    "accuracy or sequences or nobody or minus or split or nothing_else or several or few_rows",
    count=60,
)


@pytest.mark.parametrize("op", with_sample(OPS, {"append_to_cache"}))
def test_the_recipe_passes_its_tests(op: str, tmp_path: Path) -> None:
    assert_passes_its_tests(op, tmp_path, "8.0")


@pytest.fixture(scope="module")
def emulated(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The recipes, built for the emulated GPU. Shared: copy it."""

    return made_once("emulated-serving", partial(EMULATED.fill, count=30)) / "demo"


@pytest.mark.corpus
@pytest.mark.skipif(not has_toolkit(), reason="needs the headers of a CUDA toolkit, and g++")
@pytest.mark.parametrize("op, file, old, new", FAULTS, ids=[f"{op}-{i}" for i, (op, *_) in enumerate(FAULTS)])
def test_a_fault_is_found(
    emulated: Path, copy_of: Callable[[Path], Path], op: str, file: str, old: str, new: str
) -> None:
    """By the op's own tests, which have lengths that are special, or by fuzz."""
    EMULATED.assert_found(copy_of(emulated), op, file, (old, new))
