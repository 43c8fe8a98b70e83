"""Instructions that the lanes of a warp, or the threads of a block, execute together."""

import itertools
from collections.abc import Iterator
from random import Random

from . import Case
from .operands import operand

WARPS = 64  # Threads: two warps.


def _words(random: Random, *kinds: str, threads: int = WARPS) -> list[int]:
    return [operand(random, kind) for _ in range(threads) for kind in kinds]


def shuffles(random: Random) -> Iterator[Case]:
    """The source lane, the segment and the lanes that take part are random."""
    for mode, _ in itertools.product(("up", "down", "bfly", "idx"), range(3)):
        segment = (32 - random.choice([1, 2, 4, 8, 16, 32])) << 8
        clamp = segment | (0 if mode == "up" else 31)
        distance = f"{random.randrange(32)}" if mode != "idx" else "(uint32_t)x[1]"
        body = f"""uint32_t d, inside;
          asm volatile("{{.reg .pred p; shfl.sync.{mode}.b32 %0|p, %2, %3, {clamp:#x}, -1; selp.u32 %1, 1, 0, p;}}"
                       : "=r"(d), "=r"(inside) : "r"((uint32_t)x[0]), "r"({distance}));
          y[0] = d; y[1] = inside;"""
        words = [w for _ in range(WARPS) for w in (operand(random, "b32"), random.randrange(64))]
        yield Case("shuffles", f"shfl.sync.{mode}.b32 d|p, a, {distance}, {clamp:#x}, -1", body, words, 2, WARPS)
    for name, kind in itertools.product(("", "_up", "_down", "_xor"), ("int", "unsigned long long", "double", "float")):
        width = random.choice([4, 8, 16, 32])
        argument = "(int)(x[1] & 31)" if not name else f"{random.randrange(width)}"
        call = f"__shfl{name}_sync(0xffffffffu, ({kind})(int)x[0], {argument}, {width})"
        yield Case("shuffles", call, f"y[0] = bits_of({call});", _words(random, "b32", "b32"), 1, WARPS)


