"""What may be assumed of a function that splits a dimension into groups, and reduces each."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernelgen.worker.trace.assumption import Assumption
from kernelgen.worker.trace.assumptions import ordered
from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.split import Split

# Dimensions that are split: the channels of images, the last, as heads are and blocks of codes, and the channels of
# what has no more dimensions. With each, the ranks of a tensor with its groups.
_OF_CHANNELS, _OF_LAST, _OF_VECTORS = (1, (5, 4)), (-2, (4, 3, 2)), (1, (3,))
_MOST_TENSORS = 4
# What a tensor is that is no part of the split dimension.
_KINDS = {"vector": "column", "number": "row"}


def of_groups(
    plain: Assumption, counts: Sequence[int], may_permute: bool = False, may_cut: bool = False
) -> Iterator[Assumption]:
    """Rows that are groups of a dimension, of which the number, or the size, is an argument, one of `counts`, or the
    size of a vector. Others are as large as the first tensor, vectors of a group, have the groups alone, or, behind all
    of these, a number for each group, as scales are."""
    first, *others = plain.kinds
    if len(others) >= _MOST_TENSORS:
        return
    integers = [argument["name"] for argument in plain.arguments if argument["type"] in ("int", "SymInt")]
    if may_cut and others:
        for count, of_group in itertools.product((*integers, *counts), (False, True)):
            yield from _rotated(plain, Split(_OF_LAST[0], count, None, of_group))
    for dim, ranks in (_OF_CHANNELS, _OF_LAST, _OF_VECTORS):
        for rank, count, of_group in itertools.product(ranks, (*integers, None, *counts), (False, True)):
            first_group = dim % rank
            dims = tuple(range(first_group + 1, rank))
            of_rank = replace(plain, rank=rank, dims=dims)
            for roles in _roles(len(others), dim):
                kinds = dict(zip(others, roles, strict=True))
                like = next((name for name, role in kinds.items() if role == "vector"), None)
                is_known = count is not None or (of_group and like)
                if not is_known and (of_group or like or not may_permute):
                    continue
                joined = frozenset([first, *(name for name, role in kinds.items() if role in ("whole", "groups"))])
                groups = (first_group - rank, first_group + 1 - rank)
                grouped = replace(
                    of_rank,
                    kinds={first: "element"} | {name: _KINDS.get(role, "element") for name, role in kinds.items()},
                    spreads={name: groups for name, role in kinds.items() if role == "groups"},
                    split=Split(dim, count, like if count is None else None, of_group, joined),
                )
                if is_known:
                    yield grouped
                if may_permute and rank == 4 and dim == _OF_LAST[0]:
                    yield from _unjoined(grouped)


def _roles(count: int, dim: int) -> list[tuple[str, ...]]:
    """What tensors beside the first may be, where the dimension `dim` is split."""
    roles = ("whole", "groups", "vector", "number") if dim < 0 else ("whole", "groups")
    return sorted(itertools.product(roles, repeat=count), key=lambda chosen: "number" in chosen)


def _rotated(plain: Assumption, split: Split) -> Iterator[Assumption]:
    """Heads of which parts are computed with: of the last dimension of some tensors, beside tables that all heads have
    in common, for each place of a sequence, maybe of a batch; as rotary embeddings have them."""
    names = list(plain.kinds)
    for count in (2, 1):
        for tables in itertools.combinations(names[1:], count):
            wide = [name for name in names if name not in tables]
            split = replace(split, joined=frozenset(wide))
            for dims in ((-3, -1), (-4, -3, -1)):
                of_heads = replace(plain, rank=4, dims=(3,), kinds=dict.fromkeys(names, "element"), split=split)
                of_heads = replace(of_heads, spreads=dict.fromkeys(tables, dims))
                yield from (replace(of_heads, cuts=dict.fromkeys(cut, Cut(2))) for cut in (wide, names))


def _unjoined(grouped: Assumption) -> Iterator[Assumption]:
    """The same where some tensors have the groups as a dimension already, before the one that others have first, as
    attention has heads: it says how many there are where nothing else does."""
    for swapped in ordered(grouped):
        names = swapped.orders.keys()
        if names < grouped.split.joined and not names & grouped.spreads.keys():
            split = replace(grouped.split, joined=grouped.split.joined - names)
            is_known = split.count is not None or split.like
            yield replace(swapped, split=split if is_known else replace(split, like=next(iter(names))))
