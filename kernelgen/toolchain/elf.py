"""Reads what a shared library (ELF, 64-bit, little-endian) needs from others."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

from kernelgen.errors import KernelgenError

_DYNAMIC, _DYNSYM, _VERSYM = 6, 11, 0x6FFFFFFF
_NEEDED, _RPATH, _RUNPATH = 1, 15, 29
_WEAK = 2


@dataclass
class Dependencies:
    """What a library needs from others: their names, the folders where it looks for them (rpath and runpath), and the
    symbols that they must define, each mapped to whether it names a version of its library."""

    libraries: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    symbols: dict[str, bool] = field(default_factory=dict)


def read(data: bytes | Path) -> Dependencies:
    """What a library needs from others.

    Raises:
        KernelgenError: it is not a library of this kind.
    """
    name = data if isinstance(data, Path) else "the library"
    data = data.read_bytes() if isinstance(data, Path) else data
    if data[:6] != b"\x7fELF\x02\x01":
        raise KernelgenError(f"{name} is not a 64-bit Linux library.")
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError) as error:
        raise KernelgenError(f"{name} is damaged: {error}.") from error


def _read(data: bytes) -> Dependencies:
    (table,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    # Of each section's header: its kind, offset, length, and the number of the section that holds its strings.
    headers = [struct.unpack_from("<4xI16xQQI", data, table + i * size) for i in range(count)]
    sections = {kind: (data[offset : offset + length], link) for kind, offset, length, link in headers}

    def text(strings: int, offset: int) -> str:
        start = headers[strings][1] + offset
        return data[start : data.index(b"\0", start)].decode()

    needs = Dependencies()
    dynamic, strings = sections.get(_DYNAMIC, (b"", 0))
    for tag, value in struct.iter_unpack("<qQ", dynamic):
        if tag == _NEEDED:
            needs.libraries.append(text(strings, value))
        elif tag in (_RPATH, _RUNPATH):
            needs.paths += text(strings, value).split(":")
    symbols, strings = sections.get(_DYNSYM, (b"", 0))
    versions = [version & 0x7FFF for (version,) in struct.iter_unpack("<H", sections.get(_VERSYM, (b"", 0))[0])]
    for i, (name, info, section) in enumerate(struct.iter_unpack("<IBxH16x", symbols)):
        if section == 0 and name and info >> 4 != _WEAK:
            # Versions 0 and 1 mean "none": any library may define the symbol.
            needs.symbols[text(strings, name)] = bool(versions) and versions[i] > 1
    return needs
