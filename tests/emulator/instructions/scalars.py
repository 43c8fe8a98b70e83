"""Instructions that a thread executes alone, on operands in registers."""

import itertools
from collections.abc import Iterator
from random import Random

from . import Case
from .agreement import Agreement, same_bits, within
from .operands import bits_of, finite, operand

THREADS = 128
_REGISTERS = {16: ("h", "uint16_t"), 32: ("r", "uint32_t"), 64: ("l", "uint64_t")}
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
WIDE = INTEGERS[2:]
ROUNDINGS = ("rn", "rz", "rm", "rp")
HALVES = ("f16", "f16x2", "bf16", "bf16x2")


def _register(kind: str) -> tuple[str, str]:
    return _REGISTERS[max(bits_of(kind), 16)]


def instruction(
    random: Random,
    family: str,
    name: str,
    target: str,
    sources: list[str],
    *,
    agreement: Agreement | None = None,
    capability: int = 75,
    operands: list[list[int]] | None = None,
    suffix: str = "",
) -> Case:
    """One instruction, whose target and sources have these types; `pred` lies in a 32-bit word."""
    declared, before, after, places, inputs = [], [], [], [], []
    constraint, kind = _REGISTERS[32] if target == "pred" else _register(target)
    first = "p0" if target == "pred" else "%0"
    if target == "pred":
        declared.append("p0")
        after.append("selp.u32 %0, 1, 0, p0;")
    for index, source in enumerate(sources, start=1):
        if source == "pred":
            declared.append(f"p{index}")
            before.append(f"setp.ne.u32 p{index}, %{index}, 0;")
            places.append(f"p{index}")
            inputs.append(f'"r"((uint32_t)x[{index - 1}])')
        else:
            letter, cast = _register(source)
            places.append(f"%{index}")
            inputs.append(f'"{letter}"(({cast})x[{index - 1}])')
    predicates = f".reg .pred {', '.join(declared)}; " if declared else ""
    text = f"{{{predicates}{' '.join(before)} {name} {', '.join([first, *places])}{suffix}; {' '.join(after)}}}"
    body = f'{kind} d = 0; asm volatile("{text}" : "+{constraint}"(d) : {", ".join(inputs)}); y[0] = d;'
    rows = operands or [[operand(random, source) for source in sources] for _ in range(THREADS)]
    words = [word for row in rows for word in row]
    return Case(family, name + suffix, body, words, 1, THREADS, 1, agreement or same_bits(), capability=capability)


def integers(random: Random) -> Iterator[Case]:
    def case(name: str, target: str, *sources: str, capability: int = 75) -> Case:
        return instruction(random, "integers", name, target, list(sources), capability=capability)

    for kind in INTEGERS:
        for name in ("add", "sub", "mul.lo", "mul.hi", "min", "max", "div", "rem"):
            yield case(f"{name}.{kind}", kind, kind, kind)
        yield case(f"sad.{kind}", kind, kind, kind, kind)
        yield case(f"mad.lo.{kind}", kind, kind, kind, kind)
        yield case(f"mad.hi.{kind}", kind, kind, kind, kind)
        if kind.startswith("s"):
            yield case(f"abs.{kind}", kind, kind)
            yield case(f"neg.{kind}", kind, kind)
    for kind in ("u16", "s16", "u32", "s32"):
        wide = kind[0] + str(2 * int(kind[1:]))
        yield case(f"mul.wide.{kind}", wide, kind, kind)
        yield case(f"mad.wide.{kind}", wide, kind, kind, wide)
    for kind in ("u32", "s32"):
        for half in ("lo", "hi"):
            yield case(f"mul24.{half}.{kind}", kind, kind, kind)
            yield case(f"mad24.{half}.{kind}", kind, kind, kind, kind)
        for mode in ("clamp", "wrap"):
            yield case(f"szext.{mode}.{kind}", kind, kind, "u32")
    for kind in WIDE:
        bits = f"b{kind[1:]}"
        yield case(f"bfe.{kind}", kind, kind, "b32", "b32")
        yield case(f"bfind.{kind}", "u32", kind)
        yield case(f"bfind.shiftamt.{kind}", "u32", kind)
        if kind.startswith("u"):
            yield case(f"bfi.{bits}", bits, bits, bits, "b32", "b32")
            yield case(f"popc.{bits}", "u32", bits)
            yield case(f"clz.{bits}", "u32", bits)
            yield case(f"brev.{bits}", bits, bits)
    yield case("add.sat.s32", "s32", "s32", "s32")
    yield case("sub.sat.s32", "s32", "s32", "s32")
    yield case("mad.hi.sat.s32", "s32", "s32", "s32", "s32")
    yield case("mad24.hi.sat.s32", "s32", "s32", "s32", "s32")
    for kind in ("u16x2", "s16x2"):
        yield case(f"add.{kind}", kind, kind, kind, capability=90)
    for name in ("min", "max"):
        for kind in ("u16x2", "s16x2", "relu.s16x2", "relu.s32"):
            plain = kind.removeprefix("relu.")
            yield case(f"{name}.{kind}", plain, plain, plain, capability=90)
    for mode in ("clamp", "wrap"):
        yield case(f"bmsk.{mode}.b32", "b32", "b32", "b32")
        for side in ("l", "r"):
            yield case(f"shf.{side}.{mode}.b32", "b32", "b32", "b32", "b32")
    for first, second in itertools.product(("u32", "s32"), repeat=2):
        yield case(f"dp4a.{first}.{second}", "b32", "b32", "b32", "b32")
        for half in ("lo", "hi"):
            yield case(f"dp2a.{half}.{first}.{second}", "b32", "b32", "b32", "b32")


