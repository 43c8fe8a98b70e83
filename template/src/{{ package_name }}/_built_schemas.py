"""The schemas that a compiled library was built from, read from the file itself."""

from __future__ import annotations

import struct
from pathlib import Path

SECTION = b"op_schemas"


def built_schemas(library: Path) -> dict[str, str]:
    """The schema of each operator that the library registers, by name; empty if it holds none.

    REGISTER_KERNEL puts name and schema into a section of the ELF file. Reading that takes a few small reads, however
    large the library is.
    """
    with library.open("rb") as file:
        header = file.read(64)
        if header[:5] != b"\x7fELF\x02":  # 64 bits.
            return {}
        (table,) = struct.unpack_from("<Q", header, 40)
        size, count, names_index = struct.unpack_from("<HHH", header, 58)
        file.seek(table)
        entries = file.read(size * count)
        # Of each section: where its name begins among the names, its offset in the file, and its size.
        sections = [
            (*struct.unpack_from("<I", entries, i * size), *struct.unpack_from("<QQ", entries, i * size + 24))
            for i in range(count)
        ]
        _, offset, length = sections[names_index]
        file.seek(offset)
        names = file.read(length)
        for name, offset, length in sections:
            if names[name : names.find(b"\0", name)] == SECTION:
                file.seek(offset)
                words = [word.decode() for word in file.read(length).split(b"\0") if word]
                return dict(zip(words[::2], words[1::2]))
    return {}
