"""Reads from a library which GPUs its kernels were compiled for: the headers of the fat binaries that nvcc puts in."""

import re
import struct

_CONTAINER = struct.pack("<IH", 0xBA55ED50, 1)
_PTX, _MACHINE_CODE = 1, 2
# In an entry's flags: code with the features of one GPU alone (9.0a), or of one family (10.0f).
_ONE_GPU, _FAMILY = 1 << 20, 1 << 21


def architectures(data: bytes) -> list[str]:
    """What a library holds code for, such as ["8.0", "9.0a", "9.0+PTX"]; machine code first, both by number."""
    entries = set()
    for match in re.finditer(re.escape(_CONTAINER), data):
        header_size, size = struct.unpack_from("<HQ", data, match.start() + 6)
        position = match.start() + header_size
        end = position + size
        while position < end:
            kind, header_size, entry_size = struct.unpack_from("<H2xIQ", data, position)
            number, flags = struct.unpack_from("<I8xQ", data, position + 28)
            if kind in (_PTX, _MACHINE_CODE):
                entries.add((kind == _PTX, number, "a" if flags & _ONE_GPU else "f" if flags & _FAMILY else ""))
            position += header_size + entry_size
    return [f"{number // 10}.{number % 10}{suffix}{'+PTX' * is_ptx}" for is_ptx, number, suffix in sorted(entries)]
