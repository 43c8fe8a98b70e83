"""What of an op is still to be written. A test that meets it is expected to fail; any other failure is one.

An op that was made from a schema begins with a reference that raises 'reference not written yet', and with C++ that
says NOT_WRITTEN where a kernel is to be registered. Of a function that was never called with success, the tests' inputs
are to be written too. All that is looked for in the op's files, so nothing has to be taken out of a list when the op is
finished: from then on its tests count.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from .op import OpUnderTest

REFERENCE = "reference not written yet"
KERNEL = "kernel not written yet"
# What `inputs` of a test raises where no shapes are known that the reference takes.
INPUTS = "inputs not written yet"
# Above a loop or a kernel that is stamped without its mathematics.
LOOP = "// To be written"


def unwritten_parts(folder: Path) -> dict[str, str]:
    """What is to be written in an op's folder: the beginning of what a call raises, and a reason for people."""
    parts = {}
    place = f"{folder.parent.name}/{folder.name}"
    if REFERENCE in (folder / "reference.py").read_text(encoding="utf-8"):
        parts[REFERENCE] = f"{folder.name}: {REFERENCE}; write {place}/reference.py"
    for test in sorted(folder.glob("test_*.py")):
        if INPUTS in test.read_text(encoding="utf-8"):
            parts[INPUTS] = f"{folder.name}: {INPUTS}; write {place}/{test.name}"
    for source in sorted(folder.rglob("*.cpp")):
        for backend, operator in _not_registered(source):
            reason = f"{operator}: {backend} {KERNEL}; write {place}/{source.name}"
            parts[f"{operator} on {backend}: {KERNEL}"] = reason
    return parts


def reason_to_fail(folder: Path, error: BaseException) -> str | None:
    """Why a test of the op in this folder was bound to raise this error; None if it was not."""
    messages = [str(cause) for cause in causes(error)]
    parts = unwritten_parts(folder).items()
    return next((why for start, why in parts for message in messages if message.startswith(start)), None)


def says_unwritten(error: BaseException) -> bool:
    """Whether an error comes of a part that is not written, rather than of an argument that is refused."""
    return REFERENCE in str(error) or KERNEL in str(error)


class UnwrittenTests(OpUnderTest):
    """The files say of themselves what is still to be written, so what they say has to be so."""

    def test_a_written_kernel_is_registered(self) -> None:
        for source in sorted(self.folder.rglob("*.cpp")):
            if _not_registered(source):
                # The stub throws this sentence, or its loop says so; that of cuda.cpp is in the device code.
                device = self.folder.rglob("*.cu") if source.name == "cuda.cpp" else ()
                text = "".join(file.read_text(encoding="utf-8") for file in (source, *device))
                assert f'{KERNEL}"' in text or LOOP in text, (
                    f"{source} holds a kernel that is not registered: change NOT_WRITTEN at its end to REGISTER_KERNEL"
                )


def _not_registered(source: Path) -> list[tuple[str, str]]:
    """Backend and operator of each NOT_WRITTEN in a C++ file."""
    return re.findall(r"^NOT_WRITTEN\((\w+), *(\w+),", source.read_text(encoding="utf-8"), re.MULTILINE)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