def votes(random: Random) -> Iterator[Case]:
    def partial(body: str, mask: int) -> str:
        return f"if ({mask:#x}u >> threadIdx.x % 32 & 1) {{ {body} }}"

    for _ in range(3):
        mask = random.getrandbits(32) | 1
        for mode in ("all", "any", "uni"):
            test = f"vote.sync.{mode}.pred q, p, {mask:#x};"
            text = f"{{.reg .pred p, q; setp.ne.u32 p, %1, 0; {test} selp.u32 %0, 1, 0, q;}}"
            value = f"(uint32_t)x[0] & {random.choice([1, 3, 0])}"
            body = f'uint32_t d; asm volatile("{text}" : "=r"(d) : "r"({value})); y[0] = d;'
            yield Case(
                "votes", f"vote.sync.{mode}.pred {mask:#x}", partial(body, mask), _words(random, "b32"), 1, WARPS
            )
        text = f"{{.reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, {mask:#x};}}"
        body = f'uint32_t d; asm volatile("{text}" : "=r"(d) : "r"((uint32_t)x[0] & 1)); y[0] = d;'
        yield Case("votes", f"vote.sync.ballot.b32 {mask:#x}", partial(body, mask), _words(random, "b32"), 1, WARPS)
        for kind, letter in (("b32", "r"), ("b64", "l")):
            cast = "uint32_t" if kind == "b32" else "uint64_t"
            keys = [random.choice([0, 5, 2**31 + 1, 7]) for _ in range(WARPS)]
            text = f"match.any.sync.{kind} %0, %1, {mask:#x};"
            body = f'uint32_t d; asm volatile("{text}" : "=r"(d) : "{letter}"(({cast})x[0])); y[0] = d;'
            yield Case("votes", text, partial(body, mask), keys, 1, WARPS)
            text = f"{{.reg .pred p; match.all.sync.{kind} %0|p, %2, {mask:#x}; selp.u32 %1, 1, 0, p;}}"
            results = '"=r"(d), "=r"(e)'
            body = f'uint32_t d, e; asm volatile("{text}" : {results} : "{letter}"(({cast})x[0])); y[0] = d; y[1] = e;'
            same = [9 if i < 32 else key for i, key in enumerate(keys)]
            yield Case("votes", f"match.all.sync.{kind} {mask:#x}", partial(body, mask), same, 2, WARPS)
        for name in ("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"):
            text = f"redux.sync.{name} %0, %1, {mask:#x};"
            body = f'uint32_t d; asm volatile("{text}" : "=r"(d) : "r"((uint32_t)x[0])); y[0] = d;'
            yield Case("votes", text, partial(body, mask), _words(random, "b32"), 1, WARPS, capability=80)
        text = f"{{.reg .pred p; elect.sync %0|p, {mask:#x}; selp.u32 %1, 1, 0, p;}}"
        body = f'uint32_t d, e; asm volatile("{text}" : "=r"(d), "=r"(e)); y[0] = d; y[1] = e;'
        yield Case(
            "votes", f"elect.sync {mask:#x}", partial(body, mask), _words(random, "b32"), 2, WARPS, capability=90
        )
    for function in ("__syncthreads_count", "__syncthreads_and", "__syncthreads_or"):
        body = f"y[0] = (uint32_t){function}((int)x[0] & 1);"
        yield Case("votes", function, body, _words(random, "b32", threads=96), 1, 96)
    for name in ("popc.u32", "and.pred", "or.pred"):
        result = "%0" if name == "popc.u32" else "q"
        after = "" if name == "popc.u32" else "selp.u32 %0, 1, 0, q;"
        text = f"{{.reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.cta.red.{name} {result}, 3, 96, p; {after}}}"
        body = f'uint32_t d; asm volatile("{text}" : "=r"(d) : "r"((uint32_t)x[0] & 3)); y[0] = d;'
        yield Case("votes", f"barrier.cta.red.{name}", body, _words(random, "b32", threads=96), 1, 96)


def special_registers(random: Random) -> Iterator[Case]:
    for name in (
        "tid.x",
        "ntid.x",
        "ctaid.x",
        "nctaid.x",
        "laneid",
        "lanemask_eq",
        "lanemask_lt",
        "lanemask_le",
        "lanemask_gt",
        "lanemask_ge",
    ):
        body = f'uint32_t d; asm volatile("mov.u32 %0, %{name};" : "=r"(d)); y[0] = d;'.replace("%" + name, "%%" + name)
        yield Case("special_registers", f"%{name}", body, [0] * 128, 1, 64, 2)


# How the threads of a block wait for each other.
_BARRIERS = {
    "__syncthreads": "__syncthreads();",
    "bar.sync": 'asm volatile("bar.sync 1, 128;" ::: "memory");',
    "barrier.cta.sync": 'asm volatile("barrier.cta.sync.aligned 2;" ::: "memory");',
    "bar.arrive and bar.sync": 'if (threadIdx.x < 64) asm volatile("bar.arrive 4, 128;" ::: "memory"); '
    'else asm volatile("bar.sync 4, 128;" ::: "memory");',
    "mbarrier": """
      if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 128;" ::"r"(window(&barrier)));
      __syncthreads();
      asm volatile("{.reg .b64 t; mbarrier.arrive.shared.b64 t, [%0];}" ::"r"(window(&barrier)) : "memory");
      wait_for(window(&barrier), 0);""",
    "mbarrier.arrive_drop": """
      if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 128;" ::"r"(window(&barrier)));
      __syncthreads();
      if (threadIdx.x < 64)
        asm volatile("{.reg .b64 t; mbarrier.arrive_drop.shared.b64 t, [%0];}" ::"r"(window(&barrier)) : "memory");
      else asm volatile("{.reg .b64 t; mbarrier.arrive.shared.b64 t, [%0];}" ::"r"(window(&barrier)) : "memory");
      wait_for(window(&barrier), 0);
      if (threadIdx.x >= 64) {
        asm volatile("{.reg .b64 t; mbarrier.arrive.shared.b64 t, [%0];}" ::"r"(window(&barrier)) : "memory");
        wait_for(window(&barrier), 1);
      }""",
    "mbarrier.test_wait": """
      if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 128;" ::"r"(window(&barrier)));
      __syncthreads();
      uint64_t token;
      asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(window(&barrier)) : "memory");
      uint32_t done = 0;
      while (!done)
        asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(window(&barrier)), "l"(token) : "memory");""",
}