def carries(random: Random) -> Iterator[Case]:
    """Sums and differences of many words."""
    for kind, (letter, cast) in (("u32", _REGISTERS[32]), ("u64", _REGISTERS[64])):
        for name in ("add", "sub"):
            text = f"{{{name}.cc.{kind} %0, %2, %3; {name}c.cc.{kind} %1, %4, %5; {name}c.{kind} %0, %0, %1;}}"
            yield _three_words(random, f"{name}.cc, {name}c.cc, {name}c {kind}", text, kind, letter, cast)
        text = f"{{mad.lo.cc.{kind} %0, %2, %3, %4; madc.hi.cc.{kind} %1, %2, %3, %5; madc.lo.{kind} %0, %0, %1, %2;}}"
        yield _three_words(random, f"mad.lo.cc, madc.hi.cc, madc.lo {kind}", text, kind, letter, cast)


def _three_words(random: Random, name: str, text: str, kind: str, letter: str, cast: str) -> Case:
    inputs = ", ".join(f'"{letter}"(({cast})x[{i}])' for i in range(4))
    body = f'{cast} a, b; asm volatile("{text}" : "=&{letter}"(a), "=&{letter}"(b) : {inputs}); y[0] = a; y[1] = b;'
    words = [operand(random, kind) for _ in range(4 * THREADS)]
    return Case("carries", name, body, words, 2, THREADS)


def bits(random: Random) -> Iterator[Case]:
    def case(name: str, target: str, *sources: str, suffix: str = "") -> Case:
        return instruction(random, "bits", name, target, list(sources), suffix=suffix)

    for kind in ("b16", "b32", "b64", "pred"):
        for name in ("and", "or", "xor"):
            yield case(f"{name}.{kind}", kind, kind, kind)
        yield case(f"not.{kind}", kind, kind)
        if kind != "pred":
            yield case(f"cnot.{kind}", kind, kind)
            yield case(f"shl.{kind}", kind, kind, "u32")
            yield case(f"selp.{kind}", kind, kind, kind, "pred")
            yield case(f"slct.{kind}.s32", kind, kind, kind, "s32")
            yield case(f"slct.{kind}.f32", kind, kind, kind, "f32")
            yield case(f"slct.ftz.{kind}.f32", kind, kind, kind, "f32")
    for kind in ("b16", "b32", "b64", *INTEGERS):
        yield case(f"shr.{kind}", kind, kind, "u32")
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield case(f"prmt.b32{mode}", "b32", "b32", "b32", "b32")
    for _ in range(6):
        yield case("lop3.b32", "b32", "b32", "b32", "b32", suffix=f", {random.randrange(256)}")
    for first in ("s32", "u32"):
        positions = [
            [operand(random, "b32"), random.randrange(32), random.randrange(-33, 34) % 2**32] for _ in range(THREADS)
        ]
        if first == "s32":
            yield instruction(random, "bits", "fns.b32", "b32", ["b32", "b32", "s32"], operands=positions)
    for kind in ("f32", "f64"):
        plain = f"b{kind[1:]}"
        yield case(f"copysign.{kind}", plain, kind, kind)
        for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield case(f"testp.{test}.{kind}", "pred", kind)
    for kind, capability in (("u16", 75), ("s16", 75)):
        yield instruction(random, "bits", f"cvt.pack.sat.{kind}.s32", "b32", ["s32", "s32"], capability=capability)
    for kind in ("u8", "s8"):
        yield case(f"cvt.pack.sat.{kind}.s32.b32", "b32", "s32", "s32", "b32")


