"""Functions of CUDA C++: on bits, with a direction of rounding, on half-precision numbers, and of mathematics."""

import itertools
from collections.abc import Iterator
from random import Random

from . import Case
from .agreement import Agreement, same_bits, within
from .operands import finite, operand
from .scalars import THREADS

_CASTS = {"u32": "(uint32_t){}", "s32": "(int){}", "u64": "(unsigned long long){}", "s64": "(long long){}"}
_CASTS |= {"f32": "as_float({})", "f64": "as_double({})", "f16": "as_half({})", "bf16": "as_bfloat({})"}
_CASTS |= {"f16x2": "as_half2({})", "bf16x2": "as_bfloat2({})"}


def function(
    random: Random,
    family: str,
    call: str,
    kinds: list[str],
    *,
    agreement: Agreement | None = None,
    ranges: tuple[float, float] | None = None,
    capability: int = 75,
) -> Case:
    """A call in which {0}, {1} and so on are operands of these types."""
    text = call.format(*(_CASTS[kind].format(f"x[{i}]") for i, kind in enumerate(kinds)))
    rows = [
        [finite(random, kind, *ranges) if ranges else operand(random, kind) for kind in kinds] for _ in range(THREADS)
    ]
    words = [word for row in rows for word in row]
    return Case(
        family, call, f"y[0] = bits_of({text});", words, 1, THREADS, 1, agreement or same_bits(), capability=capability
    )


def bit_functions(random: Random) -> Iterator[Case]:
    for name in ("brev", "clz", "popc"):
        yield function(random, "bit_functions", f"(uint32_t)__{name}({{0}})", ["u32"])
        yield function(random, "bit_functions", f"__{name}ll({{0}})", ["u64"])
    yield function(random, "bit_functions", "(uint32_t)__ffs({0})", ["s32"])
    yield function(random, "bit_functions", "(uint32_t)__ffsll({0})", ["s64"])
    for name, kind in (("__mulhi", "s32"), ("__umulhi", "u32"), ("__mul24", "s32"), ("__umul24", "u32")):
        yield function(random, "bit_functions", f"(uint32_t){name}({{0}}, {{1}})", [kind, kind])
    yield function(random, "bit_functions", "__mul64hi({0}, {1})", ["s64", "s64"])
    yield function(random, "bit_functions", "__umul64hi({0}, {1})", ["u64", "u64"])
    for name, kind in (("__hadd", "s32"), ("__uhadd", "u32"), ("__rhadd", "s32"), ("__urhadd", "u32")):
        yield function(random, "bit_functions", f"(uint32_t){name}({{0}}, {{1}})", [kind, kind])
    yield function(random, "bit_functions", "(uint32_t)__sad({0}, {1}, {2})", ["s32", "s32", "u32"])
    yield function(random, "bit_functions", "__usad({0}, {1}, {2})", ["u32", "u32", "u32"])
    yield function(random, "bit_functions", "__byte_perm({0}, {1}, {2})", ["u32", "u32", "u32"])
    for name in ("l", "r", "lc", "rc"):
        yield function(random, "bit_functions", f"__funnelshift_{name}({{0}}, {{1}}, {{2}})", ["u32", "u32", "u32"])
    yield function(random, "bit_functions", "(uint32_t)__dp4a({0}, {1}, {2})", ["s32", "s32", "s32"])
    yield function(random, "bit_functions", "__dp4a({0}, {1}, {2})", ["u32", "u32", "u32"])
    yield function(random, "bit_functions", "(uint32_t)__dp2a_lo({0}, {1}, {2})", ["s32", "s32", "s32"])
    for name in ("add", "sub", "absdiffu", "avgu", "maxu", "minu", "maxs", "mins", "cmpeq", "cmpgts", "cmpltu", "sads"):
        for width in ("2", "4"):
            yield function(random, "bit_functions", f"__v{name}{width}({{0}}, {{1}})", ["u32", "u32"])
    for name in ("addss", "addus", "subss", "subus"):
        for width in ("2", "4"):
            yield function(random, "bit_functions", f"__v{name}{width}({{0}}, {{1}})", ["u32", "u32"])


