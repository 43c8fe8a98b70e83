"""Operands: edge values and random ones, by PTX type."""

from random import Random

_EDGES = {
    8: [0, 1, 2, 0x7F, 0x80, 0x81, 0xFF, 0x7E, 0x7C, 0xFC, 0x3C, 0xBC],
    16: [0, 1, 2, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 15, 16, 17],
    32: [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 31, 32, 33, 0xFFFF, 0x10000, 0x00FFFFFF],
    64: [0, 1, 2, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 63, 64, 65, 2**32 - 1, 2**32, 2**53 + 1],
}
_FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "tf32": (8, 23)}


def bits_of(kind: str) -> int:
    """The width of a type such as s32 or bf16x2."""
    if kind == "pred":
        return 1
    digits = kind.split("x2", maxsplit=1)[0].lstrip("abcdefghijklmnopqrstuvwxyz")
    if kind.startswith(("e4m3", "e5m2")):
        digits = "8"
    if kind == "tf32":
        digits = "32"
    return int(digits) * (2 if kind.endswith("x2") else 1)


def operand(random: Random, kind: str) -> int:
    """The bits of a value of a PTX type: every other one is an edge of the type's range."""
    if kind == "pred":
        return random.randrange(2)
    if kind.endswith("x2"):
        half = kind.removesuffix("x2")
        return operand(random, half) | operand(random, half) << bits_of(half)
    if kind in _FLOATS:
        return _float(random, *_FLOATS[kind])
    bits = bits_of(kind)
    choice = random.random()
    if choice < 0.4:
        return random.choice(_EDGES[bits])
    if choice < 0.6:
        return random.getrandbits(random.randrange(1, bits + 1))
    return random.getrandbits(bits)


def _float(random: Random, exponent_bits: int, fraction_bits: int) -> int:
    sign = random.getrandbits(1) << (exponent_bits + fraction_bits)
    most, bias = (1 << exponent_bits) - 1, (1 << (exponent_bits - 1)) - 1
    fraction = random.choice(
        [0, 1, (1 << fraction_bits) - 1, 1 << (fraction_bits - 1), random.getrandbits(fraction_bits)]
    )
    choice = random.random()
    if choice < 0.12:  # Zeros and subnormal numbers.
        exponent = 0
    elif choice < 0.2:  # Infinities and NaN.
        exponent = most
    elif choice < 0.3:
        exponent = random.choice([1, most - 1, bias])
    elif choice < 0.8:  # Near 1, where sums and products round.
        exponent = bias + random.randrange(-fraction_bits // 2, fraction_bits // 2)
        fraction = random.getrandbits(fraction_bits)
    else:
        exponent = random.randrange(most)
    return sign | exponent << fraction_bits | fraction


def finite(random: Random, kind: str, least: float, most: float) -> int:
    """The bits of a uniform number of f16, bf16, f32 or f64."""
    import struct

    value = random.uniform(least, most)
    if kind == "f64":
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    if kind == "f16":
        return struct.unpack("<H", struct.pack("<e", value))[0]
    single = struct.unpack("<I", struct.pack("<f", value))[0]
    return single >> 16 if kind == "bf16" else single