def shared_memory(random: Random) -> Iterator[Case]:
    yield from _exchanges(random)
    yield from _stores_and_loads(random)
    yield from _vector_loads(random)


def _exchanges(random: Random) -> Iterator[Case]:
    """Values pass from thread to thread through shared memory, under each kind of barrier."""
    for name, barrier in _BARRIERS.items():
        stride = random.randrange(1, 64) * 2 + 1
        reads = "if (threadIdx.x >= 64) " if "arrive and" in name else ""
        source = "(t - 64)" if reads else "t"
        limit = 63 if reads else 127
        body = f"""__shared__ uint64_t values[128]; __shared__ uint64_t barrier;
          const int t = threadIdx.x; (void)barrier;
          values[t] = x[0];
          {barrier}
          {reads}y[0] = values[{source} * {stride} & {limit}];"""
        capability = 90 if "mbarrier" in name else 75
        yield Case(
            "shared_memory",
            f"{name}, stride {stride}",
            body,
            _words(random, "b64", threads=128),
            1,
            128,
            capability=capability,
        )


def _stores_and_loads(random: Random) -> Iterator[Case]:
    for kind, letter, cast in (
        ("u8", "r", "uint32_t"),
        ("s8", "r", "uint32_t"),
        ("u16", "h", "uint16_t"),
        ("s16", "r", "uint32_t"),
        ("u32", "r", "uint32_t"),
        ("s32", "l", "uint64_t"),
        ("u64", "l", "uint64_t"),
        ("f32", "r", "uint32_t"),
    ):
        width = kind[1:]
        store = f"st.shared.b{width}"
        body = f"""__shared__ uint64_t values[64]; values[threadIdx.x] = 0; {cast} d;
          asm volatile("{store} [%1], %2; ld.shared.{kind} %0, [%1];" : "=&{letter}"(d)
                       : "r"(window(values + threadIdx.x)), "{letter}"(({cast})x[0]) : "memory");
          y[0] = d; y[1] = values[threadIdx.x];"""
        yield Case("shared_memory", f"{store}, ld.shared.{kind}", body, _words(random, "b64"), 2, WARPS)


def _vector_loads(random: Random) -> Iterator[Case]:
    for vector, kind, letter, cast in (
        ("v2", "u32", "r", "uint32_t"),
        ("v4", "u32", "r", "uint32_t"),
        ("v2", "u64", "l", "uint64_t"),
        ("v4", "u8", "r", "uint32_t"),
        ("v2", "u16", "h", "uint16_t"),
    ):
        count = int(vector[1])
        names = ", ".join(f"%{i}" for i in range(count))
        outs = ", ".join(f'"={letter}"(d[{i}])' for i in range(count))
        results = " ".join(f"y[{i}] = d[{i}];" for i in range(count))
        for qualifiers in (".global", ".global.nc", ".volatile.global", "", ".global.L1::no_allocate.L2::128B"):
            text = f"ld{qualifiers}.{vector}.{kind} {{{names}}}, [%{count}];"
            body = f'{cast} d[{count}]; asm volatile("{text}" : {outs} : "l"(x)); {results}'
            yield Case("shared_memory", text, body, _words(random, "b64", "b64"), 4, WARPS)


FAMILIES = [shuffles, votes, special_registers, shared_memory]
