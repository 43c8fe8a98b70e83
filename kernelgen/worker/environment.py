"""The machine that a measurement was taken on: its hardware, its software, and the project's revision."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from kernelgen.cores import usable_cores
from kernelgen.worker import machine_state

# Prefixes of environment variables that change what is measured: some of them make PyTorch's own code slower.
_PREFIXES = ("ATEN_", "CUBLAS", "CUDA_", "CUDNN_", "DNNL_", "GLIBC_TUNABLES", "GOMP_", "KMP_", "LD_PRELOAD", "MALLOC_")
_PREFIXES += ("MKL_", "NVIDIA_TF32_OVERRIDE", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTORCH_", "TORCH", "TRITON_")
CPU_INFO = Path("/proc/cpuinfo")


def describe(device: str, project: Path, flags: dict[str, Any]) -> dict[str, Any]:
    """The machine, its software, and the project's revision."""
    cuda = device == "cuda"
    return {
        "device": device,
        "gpu": _gpu() if cuda else None,
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "git": _git(project),
        "flags": {**flags, "argv0": Path(sys.executable).name},
        "variables": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_PREFIXES)},
    }


def _gpu() -> dict[str, Any]:
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    facts = {"name": gpu.name, "capability": f"{gpu.major}.{gpu.minor}", "memory_bytes": gpu.total_memory}
    return {**facts, "multiprocessors": gpu.multi_processor_count, **machine_state.driver()}


def cpu_name() -> str:
    """The CPU's name as the project's build_tools have it, which look tuned values up by it."""
    lines = CPU_INFO.read_text(errors="replace").splitlines() if CPU_INFO.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _git(project: Path) -> dict[str, Any] | None:
    def ask(*arguments: str) -> str:
        command = ["git", "-C", str(project), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return {"revision": ask("rev-parse", "HEAD"), "changed": bool(ask("status", "--porcelain", "--", "src"))}
    except (OSError, subprocess.CalledProcessError):
        return None