def floats(random: Random) -> Iterator[Case]:
    def case(name: str, kind: str, count: int, capability: int = 75) -> Case:
        return instruction(random, "floats", f"{name}.{kind}", kind, [kind] * count, capability=capability)

    for name, rounding in itertools.product(("add", "sub", "mul", "fma"), ROUNDINGS):
        count = 3 if name == "fma" else 2
        for qualifiers in ("", ".ftz", ".sat", ".ftz.sat"):
            yield case(f"{name}.{rounding}{qualifiers}", "f32", count)
        yield case(f"{name}.{rounding}", "f64", count)
    for name, rounding, kind in itertools.product(("div", "rcp", "sqrt"), ROUNDINGS, ("f32", "ftz.f32", "f64")):
        plain = kind.removeprefix("ftz.")
        yield instruction(random, "floats", f"{name}.{rounding}.{kind}", plain, [plain] * (2 if name == "div" else 1))
    for name in ("abs", "neg"):
        for kind in ("f32", "ftz.f32", "f64", "f16", "ftz.f16", "f16x2", "ftz.f16x2", "bf16", "bf16x2"):
            plain = kind.removeprefix("ftz.")
            capability = 80 if kind.startswith("bf") else 75
            yield instruction(random, "floats", f"{name}.{kind}", plain, [plain], capability=capability)
    for kind in HALVES:
        is_bfloat = kind.startswith("bf")
        for name in ("add", "sub", "mul"):
            for qualifiers in [""] if is_bfloat else ["", ".ftz", ".sat", ".ftz.sat"]:
                yield case(f"{name}.rn{qualifiers}", kind, 2, 90 if is_bfloat else 75)
        for qualifiers in ["", ".relu"] if is_bfloat else ["", ".ftz", ".sat", ".relu", ".ftz.relu"]:
            yield case(f"fma.rn{qualifiers}", kind, 3, 80)
    for name, kind in itertools.product(("min", "max"), ("f32", *HALVES)):
        for ftz, nan, sign in itertools.product(("", ".ftz"), ("", ".NaN"), ("", ".xorsign.abs")):
            if not (ftz and kind.startswith("bf")):
                yield case(f"{name}{ftz}{nan}{sign}", kind, 2, 86)
    for name in ("min", "max"):
        yield case(name, "f64", 2)


def comparisons(random: Random) -> Iterator[Case]:
    orders = ("eq", "ne", "lt", "le", "gt", "ge")
    unordered = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
    kinds = [(kind, orders) for kind in INTEGERS] + [(kind, orders[:2]) for kind in ("b16", "b32", "b64")]
    kinds += [("u32", ("lo", "ls", "hi", "hs"))]
    kinds += [(kind, orders + unordered) for kind in ("f32", "ftz.f32", "f64", "f16", "ftz.f16", "bf16")]
    for kind, names in kinds:
        plain = kind.removeprefix("ftz.")
        capability = 90 if kind == "bf16" else 75
        for name in names:
            logic = random.choice(["", ".and", ".or", ".xor"])
            sources = [plain, plain] + ["pred"] * bool(logic)
            yield instruction(
                random, "comparisons", f"setp.{name}{logic}.{kind}", "pred", sources, capability=capability
            )
    for name in random.sample(orders + unordered, 6):
        for target, source in (("u32", "f32"), ("f32", "f32"), ("s32", "f64"), ("f16", "f16"), ("f16x2", "f16x2")):
            yield instruction(random, "comparisons", f"set.{name}.{target}.{source}", target, [source, source])
        for target, source in (("bf16", "bf16"), ("bf16x2", "bf16x2"), ("u16", "bf16"), ("u16", "f16")):
            text = f"set.{name}.{target}.{source}"
            yield instruction(random, "comparisons", text, target, [source, source], capability=90)
    for name in orders:
        yield instruction(random, "comparisons", f"set.{name}.u32.s32", "u32", ["s32", "s32"])
        yield instruction(random, "comparisons", f"set.{name}.f32.u64", "f32", ["u64", "u64"])


