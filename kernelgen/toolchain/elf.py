"""Reads of a shared library (ELF, 64-bit, little-endian) what it needs from others."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

from kernelgen.errors import KernelgenError

_DYNAMIC, _DYNSYM, _VERSYM = 6, 11, 0x6FFFFFFF
_NEEDED, _RPATH, _RUNPATH = 1, 15, 29
_WEAK = 2


@dataclass
class Library:
    """`symbols` are those that some other library must define, mapped to whether they carry a version of it."""

    needed: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    symbols: dict[str, bool] = field(default_factory=dict)


def read(data: bytes | Path) -> Library:
    """What a library needs.

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


def _read(data: bytes) -> Library:
    (table,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    # Of a section's header: its kind, where it lies, its length, and the number of the one with its strings.
    headers = [struct.unpack_from("<4xI16xQQI", data, table + i * size) for i in range(count)]
    sections = {kind: (data[offset : offset + length], link) for kind, offset, length, link in headers}

    def text(strings: int, at: int) -> str:
        start = headers[strings][1] + at
        return data[start : data.index(b"\0", start)].decode()

    found = Library()
    dynamic, strings = sections.get(_DYNAMIC, (b"", 0))
    for tag, value in struct.iter_unpack("<qQ", dynamic):
        if tag == _NEEDED:
            found.needed.append(text(strings, value))
        elif tag in (_RPATH, _RUNPATH):
            found.paths += text(strings, value).split(":")
    symbols, strings = sections.get(_DYNSYM, (b"", 0))
    versions = [version & 0x7FFF for (version,) in struct.iter_unpack("<H", sections.get(_VERSYM, (b"", 0))[0])]
    for i, (name, info, section) in enumerate(struct.iter_unpack("<IBxH16x", symbols)):
        if section == 0 and name and info >> 4 != _WEAK:
            # 0 and 1 stand for "none": some library, whichever has it.
            found.symbols[text(strings, name)] = bool(versions) and versions[i] > 1
    return found
