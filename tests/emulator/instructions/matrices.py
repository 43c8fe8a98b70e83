"""Matrix instructions: ldmatrix, stmatrix, movmatrix, mma.sync and wgmma.

Small whole numbers, whose sums are exact in any order, tell every place of the fragments apart to the bit. Of random
numbers the sums differ by the rounding of the tensor cores.
"""

import itertools
import struct
from collections.abc import Iterator
from random import Random

from . import Case
from .agreement import Agreement, same_bits, within
from .operands import bits_of, operand

_SMALL_FP8 = {0.0: 0, 0.5: 0x30, 1.0: 0x38, 1.5: 0x3C, 2.0: 0x40}
_WIDTHS = {"u4": 4, "s4": 4, "b1": 1}


def _width(kind: str) -> int:
    return _WIDTHS.get(kind) or bits_of(kind)


def element(random: Random, kind: str, *, is_exact: bool) -> int:
    """The bits of a matrix element: a small whole number, or any number between -2 and 2."""
    if kind[0] in "us" or kind == "b1":
        return random.getrandbits(_width(kind))
    number = float(random.randrange(-2, 3)) if is_exact else random.uniform(-2, 2)
    if kind == "f64":
        return struct.unpack("<Q", struct.pack("<d", number))[0]
    if kind == "f16":
        return struct.unpack("<H", struct.pack("<e", number))[0]
    if kind in ("e4m3", "e5m2"):
        if not is_exact:  # Below 2 in magnitude.
            return random.getrandbits(1) << 7 | random.randrange(0x40)
        sign = 0x80 if number < 0 else 0
        return sign | (_SMALL_FP8[abs(number)] if kind == "e4m3" else {0: 0, 1: 0x3C, 2: 0x40}[int(abs(number))])
    single = struct.unpack("<I", struct.pack("<f", number))[0]
    return single >> 16 if kind == "bf16" else single


def _register(random: Random, kind: str, *, is_exact: bool) -> int:
    width = _width(kind)
    return sum(element(random, kind, is_exact=is_exact) << shift for shift in range(0, max(width, 32), width))


def _bound(depth: int, target: str, factor: str) -> Agreement:
    """How far the sums of tensor cores, which keep few bits beyond the largest addend's, may lie apart."""
    largest = 4 * depth + 2
    if target == "f16":
        return within("f16x2", absolute=largest * 2**-10)
    if target == "f64":
        return within("f64", absolute=largest * 2**-50)
    return within("f32", absolute=largest * (2**-12 if factor in ("e4m3", "e5m2") else 2**-20))


def moves(random: Random) -> Iterator[Case]:
    for count, trans in itertools.product((1, 2, 4), ("", ".trans")):
        order = random.sample(range(64), 32)
        words = [
            w for lane in range(32) for w in (random.getrandbits(64), random.getrandbits(64), 16 * order[lane] % 512)
        ]
        outs = ", ".join(f"%{i}" for i in range(count))
        results = ", ".join(f'"=r"(d[{i}])' for i in range(count))
        text = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{outs}}}, [%{count}];"
        body = f"""__shared__ alignas(16) uint64_t rows[64];
          rows[2 * threadIdx.x] = x[0]; rows[2 * threadIdx.x + 1] = x[1]; __syncwarp();
          uint32_t d[{count}];
          asm volatile("{text}" : {results} : "r"(window(rows) + (uint32_t)x[2]));
          for (int i = 0; i < {count}; ++i) y[i] = d[i];"""
        yield Case("matrices", text, body, words, count, 32)
        ins = ", ".join(f'"r"((uint32_t)x[{i}])' for i in range(count))
        sources = ", ".join(f"%{i + 1}" for i in range(count))
        text = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%0], {{{sources}}};"
        body = f"""__shared__ alignas(16) uint64_t rows[64];
          rows[2 * threadIdx.x] = 0; rows[2 * threadIdx.x + 1] = 0; __syncwarp();
          asm volatile("{text}" :: "r"(window(rows) + 16 * (uint32_t)x[{count}]), {ins} : "memory");
          __syncwarp(); y[0] = rows[2 * threadIdx.x]; y[1] = rows[2 * threadIdx.x + 1];"""
        order = random.sample(range(32), 32)
        words = [w for lane in range(32) for w in (*(random.getrandbits(32) for _ in range(count)), order[lane])]
        yield Case("matrices", text, body, words, 2, 32, capability=90)
    text = "movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
    body = f'uint32_t d; asm volatile("{text}" : "=r"(d) : "r"((uint32_t)x[0])); y[0] = d;'
    yield Case("matrices", text, body, [random.getrandbits(32) for _ in range(32)], 1, 32)


