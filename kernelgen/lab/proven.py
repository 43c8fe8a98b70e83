"""How far each op of a project was proven: on which devices `kernelgen fuzz` passed it, when, and with which sources.

build/proven.json maps op and device to {"at": time, "cases": number, "seed": number, "sources": digest}. Only whole
runs count: every dtype, all cases that are run by default, and no failure.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kernelgen.files import write_atomically

SOURCES = (".cu", ".cuh", ".cpp", ".h", ".py", ".json")


def record(root: Path, package: str, op: str, device: str, cases: int, seed: int) -> None:
    """Notes that an op passed so many cases on a device just now."""
    facts = {"at": datetime.now(timezone.utc).isoformat(timespec="seconds"), "cases": cases, "seed": seed}
    path = _path(root)
    path.parent.mkdir(exist_ok=True)
    with _locked(path.parent):
        proofs = _read(root)
        proofs.setdefault(op, {})[device] = {**facts, "sources": _digest(root, package, op)}
        write_atomically(path, json.dumps(proofs, indent=1, sort_keys=True) + "\n")


def of_op(root: Path, package: str, op: str) -> dict[str, dict[str, Any]]:
    """By device: when it was proven (`at`), with how many `cases`, and whether the sources have `changed` since."""
    proofs = _read(root).get(op, {})
    digest = _digest(root, package, op) if proofs else ""
    return {
        device: {"at": proof["at"], "cases": proof["cases"], "changed": proof["sources"] != digest}
        for device, proof in sorted(proofs.items())
    }


def in_words(proofs: Mapping[str, Mapping[str, Any]]) -> str:
    parts = [
        f"{device} {proof['at'][:10]}{' (sources changed since)' if proof['changed'] else ''}"
        for device, proof in proofs.items()
    ]
    return ", ".join(parts) or "not proven"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One run at a time: others that end now would drop what this one adds."""
    import fcntl  # Windows has none; `kernelgen list` runs there.

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _path(root: Path) -> Path:
    return root / "build" / "proven.json"


def _read(root: Path) -> dict[str, dict[str, Any]]:
    try:
        proofs = json.loads(_path(root).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return proofs if _is_whole(proofs) else {}


def _is_whole(proofs: Any) -> bool:
    """Whether it is what `record` writes."""
    if not isinstance(proofs, dict) or not all(isinstance(devices, dict) for devices in proofs.values()):
        return False
    facts = [proof for devices in proofs.values() for proof in devices.values()]
    return all(isinstance(proof, dict) and proof.keys() >= {"at", "cases", "sources"} for proof in facts)


def _digest(root: Path, package: str, op: str) -> str:
    """Of the op's sources, and of the headers that it may include; not of its tests."""
    home = root / "src" / package
    files = [*(home / "ops" / op).rglob("*"), *(home / "include").rglob("*")]
    digest = hashlib.sha256()
    for path in sorted(files):
        if path.suffix in SOURCES and not path.name.startswith("test_") and path.is_file():
            digest.update(f"{path.relative_to(home)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:20]
