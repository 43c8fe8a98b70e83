"""Libraries that have the names of PyTorch's C functions and nothing else.

An op's glue calls those functions. Looking them up in libtorch_cpu.so, among 200,000 symbols, takes the linker half of
its time. What is linked with these loads PyTorch's own, whose names are the same.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any

from kernelgen.emulator.cache import kept, states
from kernelgen.emulator.compiler import run

FUNCTION = re.compile(r" [TW] ((?:aoti_torch|torch)_\w+)$", re.MULTILINE)


def names_folder(command: str, torch: Path) -> Path:
    """Where they are, from the cache or new; the folder is empty where nothing reads PyTorch's symbols.

    Args:
        command: g++.
        torch: the folder of PyTorch's libraries.

    Raises:
        EmulatorError: they cannot be made; the message holds the output of the tool.
    """
    library = torch / "libtorch_cpu.so"

    def make(folder: Path) -> dict[str, Any]:
        if shutil.which("nm") and library.exists():
            functions = FUNCTION.findall(run(["nm", "-D", "--defined-only", str(library)]))
            source = folder / "names.s"
            source.write_text("".join(f".globl {name}\n{name}:\n" for name in functions))
            for name, content in ((library.name, str(source)), ("libtorch.so", os.devnull)):
                flags = ["-shared", "-nostdlib", f"-Wl,-soname,{name}", "-x", "assembler"]
                run([command, *flags, content, "-o", str(folder / name)])
        return {"inputs": states([str(library)] if library.exists() else [])}

    return kept("names", [command, str(library)], make)[0]
