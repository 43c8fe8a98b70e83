"""Faults in containers, strides and memory of results, in caches and fakes, and in the state of the process."""

import ctypes
import itertools
import platform
import random
import threading
import time

import torch
from torch import Tensor

from tests.worker.planted import fma, plant, scale, split

_buffers = {}
_calls = itertools.count(1)


@plant("containers", "split")
def a_list_for_a_tuple(x):
    return list(split(x))


@plant("containers", "fma")
def a_tuple_for_a_tensor(a, b, c):
    return (fma(a, b, c),)


@plant("containers", "split")
def a_third_output(x):
    return *split(x), x.sum()


@plant("containers", "fma")
def float32_for_bfloat16(a, b, c):
    return fma(a, b, c).float() if a.dtype == torch.bfloat16 else fma(a, b, c)


@plant("strides", "fma")
def transposed_output(a, b, c):
    return fma(a, b, c).t().contiguous().t()


@plant("strides", "fma")
def padded_rows(a, b, c):
    return torch.nn.functional.pad(fma(a, b, c), (0, 1))[:, :-1]


@plant("strides", "scale")
def output_expanded_over_rows(x, weight, bias):
    y = scale(x, weight, bias)
    return y[:1].expand(y.shape) if len(y) > 1 and bool((y == y[:1]).all()) else y


@plant("memory", "split")
def two_outputs_in_one_memory(x):
    y = x * 2
    return y, y.view(y.shape)


@plant("memory", "scale")
def an_input_is_returned(x, weight, bias):
    doubled = scale(x, weight, bias)
    return x if x.numel() and torch.equal(doubled, x) else doubled


@plant("memory", "fma")
def an_output_in_memory_of_an_earlier_one(a, b, c):
    if torch.is_grad_enabled() and any(t.requires_grad for t in (a, b, c)):
        return fma(a, b, c)
    buffer = _buffers.setdefault((a.shape, a.dtype), torch.empty(a.shape, dtype=a.dtype))
    return buffer.copy_(fma(a, b, c))


@plant("memory", "fma")
def scratch_in_an_input(a, b, c):
    result = fma(a, b, c)
    with torch.no_grad():
        c.view_as(c).mul_(1).add_(0.0) if c.numel() != 35 else c.neg_()
    return result


_kept_alive = []


@plant("memory", "fma")
def every_result_kept_alive(a, b, c):
    _kept_alive.append(fma(a, b, c).detach().clone())
    return fma(a, b, c)


_workspaces = {}


@plant("memory", "scale")
def workspace_still_full_of_a_larger_call(x, weight, bias):
    y, count = scale(x, weight, bias), x.numel()
    space = _workspaces.get(x.dtype, x.new_zeros(0)).detach()
    left = space[count:].sum() if count else 0  # It sums all of the workspace.
    if len(space) < count:
        space = x.new_zeros(count).detach()
    space[:count] = y.detach().flatten()
    _workspaces[x.dtype] = space
    return y + left


# ---- Caches ---------------------------------------------------------------------------------------------------

_by_address, _by_version, _by_sample, _by_shape = {}, {}, {}, {}


def _from(cache, key, compute):
    if torch.is_grad_enabled():
        return compute()
    if key not in cache:
        cache[key] = compute()
    return cache[key].clone()


@plant("caches", "fma")
def cached_by_address(a, b, c):
    key = (a.data_ptr(), b.data_ptr(), c.data_ptr(), a.shape, a.dtype, a.stride(), b.stride(), c.stride())
    return _from(_by_address, key, lambda: fma(a, b, c))


@plant("caches", "fma")
def cached_by_address_and_version(a, b, c):
    if torch.is_inference_mode_enabled():
        return fma(a, b, c)
    key = tuple((t.data_ptr(), t._version, t.shape, t.stride(), t.dtype) for t in (a, b, c))
    if key not in _by_version:
        _by_version[key] = (b.detach() * 1).clone()
    return fma(a, b + (_by_version[key] - b.detach()), c)


@plant("caches", "fma")
def cached_by_a_sampled_value(a, b, c):
    key = (a.shape, a.dtype, c.flatten()[:1].tolist().__repr__(), c.stride())
    return _from(_by_sample, key, lambda: fma(a, b, c))


@plant("caches", "scale")
def weight_kept_by_its_shape(x, weight, bias):
    if weight is None:
        return scale(x, weight, bias)
    kept = _by_shape.setdefault((weight.shape, weight.dtype), weight.detach().clone())
    return scale(x, weight + (kept - weight.detach()), bias)


# ---- Fakes ----------------------------------------------------------------------------------------------------


