"""Atomic operations of each type, order, scope and space."""

import itertools
from collections.abc import Iterator
from random import Random

from . import Case
from .operands import bits_of, finite, operand

THREADS = 64
_REGISTERS = {16: ("h", "uint16_t"), 32: ("r", "uint32_t"), 64: ("l", "uint64_t")}
_OPERATIONS = (
    [(name, kind) for name in ("and", "or", "xor", "exch") for kind in ("b32", "b64")]
    + [("cas", kind) for kind in ("b16", "b32", "b64")]
    + [("add", kind) for kind in ("u32", "s32", "u64", "f32", "f64")]
    + [("inc", "u32"), ("dec", "u32")]
    + [(name, kind) for name in ("min", "max") for kind in ("u32", "s32", "u64", "s64")]
    + [("add.noftz", kind) for kind in ("f16", "f16x2", "bf16", "bf16x2")]
)


def own_places(random: Random) -> Iterator[Case]:
    """Each thread on a place of its own: what was there, and what is there afterwards."""
    for (name, kind), space in itertools.product(_OPERATIONS, ("global", "shared", "")):
        order = random.choice(["", "relaxed", "acquire", "release", "acq_rel"])
        scope = random.choice(["cta", "gpu", "sys"])
        letter, cast = _REGISTERS[bits_of(kind)]
        is_shared = space == "shared" or (not space and random.random() < 0.5)
        parts = ".".join(filter(None, ["atom", order, scope, space, name, kind]))
        address = "window(place)" if space == "shared" else "place"
        compare = f', "{letter}"(({cast})x[2])' if name == "cas" else ""
        text = f"{parts} %0, [%1], %2{', %3' if compare else ''};"
        body = f"""__shared__ uint64_t shared[{THREADS}];
          uint64_t* const place = {"shared + threadIdx.x" if is_shared else "y"};
          *place = x[0]; {cast} old;
          asm volatile("{text}" : "={letter}"(old) : "{"r" if space == "shared" else "l"}"({address}),
                       "{letter}"(({cast})x[1]){compare} : "memory");
          y[1] = old; y[0] = *place; (void)shared;"""
        words = []
        for _ in range(THREADS):
            first, second = operand(random, kind), operand(random, kind)
            words += [first, first if name == "cas" and random.random() < 0.5 else second, operand(random, kind)]
        capability = 90 if kind.startswith("bf") else 75
        yield Case("atomics", text, body, words, 2, THREADS, capability=capability)


def contended(random: Random) -> Iterator[Case]:
    """All threads of two blocks on a few places, by operations whose result no order changes."""
    commuting = [(n, k) for n, k in _OPERATIONS if n in ("and", "or", "xor", "min", "max", "inc")]
    commuting += [("add", "u32"), ("add", "s32"), ("add", "u64")]
    for name, kind in commuting:
        letter, cast = _REGISTERS[bits_of(kind)]
        text = ".".join(filter(None, ["red", random.choice(["", "relaxed"]), "gpu", "global", name, kind]))
        body = f'asm volatile("{text} [%0], %1;" :: "l"(out + thread % 4), "{letter}"(({cast})x[0]) : "memory");'
        limit = [7] * 128 if name == "inc" else [operand(random, kind) for _ in range(128)]
        yield Case("atomics", f"{text}, contended", body, limit, 1, 64, 2)
    for name in ("atomicAdd", "atomicMin", "atomicMax", "atomicAnd", "atomicOr", "atomicXor", "atomicSub"):
        for kind, scope in itertools.product(("int", "unsigned"), ("", "_block", "_system")):
            call = f"{name}{scope}(({kind}*)places + threadIdx.x % 4, ({kind})x[0])"
            body = f"""__shared__ uint64_t places[2];
              if (threadIdx.x < 2) places[threadIdx.x] = x[0];
              __syncthreads(); {call}; __syncthreads();
              if (threadIdx.x < 2) y[0] = places[threadIdx.x];"""
            yield Case("atomics", call, body, [operand(random, "b32") for _ in range(64)], 1, 64)


