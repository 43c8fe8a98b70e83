"""Nsight Compute's command line: finds it, asks which metrics the GPU has, builds its command, reads what it wrote."""

import csv
import io
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelgen.toolchain.kernel_names import name_in_source

QUERY_LIMIT_S = 120
# Launches that one call may make before the rest is left out.
MOST_LAUNCHES = 30

_FOLDERS = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute/*", "/usr/local/NVIDIA-Nsight-Compute*")
_KNOWN = {
    "ERR_NVGPUCTRPERM": "the driver lets only administrators read the GPU's counters; an administrator allows it with "
    "the module option NVreg_RestrictProfilingToAdminUsers=0, and a container needs --cap-add=SYS_ADMIN",
    "LibraryNotLoaded": "the driver here offers no access to the GPU's counters, as in some virtual machines",
    "driver resource was unavailable": "another profiler, such as DCGM, holds the GPU's counters; stop it first",
}


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: its name, and each metric in its base unit (seconds are nanoseconds there)."""

    name: str
    metrics: dict[str, float]


def find() -> Path | None:
    """`ncu`: the one on PATH, in $CUDA_HOME, or the newest where its installers put it."""
    if path := shutil.which("ncu"):
        return Path(path)
    home = os.environ.get("CUDA_HOME")
    for folder in [*([f"{home}/bin"] if home else []), *_FOLDERS]:
        parent, pattern = Path(folder).parent, Path(folder).name
        for candidate in sorted(parent.glob(pattern), reverse=True) if parent.is_dir() else []:
            if os.access(candidate / "ncu", os.X_OK):
                return candidate / "ncu"
    return None


def available(ncu: Path) -> set[str]:
    """The base names of the metrics of the GPUs that are present; empty if it does not say."""
    command = [str(ncu), "--query-metrics"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_LIMIT_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return names(listed)


def names(listed: str) -> set[str]:
    """The metrics in what `ncu --query-metrics` prints: the first words of its rows, which hold two underscores."""
    return set(re.findall(r"^(\w+__\w+)\s", listed, re.M))


def command(ncu: Path, report: Path, log: Path, metrics: Iterable[str]) -> list[str]:
    """What goes before the command line to be profiled: it profiles between cudaProfilerStart and -Stop alone.

    Clocks are left as they are: locking them needs rights, and figures at unusual clocks mislead. Before each pass
    caches are cold, as they are when an op is measured.
    """
    return [
        *(str(ncu), "--force-overwrite", "--export", str(report), "--log-file", str(log)),
        *("--profile-from-start", "off", "--target-processes", "all", "--launch-count", str(MOST_LAUNCHES)),
        *("--clock-control", "none", "--cache-control", "all", "--metrics", ",".join(metrics)),
    ]


def export(ncu: Path, report: Path) -> str:
    """A report as CSV, every metric in its base unit; empty if there is none."""
    words = [str(ncu), "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=QUERY_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def read(text: str) -> list[Launch]:
    """The launches in a CSV of the raw page, in their order: a row of names, a row of units, and a row for each."""
    lines = [line for line in text.splitlines() if not line.startswith("==")]
    rows: list[Sequence[str]] = list(csv.reader(io.StringIO("\n".join(lines))))
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        return []
    header = rows[0]
    return [_launch(dict(zip(header, row, strict=False))) for row in rows[2:] if len(row) == len(header)]


def _launch(row: dict[str, str]) -> Launch:
    metrics = {}
    for name, text in row.items():
        if "__" in name:
            try:
                metrics[name] = float(text.replace(",", ""))
            except ValueError:
                continue  # Not collected, or no number.
    return Launch(short(row["Kernel Name"]), metrics)


def short(name: str) -> str:
    """A kernel's name without its return type, namespaces and parameters; template arguments stay."""
    head, bracket, rest = name_in_source(name).partition("<")
    return head.rpartition("::")[2].strip() + bracket + rest


def problem(log: str) -> str | None:
    """ncu's complaint, as a sentence without its full stop."""
    errors = re.findall(r"^==ERROR== (.+)$", log, re.M)
    for sign, meaning in _KNOWN.items():
        if any(sign in error for error in errors):
            return meaning
    if errors:
        return f"ncu said: {errors[0].strip().rstrip('.')}"
    return "ncu saw no kernel" if "No kernels were profiled" in log else None
