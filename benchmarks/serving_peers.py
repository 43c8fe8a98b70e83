"""FlashAttention 4 and FlashInfer, beside the recipes of attention for serving, where they are installed.

Both get what a server has at hand: FlashAttention 4 the longest length, and FlashInfer its plan, which reads the
lengths on the host and is made before the call that is timed. FlashInfer compiles its kernels when they are first
planned.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

FLASH_ATTN_4, FLASHINFER = "flash-attn 4", "FlashInfer"
Call = Callable[[], Any]
_WORKSPACE_BYTES = 256 << 20


def peers_of(*makers: tuple[str, Callable[[], Call]]) -> dict[str, Call]:
    """Calls that work, by name. A peer that is not installed, or refuses the case, is left out, and the error shown."""
    calls = {}
    for name, make in makers:
        try:
            call = make()
            call()
            torch.cuda.synchronize()
        except ImportError:
            continue
        except Exception as error:  # Whatever a peer raises.
            print(f"{name} left out: {type(error).__name__}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
            continue
        calls[name] = call
    return calls


def flash_attn_4_varlen(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, causal: bool) -> Call:
    """Sequences of different lengths: (rows, heads, dimension)."""
    from flash_attn.cute import flash_attn_varlen_func

    def call() -> Tensor:
        result = flash_attn_varlen_func(
            q,
            k,
            v,
            cu_seqlens_q=starts,
            cu_seqlens_k=starts,
            max_seqlen_q=longest,
            max_seqlen_k=longest,
            causal=causal,
        )
        return result[0] if isinstance(result, tuple) else result

    return call


def flash_attn_4_paged(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, starts: Tensor, table: Tensor, lengths: Tensor, queries: int, keys: int
) -> Call:
    """Causal attention over pages (pages, rows, heads, dimension), with as many queries and keys in each sequence."""
    from flash_attn.cute import flash_attn_varlen_func

    def call() -> Any:
        return flash_attn_varlen_func(
            q,
            k_pages,
            v_pages,
            cu_seqlens_q=starts,
            seqused_k=lengths,
            max_seqlen_q=queries,
            max_seqlen_k=keys,
            page_table=table,
            causal=True,
        )

    return call


def flashinfer_varlen(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, causal: bool) -> Call:
    """Forward alone: FlashInfer has no gradient."""
    from flashinfer import BatchPrefillWithRaggedKVCacheWrapper

    wrapper = BatchPrefillWithRaggedKVCacheWrapper(_workspace(), "NHD", backend="fa3")
    wrapper.plan(starts, starts, q.shape[1], k.shape[1], q.shape[2], causal=causal, q_data_type=q.dtype)
    return lambda: wrapper.run(q, k, v)


def flashinfer_paged(q: Tensor, k_pages: Tensor, v_pages: Tensor, starts: Tensor, table: Tensor, queries: int) -> Call:
    """As flash_attn_4_paged, where every page is full: one query by the kernels for decoding, on tensor cores."""
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithPagedKVCacheWrapper

    sequences, columns = table.shape
    _, rows, kv_heads, dim = k_pages.shape
    pages = torch.arange(0, sequences * columns + 1, columns, device=q.device, dtype=torch.int32)
    last = torch.full((sequences,), rows, device=q.device, dtype=torch.int32)
    sizes = q.shape[1], kv_heads, dim, rows
    if queries == 1:
        wrapper = BatchDecodeWithPagedKVCacheWrapper(_workspace(), "NHD", use_tensor_cores=True, backend="fa2")
        wrapper.plan(pages, table.flatten(), last, *sizes, q_data_type=q.dtype)
    else:
        wrapper = BatchPrefillWithPagedKVCacheWrapper(_workspace(), "NHD", backend="fa3")
        wrapper.plan(starts, pages, table.flatten(), last, *sizes, causal=True, q_data_type=q.dtype)
    return lambda: wrapper.run(q, (k_pages, v_pages))


def _workspace() -> Tensor:
    return torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