_PRODUCTS = (
    [((16, 8, k), d, "f16", "f16", 80) for k in (8, 16) for d in ("f16", "f32")]
    + [((16, 8, k), "f32", "bf16", "bf16", 80) for k in (8, 16)]
    + [((16, 8, k), "f32", "tf32", "tf32", 80) for k in (4, 8)]
    + [
        ((16, 8, k), d, a, b, 89)
        for k in (16, 32)
        for d in ("f16", "f32")
        for a in ("e4m3", "e5m2")
        for b in ("e4m3", "e5m2")
    ]
    + [
        ((m, 8, k), "s32", a, b, 80)
        for m, k in ((8, 16), (16, 16), (16, 32))
        for a in ("u8", "s8")
        for b in ("u8", "s8")
    ]
    + [((m, 8, k), "s32", a, b, 80) for m, k in ((8, 32), (16, 32), (16, 64)) for a, b in (("u4", "s4"), ("s4", "s4"))]
    + [((m, 8, k), "f64", "f64", "f64", 80 if m == 8 else 90) for m, k in ((8, 4), (16, 4), (16, 8), (16, 16))]
    + [((m, 8, k), "s32", "b1", "b1", 80) for m, k in ((8, 128), (16, 128), (16, 256))]
)


def products(random: Random) -> Iterator[Case]:
    for shape, target, left, right, capability in _PRODUCTS:
        tails = [".xor.popc", ".and.popc"] if left == "b1" else [""]
        satfinites = ["", ".satfinite"] if left[0] in "us" else [""]
        for tail, satfinite in itertools.product(tails, satfinites):
            exactness = (True,) if target == "s32" else (True, False)
            for is_exact in exactness:
                types = f"{target}.{left}.{right}.{target}"
                name = f"mma.sync.aligned.m{shape[0]}n{shape[1]}k{shape[2]}.row.col{satfinite}.{types}{tail}"
                yield _product(random, name, shape, target, left, right, capability, is_exact=is_exact)


