"""Asynchronous copies: cp.async, and those of the copy engine, in blocks and in clusters."""

import itertools
from collections.abc import Iterator
from random import Random

from . import Case
from .matrices import element
from .operands import bits_of

_COPIED = "rows[2 * threadIdx.x] = rows[2 * threadIdx.x + 1] = ~0ull; __syncwarp();"


def small_copies(random: Random) -> Iterator[Case]:
    def case(name: str, operands: str, *, group: str, predicate: str = "") -> Case:
        text = f"{{{predicate}{name} [%0], [%1], {operands};}}"
        body = f"""__shared__ alignas(16) uint64_t rows[128]; {_COPIED}
          asm volatile("{text}" :: "r"(window(rows + 2 * threadIdx.x)), "l"(x), "r"((uint32_t)x[2]) : "memory");
          {group}
          y[0] = rows[2 * threadIdx.x]; y[1] = rows[2 * threadIdx.x + 1];"""
        words = [w for _ in range(64) for w in (random.getrandbits(64), random.getrandbits(64), random.randrange(2), 0)]
        return Case("copies", f"{name} {operands}", body, words, 2, 64, capability=80)

    groups = ['asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");',
              'asm volatile("cp.async.wait_all;" ::: "memory");']  # fmt: skip
    test = ".reg .pred p; setp.ne.u32 p, %2, 0; "
    for bytes_ in (4, 8, 16):
        for caching in ("ca", "cg") if bytes_ == 16 else ("ca",):
            name = f"cp.async.{caching}.shared.global"
            for hint in ("", ".L2::64B", ".L2::128B", ".L2::256B"):
                yield case(name + hint, f"{bytes_}", group=random.choice(groups))
            for read in (0, bytes_ // 2, bytes_):
                yield case(name, f"{bytes_}, {read}", group=random.choice(groups))
            yield case(name, f"{bytes_}, p", group=groups[0], predicate=test)
            policy = ".reg .b64 q; createpolicy.fractional.L2::evict_first.b64 q, 1.0; "
            yield case(f"{name}.L2::cache_hint", f"{bytes_}, q", group=groups[0], predicate=policy)
            yield case(f"{name}.L2::cache_hint", f"{bytes_}, {bytes_ // 4}, q", group=groups[0], predicate=policy)


_BARRIER = """__shared__ alignas(8) uint64_t barrier;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(window(&barrier)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
"""


def _expect(count: str) -> str:
    return (
        'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" '
        f'::"r"(window(&barrier)), "r"({count}) : "memory");'
    )


def bulk_copies(random: Random) -> Iterator[Case]:
    for bytes_, hint, space in itertools.product((16, 256, 1024), ("", ".L2::cache_hint"), ("shared::cluster",)):
        operand = ", %4" if hint else ""
        text = f"cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes{hint} [%0], [%1], %2, [%3]{operand};"
        policy = (
            'uint64_t policy; asm volatile("createpolicy.fractional.L2::evict_last.b64 policy_, 1.0;" : "=l"(policy));'
        )
        body = f"""__shared__ alignas(128) uint64_t values[128]; {_BARRIER}
          values[threadIdx.x] = 5; asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads();
          {policy.replace("policy_", "%0") if hint else ""}
          if (threadIdx.x == 0) {{
            {_expect(str(bytes_))}
            asm volatile("{text}" ::"r"(window(values)), "l"(in), "r"({bytes_}), "r"(window(&barrier))
                         {', "l"(policy)' if hint else ""} : "memory");
          }}
          wait_for(window(&barrier), 0); y[0] = values[threadIdx.x];"""
        yield Case("copies", text, body, [random.getrandbits(64) for _ in range(128)], 1, 128, capability=90)
    yield from _bulk_stores(random)


def _bulk_stores(random: Random) -> Iterator[Case]:
    reductions = [""]
    reductions += [f"{name}.{kind}" for name in ("and", "or", "xor") for kind in ("b32", "b64")]
    reductions += [f"{name}.{kind}" for name in ("min", "max") for kind in ("u32", "s32", "u64", "s64", "f16", "bf16")]
    reductions += ["add.u32", "add.s32", "add.u64", "add.f32", "add.f64", "add.noftz.f16", "add.noftz.bf16"]
    reductions += ["inc.u32", "dec.u32"]
    for reduction in reductions:
        name = "cp.async.bulk" if not reduction else "cp.reduce.async.bulk"
        tail = f".{reduction}" if reduction else ""
        text = f"{name}.global.shared::cta.bulk_group{tail} [%0], [%1], 512;"
        kind = reduction.split(".")[-1] if reduction else "b64"
        body = f"""__shared__ alignas(128) uint64_t values[64];
          values[threadIdx.x] = x[0]; out[threadIdx.x] = x[1]; __threadfence();
          asm volatile("fence.proxy.async;" ::: "memory"); __syncthreads();
          if (threadIdx.x == 0) asm volatile(
            "{text}\\ncp.async.bulk.commit_group;\\ncp.async.bulk.wait_group 0;"
            ::"l"(out), "r"(window(values)) : "memory");"""
        words = []
        for _ in range(128):
            if kind[0] in "usb" and kind != "bf16":
                words.append(random.getrandbits(64))
            else:
                width = bits_of(kind)
                words.append(sum(element(random, kind, is_exact=True) << shift for shift in range(0, 64, width)))
        yield Case("copies", text, body, words, 1, 64, capability=90)


_ELEMENTS = {"UINT8": 1, "UINT16": 2, "UINT32": 4, "INT32": 4, "UINT64": 8, "INT64": 8, "FLOAT16": 2, "BFLOAT16": 2,
             "FLOAT32": 4, "FLOAT64": 8}  # fmt: skip
_BOXES = {1: [64], 2: [16, 8], 3: [16, 4, 2], 4: [16, 2, 2, 2], 5: [16, 2, 2, 1, 2]}


def _tensor(random: Random, rank: int, type_: str, swizzle: int) -> tuple[str, list[int], int]:
    """The host's text that makes `map`, the box, and its bytes."""
    bytes_ = _ELEMENTS[type_]
    box = list(_BOXES[rank])
    if swizzle:
        box[0] = (16 << swizzle) // bytes_
    sizes = [size + random.randrange(1, 3) for size in box]
    name = {0: "NONE", 1: "32B", 2: "64B", 3: "128B"}[swizzle]
    text = f"""const cuuint64_t sizes[] = {{{", ".join(map(str, sizes))}}};
  const cuuint32_t box[] = {{{", ".join(map(str, box))}}};
  const CUtensorMap map = tensor_map(DATA, CU_TENSOR_MAP_DATA_TYPE_{type_}, {bytes_}, {rank}, sizes, box,
                                     CU_TENSOR_MAP_SWIZZLE_{name});"""
    total = bytes_
    for size in box:
        total *= size
    return text, box, total


def _corner(random: Random, box: list[int], type_: str, *, least: int, is_aligned: bool = True) -> list[int]:
    """Where a box begins: near an edge. In the innermost dimension GPUs take multiples of 16 bytes."""
    step = 16 // _ELEMENTS[type_]
    first = max(random.randrange(-2, 3) * step, least) + (0 if is_aligned else random.randrange(1, step))
    return [first, *(random.randrange(max(least, -3), 8) for _ in box[1:])]


def tensor_loads(random: Random) -> Iterator[Case]:
    choices = [(rank, type_, 0) for rank in range(1, 6) for type_ in ("FLOAT16", "UINT8", "FLOAT64")]
    choices += [(2, type_, 0) for type_ in _ELEMENTS] + [(3, "FLOAT16", s) for s in (1, 2, 3)]
    choices += [(2, "FLOAT32", s) for s in (1, 2, 3)]
    aligned = [(*choice, True) for choice in choices] + [(2, type_, 0, False) for type_ in ("FLOAT16", "INT32")]
    for rank, type_, swizzle, is_aligned in aligned:
        host, box, bytes_ = _tensor(random, rank, type_, swizzle)
        places = ", ".join(map(str, _corner(random, box, type_, least=-99, is_aligned=is_aligned)))
        form = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        body = f"""__shared__ alignas(1024) uint64_t values[1024]; {_BARRIER}
          for (int i = threadIdx.x; i < 1024; i += 128) values[i] = 7;
          asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads();
          if (threadIdx.x == 0) {{
            {_expect(str(bytes_))}
            asm volatile("{form} [%0], [%1, {{{places}}}], [%2];"
                         ::"r"(window(values)), "l"(&map), "r"(window(&barrier)) : "memory");
          }}
          wait_for(window(&barrier), 0);
          for (int i = 0; i < 8; ++i) y[i] = values[8 * threadIdx.x + i];"""
        words = [random.getrandbits(64) for _ in range(128 * 32)]
        yield Case(
            "tensors", f"{form} {type_}, swizzle {swizzle}, at {places}", body, words, 8, 128, capability=90,
            parameters="const __grid_constant__ CUtensorMap map, ",
            launch=f"{host.replace('DATA,', 'in,')}\n  KERNEL<<<1, 128>>>(map, in, out);",
        )  # fmt: skip


def tensor_stores(random: Random) -> Iterator[Case]:
    choices = [("", rank, "FLOAT16") for rank in range(1, 6)]
    choices += [
        (name, 2, type_) for name in ("add", "min", "max") for type_ in ("UINT32", "INT32", "FLOAT16", "BFLOAT16")
    ]
    choices += [
        ("add", 2, "FLOAT32"),
        ("add", 2, "UINT64"),
        ("add", 3, "FLOAT64"),
        ("inc", 2, "UINT32"),
        ("dec", 2, "UINT32"),
    ]
    choices += [(name, 2, type_) for name in ("and", "or", "xor") for type_ in ("UINT32", "UINT64")]
    kinds = {"FLOAT16": "f16", "BFLOAT16": "bf16", "FLOAT32": "f32", "FLOAT64": "f64"}
    for reduction, rank, type_ in choices:
        host, box, _ = _tensor(random, rank, type_, 0)
        # Of four stores one begins outside, which stops a GPU.
        least = random.choice([0, 0, 0, -99])
        places = ", ".join(map(str, _corner(random, box, type_, least=least)))
        form = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{reduction}.tile.bulk_group"
        if not reduction:
            form = f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"
        body = f"""__shared__ alignas(1024) uint64_t values[512];
          for (int i = threadIdx.x; i < 512; i += 128) values[i] = in[i];
          for (int i = 0; i < 32; ++i) y[i] = x[i];
          __threadfence(); asm volatile("fence.proxy.async;" ::: "memory"); __syncthreads();
          if (threadIdx.x == 0) asm volatile(
            "{form} [%0, {{{places}}}], [%1];\\ncp.async.bulk.commit_group;\\ncp.async.bulk.wait_group 0;"
            ::"l"(&map), "r"(window(values)) : "memory");"""
        kind = kinds.get(type_, "")
        words = []
        for _ in range(128 * 32):
            width = bits_of(kind) if kind else 64
            pieces = (element(random, kind, is_exact=True) << shift for shift in range(0, 64, width))
            words.append(sum(pieces) if kind else random.getrandbits(64))
        yield Case(
            "tensors", f"{form} {type_}, at {places}", body, words, 32, 128, capability=90,
            parameters="const __grid_constant__ CUtensorMap map, ",
            launch=f"{host.replace('DATA,', 'out,')}\n  KERNEL<<<1, 128>>>(map, in, out);",
        )  # fmt: skip


_CLUSTER = "__cluster_dims__(2, 1, 1)"
_MEET = 'asm volatile("barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");'


def clusters(random: Random) -> Iterator[Case]:
    def case(name: str, body: str) -> Case:
        words = [random.getrandbits(64) for _ in range(256)]
        return Case("clusters", name, body, words, 1, 128, 2, capability=90, attributes=_CLUSTER)

    other = 'uint32_t rank; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));'
    yield case("mapa, ld.shared::cluster", f"""__shared__ uint64_t values[128]; {other}
      values[threadIdx.x] = x[0]; {_MEET}
      uint32_t there; uint64_t d;
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                   : "=r"(there) : "r"(window(values + 127 - threadIdx.x)), "r"(rank ^ 1));
      asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(d) : "r"(there) : "memory");
      y[0] = d; {_MEET}""")  # fmt: skip
    yield case("red.shared::cluster", f"""__shared__ uint64_t values[128]; {other}
      values[threadIdx.x] = x[0]; {_MEET}
      uint32_t there;
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                   : "=r"(there) : "r"(window(values + threadIdx.x / 4)), "r"(rank ^ 1));
      asm volatile("red.relaxed.cluster.shared::cluster.add.u64 [%0], %1;" ::"r"(there), "l"(x[0]) : "memory");
      {_MEET} y[0] = values[threadIdx.x];""")  # fmt: skip
    sends = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];"
    yield case(sends, f"""__shared__ alignas(128) uint64_t values[128], received[128]; {_BARRIER} {other}
      values[threadIdx.x] = x[0]; asm volatile("fence.proxy.async;" ::: "memory"); {_MEET}
      if (threadIdx.x == 0) {{
        {_expect("1024")}
        uint32_t there, done;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(window(received)), "r"(rank ^ 1));
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(done) : "r"(window(&barrier)), "r"(rank ^ 1));
        asm volatile("{sends}" ::"r"(there), "r"(window(values)), "r"(done) : "memory");
      }}
      wait_for(window(&barrier), 0); y[0] = received[threadIdx.x]; {_MEET}""")  # fmt: skip
    for form, values in (("b64", '"l"(x[0])'), ("v2.b32", '"r"((uint32_t)x[0]), "r"((uint32_t)(x[0] >> 32))')):
        stores = f"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.{form}"
        registers = "%2" if form == "b64" else "{%2, %3}"
        yield case(stores, f"""__shared__ uint64_t received[128]; {_BARRIER} {other}
          if (threadIdx.x == 0) {{ {_expect("1024")} }} {_MEET}
          uint32_t there, done;
          asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                       : "=r"(there) : "r"(window(received + 127 - threadIdx.x)), "r"(rank ^ 1));
          asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(done) : "r"(window(&barrier)), "r"(rank ^ 1));
          asm volatile("{stores} [%0], {registers}, [%1];"
                       ::"r"(there), "r"(done), {values} : "memory");
          wait_for(window(&barrier), 0); y[0] = received[threadIdx.x]; {_MEET}""")  # fmt: skip
    cast = (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 512, [%2], 3;"
    )
    cast = cast.replace(", 3;", ", %3;")
    yield case(cast, f"""__shared__ alignas(128) uint64_t values[128]; {_BARRIER} {other} {_MEET}
      if (threadIdx.x == 0) {{
        {_expect("1024")}
        asm volatile("{cast}" ::"r"(window(values + 64 * rank)), "l"(in + 64 * rank), "r"(window(&barrier)),
                     "h"((uint16_t)3) : "memory");
      }}
      wait_for(window(&barrier), 0); y[0] = values[threadIdx.x]; {_MEET}""")  # fmt: skip
    yield case("mbarrier.arrive.release.cluster.shared::cluster", f"""{_BARRIER} {other} {_MEET}
      uint32_t done;
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(done) : "r"(window(&barrier)), "r"(rank ^ 1));
      if (threadIdx.x == 5)
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(done) : "memory");
      wait_for(window(&barrier), 0); y[0] = x[0] + 1; {_MEET}""")  # fmt: skip
    for register in ("cluster_ctarank", "cluster_nctarank", "clusterid.x", "nclusterid.x", "cluster_ctaid.x"):
        yield case(f"%{register}", f'uint32_t d; asm("mov.u32 %0, %%{register};" : "=r"(d)); y[0] = d;')


FAMILIES = [small_copies, bulk_copies, tensor_loads, tensor_stores, clusters]