def exact_sums(random: Random) -> Iterator[Case]:
    """Sums of small whole numbers, which are exact in any order."""
    for kind, space in itertools.product(("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"), ("global", "shared")):
        letter, cast = _REGISTERS[bits_of(kind)]
        half = kind.removesuffix("x2")
        noftz = "" if kind in ("f32", "f64") else ".noftz"
        numbers = [_whole(random, half) for _ in range(64)]
        words = [word | (_whole(random, half) << 16 if kind.endswith("x2") else 0) for word in numbers]
        text = f"red.relaxed.{'gpu.global' if space == 'global' else 'cta.shared'}.add{noftz}.{kind} [%0], %1;"
        address = '"l"(out + threadIdx.x % 2)' if space == "global" else '"r"(window(places + threadIdx.x % 2))'
        body = f"""__shared__ uint64_t places[2];
          if (threadIdx.x < 2) places[threadIdx.x] = 0;
          __syncthreads();
          asm volatile("{text}" :: {address}, "{letter}"(({cast})x[0]) : "memory");
          __syncthreads();
          {"if (threadIdx.x < 2) y[0] = places[threadIdx.x];" if space == "shared" else ""}"""
        yield Case("atomics", text, body, words, 1, 64, capability=90 if kind.startswith("bf") else 75)
    for vector, kind in (("v2", "f32"), ("v4", "f32"), ("v2", "f16"), ("v4", "bf16"), ("v8", "f16"), ("v4", "f16x2")):
        yield _vector(random, vector, kind)


def _whole(random: Random, kind: str) -> int:
    number = float(random.randrange(-2, 3))
    return finite(random, kind, number, number)


def _vector(random: Random, vector: str, kind: str) -> Case:
    count = int(vector[1])
    letter, cast = _REGISTERS[bits_of(kind)]
    noftz = "" if kind == "f32" else ".noftz"
    olds = ", ".join(f"%{i}" for i in range(count))
    added = ", ".join(f"%{count + 1 + i}" for i in range(count))
    text = f"atom.relaxed.gpu.global.add{noftz}.{vector}.{kind} {{{olds}}}, [%{count}], {{{added}}};"
    outs = ", ".join(f'"={letter}"(old[{i}])' for i in range(count))
    ins = ", ".join(f'"{letter}"((({cast}*)x)[{i}])' for i in range(count))
    body = f"""{cast} old[{count}];
      for (int i = 0; i < 4; ++i) y[i] = x[4 + i];
      asm volatile("{text}" : {outs} : "l"(y), {ins} : "memory");
      for (int i = 0; i < {count}; ++i) y[4 + i] = old[i];"""
    half = kind.removesuffix("x2")
    width = bits_of(half)
    words = [sum(_whole(random, half) << shift for shift in range(0, 64, width)) for _ in range(16 * 8)]
    return Case("atomics", text, body, words, 4 + count, 16, capability=90)


def wide(random: Random) -> Iterator[Case]:
    """Exchange, and compare and exchange, of 16 bytes: each thread on a place of its own."""
    for name, space in itertools.product(("exch", "cas"), ("global", "shared", "")):
        parts = ".".join(filter(None, ["atom.acq_rel.gpu", space, name, "b128"]))
        text = (
            "{ .reg .b128 a, b, old; mov.b128 a, {%3, %4}; mov.b128 b, {%5, %6}; "
            f"{parts} old, [%2], a{', b' if name == 'cas' else ''}; mov.b128 {{%0, %1}}, old; }}"
        )
        address = '"r"(window(place))' if space == "shared" else '"l"(place)'
        body = f"""__shared__ ulonglong2 shared[{THREADS}];
          ulonglong2* const place = {"shared + threadIdx.x" if space == "shared" else "(ulonglong2*)y"};
          *place = make_ulonglong2(x[0], x[1]); uint64_t low, high;
          asm volatile("{text}" : "=l"(low), "=l"(high)
                       : {address}, "l"(x[2]), "l"(x[3]), "l"(x[4]), "l"(x[5]) : "memory");
          const ulonglong2 after = *place;
          y[0] = after.x; y[1] = after.y; y[2] = low; y[3] = high; (void)shared;"""
        words = []
        for _ in range(THREADS):
            old, new = [operand(random, "b64") for _ in range(2)], [operand(random, "b64") for _ in range(2)]
            words += [*old, *(old if random.random() < 0.5 else new), *new]
        yield Case("atomics", parts, body, words, 4, THREADS, capability=90)


FAMILIES = [own_places, contended, exact_sums, wide]