def _product(
    random: Random, name: str, shape: tuple[int, int, int], target: str, left: str, right: str, capability: int,
    *, is_exact: bool,
) -> Case:  # fmt: skip
    m, n, k = shape
    counts = [max(size * _width(kind) // 1024, 1) if kind != "f64" else size // 32
              for size, kind in ((m * n, target), (m * k, left), (k * n, right), (m * n, target))]  # fmt: skip
    numbers = itertools.count()
    lists = ["{" + ", ".join(f"%{next(numbers)}" for _ in range(count)) + "}" for count in counts]
    letter, cast = ("d", "double") if target == "f64" else ("r", "uint32_t")
    read = "as_double(x[{}])" if target == "f64" else "(uint32_t)x[{}]"
    outs = ", ".join(f'"={letter}"(d[{i}])' for i in range(counts[0]))
    ins = ", ".join(f'"{letter}"({read.format(i)})' for i in range(sum(counts[1:])))
    text = f"{name} {', '.join(lists)};"
    body = f"""{cast} d[{counts[0]}];
      asm volatile("{text}" : {outs} : {ins});
      for (int i = 0; i < {counts[0]}; ++i) y[i] = bits_of(d[i]);"""
    words = []
    for _ in range(32):
        for count, kind in zip(counts[1:], (left, right, target), strict=True):
            for _ in range(count):
                is_any = kind == "s32" and target == "s32"
                words.append(operand(random, "s32") if is_any else _register(random, kind, is_exact=is_exact))
    agreement = same_bits() if is_exact else _bound(k, target, left)
    return Case("products", name, body, words, counts[0], 32, agreement=agreement, capability=capability)


_WARPGROUP = (
    [(d, "f16", "f16") for d in ("f16", "f32")] + [("f32", "bf16", "bf16"), ("f32", "tf32", "tf32")]
    + [(d, a, b) for d in ("f16", "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
    + [("s32", a, b) for a in ("u8", "s8") for b in ("u8", "s8")]
)  # fmt: skip


def warpgroup_products(random: Random) -> Iterator[Case]:
    """The operands are any bytes of shared memory, which descriptors of every swizzling arrange."""
    for target, left, right in _WARPGROUP:
        for swizzle in range(4):
            is_exact = target == "s32" or swizzle < 2
            majors = (random.randrange(2), random.randrange(2)) if _width(left) == 16 else (0, 0)
            from_registers = swizzle == 3
            columns = random.choice([8, 16, 24, 32, 64])
            yield _warpgroup_product(random, target, left, right, columns, swizzle, majors, from_registers, is_exact)


def _descriptor(swizzle: int, *, is_mn_major: bool) -> str:
    """The upper fields of a descriptor: see PTX ISA, "Matrix Descriptor Format"."""
    width = {0: 16, 1: 128, 2: 64, 3: 32}[swizzle]
    if swizzle == 0:
        leading, stride = (128, 1024) if not is_mn_major else (1024, 128)
    elif is_mn_major:
        leading, stride = 16 * width, 8 * width
    else:
        leading, stride = 16, 8 * width
    return f"(uint64_t){swizzle} << 62 | (uint64_t){stride // 16} << 32 | (uint64_t){leading // 16} << 16"


def _warpgroup_product(
    random: Random, target: str, left: str, right: str, columns: int, swizzle: int, majors: tuple[int, int],
    from_registers: bool, is_exact: bool,
) -> Case:  # fmt: skip
    depth = 256 // _width(left)
    registers = columns // 2 if target != "f16" else columns // 4
    letter, cast = ("f", "float") if target == "f32" else ("r", "uint32_t")
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{target}.{left}.{right}"
    satfinite = ".satfinite" if target == "s32" and random.randrange(2) else ""
    name = name.replace(f"k{depth}.", f"k{depth}{satfinite}.")
    numbers = itertools.count()
    sums = "{" + ", ".join(f"%{next(numbers)}" for _ in range(registers)) + "}"
    a = "{" + ", ".join(f"%{next(numbers)}" for _ in range(4)) + "}" if from_registers else f"%{next(numbers)}"
    b = f"%{next(numbers)}"
    signs = "" if target == "s32" else f", {random.choice([1, -1])}, 1"
    flags = ""
    if _width(left) == 16:
        flags = f", {majors[1]}" if from_registers else f", {majors[0]}, {majors[1]}"
    adds = random.randrange(2)
    text = f"{{.reg .pred p; setp.ne.b32 p, {adds}, 0; {name} {sums}, {a}, {b}, p{signs}{flags};}}"
    outs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(registers))
    left_in = ", ".join(f'"r"((uint32_t)x[{i}])' for i in range(4)) if from_registers else '"l"(first)'
    second = _descriptor(swizzle, is_mn_major=bool(majors[1]))
    body = f"""__shared__ alignas(1024) uint64_t values[4096];
      for (int i = threadIdx.x; i < 4096; i += 128) values[i] = in[i];
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();
      const uint64_t first = (uint64_t)(window(values) >> 4) | {_descriptor(swizzle, is_mn_major=bool(majors[0]))};
      const uint64_t second = (uint64_t)(window(values + 2048) >> 4) | {second};
      {cast} d[{registers}]; (void)first;
      for (int i = 0; i < {registers}; ++i) d[i] = {_start(target)};
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      asm volatile("{text}" : {outs} : {left_in}, "l"(second));
      asm volatile("wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
      for (int i = 0; i < {registers}; ++i) y[i] = bits_of(d[i]);"""
    width = _width(left)
    words = []
    for word in range(4096):
        kind = left if word < 2048 else right
        words.append(sum(element(random, kind, is_exact=is_exact) << shift for shift in range(0, 64, width)))
    agreement = same_bits() if is_exact else _bound(depth, target, left)
    return Case(
        "wgmma", f"{name}, swizzle {swizzle}{', registers' * from_registers}", body, words, registers, 128,
        agreement=agreement, capability=90,
    )  # fmt: skip


def _start(target: str) -> str:
    if target == "f32":
        return "(float)((i + (int)threadIdx.x) % 5)"
    return "0x3c004000u" if target == "f16" else "(uint32_t)x[0] * (i + 1)"


_FRAGMENTS = (
    [((m, n, 16), "f16", d) for m, n in ((16, 16), (32, 8), (8, 32)) for d in ("f16", "f32")]
    + [((m, n, 16), kind, "f32") for m, n in ((16, 16), (32, 8), (8, 32)) for kind in ("bf16",)]
    + [((m, n, 16), kind, "s32") for m, n in ((16, 16), (32, 8), (8, 32)) for kind in ("s8", "u8")]
    + [((16, 16, 8), "tf32", "f32"), ((8, 8, 4), "f64", "f64")]
)
_CPP = {"f16": "__half", "bf16": "__nv_bfloat16", "s8": "signed char", "u8": "unsigned char", "f64": "double"}
_CPP |= {"tf32": "precision::tf32", "f32": "float", "s32": "int"}


def fragments(random: Random) -> Iterator[Case]:
    for (m, n, k), factor, target in _FRAGMENTS:
        layouts = random.choice(["row", "col"]), random.choice(["row", "col"])
        sums = random.choice(["row", "col"])
        shape, stored = f"{m}, {n}, {k}", _CPP[factor].replace("precision::tf32", "float")
        steps = [columns if layout == "row" else rows
                 for (rows, columns), layout in zip(((m, k), (k, n)), layouts, strict=True)]  # fmt: skip
        step = n if sums == "row" else m
        body = f"""using namespace nvcuda::wmma;
          fragment<matrix_a, {shape}, {_CPP[factor]}, {layouts[0]}_major> a;
          fragment<matrix_b, {shape}, {_CPP[factor]}, {layouts[1]}_major> b;
          fragment<accumulator, {shape}, {_CPP[target]}> c;
          load_matrix_sync(a, ({stored}*)in, {steps[0]});
          load_matrix_sync(b, ({stored}*)(in + 64 * 2), {steps[1]});
          load_matrix_sync(c, ({_CPP[target]}*)(in + 64 * 4), {step}, mem_{sums}_major);
          for (int i = 0; i < c.num_elements; ++i) c.x[i] = c.x[i] + c.x[i];
          mma_sync(c, a, b, c);
          store_matrix_sync(({_CPP[target]}*)out, c, {step}, mem_{sums}_major);"""
        words = []
        for word in range(512):
            kind = factor if word < 256 else target
            width = _width(kind)
            words.append(sum(element(random, kind, is_exact=True) << shift for shift in range(0, 64, width)))
        name = f"wmma m{m}n{n}k{k} {target} {factor} {layouts[0]} {layouts[1]}, sums by {sums}"
        yield Case("fragments", name, body, words, 8, 32, capability=80)


FAMILIES = [moves, products, warpgroup_products, fragments]