def roundings(random: Random) -> Iterator[Case]:
    for rounding in ("rn", "rz", "ru", "rd"):
        for name in ("add", "sub", "mul", "div"):
            yield function(random, "roundings", f"__f{name}_{rounding}({{0}}, {{1}})", ["f32", "f32"])
            yield function(random, "roundings", f"__d{name}_{rounding}({{0}}, {{1}})", ["f64", "f64"])
        for name in ("rcp", "sqrt"):
            yield function(random, "roundings", f"__f{name}_{rounding}({{0}})", ["f32"])
            yield function(random, "roundings", f"__d{name}_{rounding}({{0}})", ["f64"])
        yield function(random, "roundings", f"__fmaf_{rounding}({{0}}, {{1}}, {{2}})", ["f32", "f32", "f32"])
        yield function(random, "roundings", f"__fma_{rounding}({{0}}, {{1}}, {{2}})", ["f64", "f64", "f64"])
        for source, kind in (("float", "f32"), ("double", "f64")):
            for target in ("int", "uint", "ll", "ull"):
                yield function(random, "roundings", f"(uint64_t)__{source}2{target}_{rounding}({{0}})", [kind])
        for source, kind in (("int", "s32"), ("uint", "u32"), ("ll", "s64"), ("ull", "u64")):
            yield function(random, "roundings", f"__{source}2float_{rounding}({{0}})", [kind])
        yield function(random, "roundings", f"__double2float_{rounding}({{0}})", ["f64"])
    yield function(random, "roundings", "__frsqrt_rn({0})", ["f32"])
    yield function(random, "roundings", "__saturatef({0})", ["f32"])
    for name in (
        "(int){0}",
        "(uint32_t){0}",
        "(long long){0}",
        "rintf({0})",
        "truncf({0})",
        "ceilf({0})",
        "floorf({0})",
    ):
        yield function(random, "roundings", name, ["f32"], ranges=(-70000, 70000) if "uint" not in name else (0, 70000))
    for name in ("roundf({0})", "lrintf({0})", "fminf({0}, {1})", "fmaxf({0}, {1})", "{0} + {1}", "{0} * {1}"):
        yield function(random, "roundings", name, ["f32"] * (2 if "{1}" in name else 1), ranges=(-1000, 1000))
    # Like operators, it is the processor's own: the bits of a NaN are.
    yield function(random, "roundings", "fmaf({0}, {1}, {2})", ["f32"] * 3, agreement=within("f32"))


def half_functions(random: Random) -> Iterator[Case]:
    for kind in ("f16", "bf16", "f16x2", "bf16x2"):
        suffix = "2" if kind.endswith("x2") else ""
        capability = 80
        for name in ("hadd", "hsub", "hmul", "hadd_sat", "hmul_sat", "hmin", "hmax", "hmin_nan", "hmax_nan"):
            base, _, tail = name.partition("_")
            call = f"__{base}{suffix}{'_' + tail if tail else ''}({{0}}, {{1}})"
            yield function(random, "half_functions", call, [kind, kind], capability=capability)
        for name in ("hfma", "hfma_relu", "hfma_sat"):
            base, _, tail = name.partition("_")
            call = f"__{base}{suffix}{'_' + tail if tail else ''}({{0}}, {{1}}, {{2}})"
            yield function(random, "half_functions", call, [kind] * 3, capability=capability)
        for name in ("habs", "hneg"):
            yield function(random, "half_functions", f"__{name}{suffix}({{0}})", [kind], capability=capability)
        if suffix:
            for name in ("heq2", "hne2", "hlt2", "hge2", "hgeu2"):
                yield function(random, "half_functions", f"__{name}({{0}}, {{1}})", [kind, kind], capability=capability)
        else:
            yield function(
                random,
                "half_functions",
                "__hdiv({0}, {1})",
                [kind, kind],
                capability=capability,
                agreement=within(kind, ulps=1),
                ranges=(0.5, 8),
            )
            for name in ("heq", "hne", "hlt", "hge", "hgtu"):
                yield function(random, "half_functions", f"(uint32_t)__{name}({{0}}, {{1}})", [kind, kind])
            for name in ("hrint", "hfloor", "hceil", "htrunc"):
                yield function(random, "half_functions", f"{name}({{0}})", [kind], capability=capability)
            for name, least in (
                ("hexp", -4),
                ("hlog", 0.1),
                ("hsqrt", 0.1),
                ("hrsqrt", 0.1),
                ("hrcp", 0.1),
                ("hsin", -3),
            ):
                yield function(
                    random,
                    "half_functions",
                    f"{name}({{0}})",
                    [kind],
                    ranges=(least, 4),
                    agreement=within(kind, ulps=2, absolute=2**-12 if name in ("hsin", "hlog") else 0),
                )
    for rounding in ("rn", "rz", "ru", "rd"):
        for target, kind in (("int", "f16"), ("uint", "f16"), ("ll", "f16"), ("short", "f16"), ("ushort", "f16")):
            yield function(random, "half_functions", f"(uint64_t)__half2{target}_{rounding}({{0}})", [kind])
        for target in ("int", "uint", "ll", "short"):
            yield function(random, "half_functions", f"(uint64_t)__bfloat162{target}_{rounding}({{0}})", ["bf16"])
        for source, kind in (("float", "f32"), ("int", "s32"), ("uint", "u32"), ("ll", "s64"), ("ull", "u64")):
            yield function(random, "half_functions", f"__{source}2half_{rounding}({{0}})", [kind])
            yield function(random, "half_functions", f"__{source}2bfloat16_{rounding}({{0}})", [kind], capability=80)
    # The toolkit's own for the host: the bits of a NaN are.
    yield function(random, "half_functions", "__double2half({0})", ["f64"], agreement=within("f16"))
    yield function(random, "half_functions", "__double2bfloat16({0})", ["f64"], agreement=within("bf16"))
    yield function(random, "half_functions", "__floats2half2_rn({0}, {1})", ["f32", "f32"])
    yield function(random, "half_functions", "__floats2bfloat162_rn({0}, {1})", ["f32", "f32"])
    for saturation, format_ in itertools.product(("NOSAT", "SATFINITE"), ("E4M3", "E5M2")):
        tail = f"__NV_{saturation}, __NV_{format_})"
        yield function(random, "half_functions", f"__nv_cvt_float_to_fp8({{0}}, {tail}", ["f32"])
        yield function(random, "half_functions", f"__nv_cvt_double_to_fp8({{0}}, {tail}", ["f64"])
    for format_ in ("E4M3", "E5M2"):
        yield function(random, "half_functions", f"__nv_cvt_fp8_to_halfraw({{0}} & 255, __NV_{format_}).x", ["u32"])