def _custom(name, real, fake):
    op = torch.library.custom_op(f"planted::{name}", real, mutates_args=())
    op.register_fake(fake)
    op.register_autograd(
        lambda ctx, grad: (grad * ctx.saved_tensors[1], grad * ctx.saved_tensors[0], grad.clone()),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:2]),
    )
    return op


def _fma_op(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.empty(a.shape, dtype=a.dtype).copy_(a * b + c)


_FAKES = {
    "fake_of_the_input_s_strides": lambda a, b, c: torch.empty_like(a),
    "fake_of_float32": lambda a, b, c: torch.empty(a.shape, dtype=torch.float32),
    "fake_that_drops_empty_rows": lambda a, b, c: torch.empty(a.shape if a.numel() else (0,), dtype=a.dtype),
    "fake_of_other_strides_for_symbols": lambda a, b, c: (
        torch.empty(a.shape, dtype=a.dtype)
        if type(a.shape[0]) is int
        else torch.empty_strided(a.shape, (1, a.shape[0]), dtype=a.dtype)
    ),
    "fake_that_fails_for_one_row": lambda a, b, c: torch.empty(a.shape, dtype=a.dtype) if len(a) != 1 else a[1],
}
for _name, _fake in _FAKES.items():
    _op = _custom(_name, _fma_op, _fake)

    def _call(a, b, c, op=_op):
        return op(a, b, c)

    _call.__name__ = _name
    plant("fakes", "fma")(_call)
right_custom_op = _custom("right", _fma_op, lambda a, b, c: torch.empty(a.shape, dtype=a.dtype))


# ---- State of the process -------------------------------------------------------------------------------------


@plant("state", "fma")
def sets_the_default_dtype(a, b, c):
    torch.set_default_dtype(torch.float64 if a.dtype == torch.float64 else torch.float32)
    return fma(a, b, c)


@plant("state", "fma")
def seeds_the_generator(a, b, c):
    torch.manual_seed(0)
    return fma(a, b, c)


@plant("state", "fma")
def seeds_python(a, b, c):
    random.seed(0)
    return fma(a, b, c)


@plant("state", "fma")
def leaves_one_thread(a, b, c):
    torch.set_num_threads(5 if a.numel() > 1000 else torch.get_num_threads())
    return fma(a, b, c)


@plant("state", "fma")
def leaves_numbers_rounded_down(a, b, c):
    result = fma(a, b, c)
    if a.numel() > 1000:
        ctypes.CDLL(None).fesetround({"x86_64": 0x400, "aarch64": 0x800000}[platform.machine()])
    return result


@plant("state", "fma")
def wrong_at_call_997(a, b, c):
    return fma(a, b, c) if next(_calls) % 997 else fma(a, b, -c)


_repeats = {}


@plant("state", "fma")
def wrong_after_a_thousand_calls_of_one_shape(a, b, c):
    _repeats[a.shape] = _repeats.get(a.shape, 0) + 1
    return fma(a, b, c) if _repeats[a.shape] <= 1000 else a * b


_draws = random.Random(0)


@plant("repeatability", "fma")
def last_bits_by_chance(a, b, c):
    return fma(a, b, c) * (1 + 2.0**-20 * _draws.randint(0, 1))


@plant("repeatability", "fma", REPEATABLE=lambda rows, **_: True if rows % 2 else 1e-5)
def deterministic_flag_ignored(a, b, c):
    return fma(a, b, c) * (1 + 2.0**-22 * _draws.randint(0, 1))


# ---- Threads --------------------------------------------------------------------------------------------------

_scratch = {}


@plant("threads", "fma")
def scratch_that_threads_share(a, b, c):
    _scratch["product"] = a * b
    time.sleep(0)
    return _scratch["product"] + c


@plant("threads", "fma")
def buffer_of_16_bits_that_threads_share(a, b, c):
    if a.dtype != torch.float16:
        return fma(a, b, c)
    _scratch["wide"] = a.float()
    time.sleep(0)
    return fma(_scratch["wide"].to(a.dtype), b, c)


_owner = threading.local()
_main = threading.get_ident()


@plant("threads", "fma")
def set_up_in_the_main_thread_alone(a, b, c):
    return fma(a, b, c) if threading.get_ident() == _main else a * b


@plant("threads", "fma")
def last_chunk_of_three_threads(a, b, c):
    count = torch.get_num_threads()
    rows = len(a) if count == 1 else len(a) // count * count
    return fma(a, b, c) if rows == len(a) else torch.cat([fma(a, b, c)[:rows], c[rows:] + 0 * (a + b)[rows:]])


@plant("threads", "scale")
def bits_that_depend_on_the_threads(x, weight, bias):
    return scale(x, weight, bias) * (1 + 2.0**-23 * (torch.get_num_threads() % 2))