def conversions(random: Random) -> Iterator[Case]:
    def case(name: str, target: str, *sources: str, capability: int = 75) -> Case:
        wide = "b32" if target in ("u8", "s8") else target
        return instruction(random, "conversions", f"{name}", wide, list(sources), capability=capability)

    small = ("u8", "s8", *INTEGERS)
    for target, source in itertools.product(small, small):
        sat = random.choice(["", ".sat"]) if _may_saturate(target, source) else ""
        yield case(f"cvt{sat}.{target}.{source}", target, _stored(source))
    for target, source in itertools.product(small, ("f16", "f32", "f64", "bf16")):
        if source == "bf16" and target in ("u8", "s8"):
            continue
        rounding = random.choice(["rni", "rzi", "rmi", "rpi"])
        ftz = random.choice(["", ".ftz"]) if source == "f32" else ""
        capability = 90 if source == "bf16" else 75
        yield case(f"cvt.{rounding}{ftz}.{target}.{source}", target, source, capability=capability)
    for target, source in itertools.product(("f16", "f32", "f64", "bf16"), small):
        if target == "bf16" and source in ("u8", "s8"):
            continue
        sat = random.choice(["", ".sat"]) if target != "bf16" else ""
        capability = 90 if target == "bf16" else 75
        yield case(
            f"cvt.{random.choice(ROUNDINGS)}{sat}.{target}.{source}", target, _stored(source), capability=capability
        )
    for rounding in ROUNDINGS:
        for name in ("f32.f64", "ftz.f32.f64", "ftz.sat.f32.f64", "f16.f64", "f16.f32", "ftz.f16.f32", "sat.f16.f32"):
            target, source = name.split(".")[-2:]
            yield case(f"cvt.{rounding}.{name}", target, source)
        for name in ("f16.bf16", "bf16.f16", "bf16.f64"):
            yield case(f"cvt.{rounding}.{name}", *name.split("."), capability=90)
    for name in ("ftz.f64.f32", "f64.f32", "f32.f16", "sat.f32.f16", "f64.f16", "f32.bf16", "f64.bf16"):
        target, source = name.split(".")[-2:]
        yield case(f"cvt.{name}", target, source, capability=90)
    for rounding, kind in itertools.product(("rni", "rzi", "rmi", "rpi"), ("f32", "ftz.f32", "f64", "f16", "bf16")):
        plain = kind.removeprefix("ftz.")
        yield case(f"cvt.{rounding}.{kind}.{plain}", plain, plain, capability=90)
    for rounding, relu, finite_, kind in itertools.product(
        ("rn", "rz"), ("", ".relu"), ("", ".satfinite"), ("f16", "bf16")
    ):
        yield case(f"cvt.{rounding}{relu}{finite_}.{kind}.f32", kind, "f32", capability=80)
        yield case(f"cvt.{rounding}{relu}{finite_}.{kind}x2.f32", f"{kind}x2", "f32", "f32", capability=80)
    for name in ("rna", "rn", "rz", "rn.relu", "rz.relu"):
        yield case(f"cvt.{name}.tf32.f32", "b32", "f32", capability=90)
    for kind, relu in itertools.product(("e4m3x2", "e5m2x2"), ("", ".relu")):
        yield case(f"cvt.rn.satfinite{relu}.{kind}.f32", "b16", "f32", "f32", capability=89)
        yield case(f"cvt.rn.satfinite{relu}.{kind}.f16x2", "b16", "f16x2", capability=89)
        yield case(f"cvt.rn{relu}.f16x2.{kind}", "f16x2", "b16", capability=89)