# The largest errors of CUDA's programming guide, in units in the last place.
_MATHEMATICS = (
    ("expf({0})", (-80, 80), 2),
    ("exp2f({0})", (-100, 100), 2),
    ("logf({0})", (0.01, 100), 1),
    ("log2f({0})", (0.01, 100), 1),
    ("sinf({0})", (-100, 100), 2),
    ("cosf({0})", (-100, 100), 2),
    ("tanhf({0})", (-5, 5), 2),
    ("erff({0})", (-3, 3), 2),
    ("rsqrtf({0})", (0.01, 100), 2),
    ("sqrtf({0})", (0, 100), 0),
    ("cbrtf({0})", (-100, 100), 1),
    ("atanf({0})", (-10, 10), 2),
    ("log1pf({0})", (-0.5, 10), 1),
    ("expm1f({0})", (-5, 5), 1),
    ("sinhf({0})", (-5, 5), 3),
    ("fabsf({0})", (-5, 5), 0),
)
_TWO_OPERANDS = (
    ("powf({0}, {1})", (0.1, 10), 4),
    ("atan2f({0}, {1})", (0.1, 10), 3),
    ("hypotf({0}, {1})", (0.1, 10), 3),
    ("fmodf({0}, {1})", (0.1, 10), 0),
    ("{0} / {1}", (0.1, 10), 0),
)


def mathematics(random: Random) -> Iterator[Case]:
    for call, ranges, ulps in _MATHEMATICS + _TWO_OPERANDS:
        kinds = ["f32"] * (2 if "{1}" in call else 1)
        agreement = within("f32", ulps=ulps + 0.5) if ulps else same_bits()
        yield function(random, "mathematics", call, kinds, agreement=agreement, ranges=ranges)
    for call, ranges, agreement in (
        ("__expf({0})", (-10, 10), within("f32", relative=2**-18)),
        ("__logf({0})", (0.1, 10), within("f32", relative=2**-21, absolute=2**-21)),
        ("__sinf({0})", (-3, 3), within("f32", absolute=2**-21)),
        ("__fdividef({0}, {1})", (0.1, 10), within("f32", ulps=2.5)),
        ("__powf({0}, {1})", (0.1, 5), within("f32", relative=2**-18)),
    ):
        yield function(
            random, "mathematics", call, ["f32"] * (2 if "{1}" in call else 1), agreement=agreement, ranges=ranges
        )
    for call in ("exp({0})", "log({0})", "sin({0})", "sqrt({0})", "tanh({0})"):
        yield function(random, "mathematics", call, ["f64"], agreement=within("f64", ulps=2.5), ranges=(0.1, 10))


FAMILIES = [bit_functions, roundings, half_functions, mathematics]