def _may_saturate(target: str, source: str) -> bool:
    """Whether the target's range lacks a number of the source's."""
    narrower = int(target[1:]) - (target[0] == "s") < int(source[1:]) - (source[0] == "s")
    return narrower or (source[0] == "s" and target[0] == "u")


def _stored(kind: str) -> str:
    """The type of the register that holds a small integer."""
    return "b32" if kind in ("u8", "s8") else kind


# What PTX documents for approximations, and the emulated GPU's own rounding.
_APPROXIMATIONS = (
    ("rcp.approx.f32", (-1e30, 1e30), within("f32", ulps=2)),
    ("rcp.approx.ftz.f32", (-4, 4), within("f32", ulps=2)),
    ("sqrt.approx.f32", (0, 1e30), within("f32", relative=2**-22.9)),
    ("sqrt.approx.ftz.f32", (0, 4), within("f32", relative=2**-22.9)),
    ("rsqrt.approx.f32", (0, 1e30), within("f32", relative=2**-22.8)),
    ("rsqrt.approx.ftz.f32", (0, 4), within("f32", relative=2**-22.8)),
    ("ex2.approx.f32", (-140, 128), within("f32", relative=2**-22, absolute=2**-149)),
    ("ex2.approx.ftz.f32", (-120, 120), within("f32", relative=2**-22)),
    ("lg2.approx.f32", (0, 1e30), within("f32", relative=2**-22, absolute=2**-22)),
    ("lg2.approx.ftz.f32", (0, 4), within("f32", relative=2**-22, absolute=2**-22)),
    ("sin.approx.f32", (-6.28, 6.28), within("f32", absolute=2**-20.4)),
    ("cos.approx.ftz.f32", (-6.28, 6.28), within("f32", absolute=2**-20.4)),
    ("tanh.approx.f32", (-8, 8), within("f32", relative=2**-10.9)),
    ("tanh.approx.f16", (-8, 8), within("f16", absolute=2**-10.9, ulps=1)),
    ("tanh.approx.f16x2", (-8, 8), within("f16x2", absolute=2**-10.9, ulps=1)),
    ("tanh.approx.bf16", (-8, 8), within("bf16", absolute=2**-8, ulps=1)),
    ("tanh.approx.bf16x2", (-8, 8), within("bf16x2", absolute=2**-8, ulps=1)),
    ("ex2.approx.f16", (-14, 15), within("f16", relative=2**-9.9, ulps=1)),
    ("ex2.approx.f16x2", (-14, 15), within("f16x2", relative=2**-9.9, ulps=1)),
    ("ex2.approx.ftz.bf16", (-100, 100), within("bf16", relative=2**-7, ulps=1)),
    ("ex2.approx.ftz.bf16x2", (-100, 100), within("bf16x2", relative=2**-7, ulps=1)),
    ("rcp.approx.ftz.f64", (-1e30, 1e30), within("f64", relative=2**-19)),
    ("rsqrt.approx.f64", (0, 1e30), within("f64", relative=2**-19)),
    ("rsqrt.approx.ftz.f64", (0, 1e30), within("f64", relative=2**-19)),
)


def approximations(random: Random) -> Iterator[Case]:
    for name, (least, most), agreement in _APPROXIMATIONS:
        kind = name.split(".")[-1]
        half = kind.removesuffix("x2")
        edges = ["f32", "f64"] if name.startswith(("rcp", "sqrt", "rsqrt")) else []
        rows = []
        for index in range(THREADS):
            low, high = (finite(random, half, least, most) for _ in "ab")
            word = low | high << 16 if kind.endswith("x2") else low
            rows.append([operand(random, kind) if kind in edges and index % 4 == 0 else word])
        yield instruction(
            random, "approximations", name, kind, [kind], agreement=agreement, operands=rows, capability=90
        )
    for name in ("div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32"):
        rows = [[finite(random, "f32", -1e6, 1e6) for _ in "ab"] for _ in range(THREADS)]
        yield instruction(
            random, "approximations", name, "f32", ["f32", "f32"], agreement=within("f32", ulps=2.5), operands=rows
        )


FAMILIES = [integers, carries, bits, floats, comparisons, conversions, approximations]
