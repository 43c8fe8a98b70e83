"""The state of a machine while it is measured: the GPU's through NVML, the CPU's through /proc."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

# NVML's clock event reasons that mean: the clocks are lower than the load would have them.
REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal, by software",
    0x40: "thermal, by hardware",
    0x80: "power brake",
}


def reasons(mask: int) -> list[str]:
    return [name for bit, name in REASONS.items() if mask & bit]


def driver() -> dict[str, Any]:
    """The GPU driver's version and the GPU's UUID; empty without NVML."""
    try:
        nvml, handle = _handle()
        return {"driver": nvml.nvmlSystemGetDriverVersion(), "uuid": nvml.nvmlDeviceGetUUID(handle)}
    except Exception:  # Whatever NVML lacks on some system, the measurement goes on.
        return {}


def _handle() -> tuple[Any, Any]:
    """NVML and the handle of torch's current GPU, which NVML may number otherwise."""
    import pynvml
    import torch

    pynvml.nvmlInit()
    uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    try:
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except pynvml.NVMLError:  # It is a part of a GPU (MIG).
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def gpu_processes() -> list[int] | None:
    """The processes that compute or draw on torch's current GPU, as NVML numbers them; None where it does not say."""
    try:
        nvml, gpu = _handle()
        pids = {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)}
    except Exception:  # Whatever NVML lacks on some system.
        return None
    with suppress(Exception):  # A part of a GPU draws nothing, and NVML may refuse to say so.
        pids |= {process.pid for process in nvml.nvmlDeviceGetGraphicsRunningProcesses(gpu)}
    return sorted(pids)


class GpuWatch:
    """Reads a GPU's state before and after every round; `summary()` is JSON.

    Args:
        own: the processes that belong to the measurement, beside this one.
    """

    def __init__(self, own: Sequence[int] = ()) -> None:
        self.problem, self.readings = None, []
        self._own = 1 + len(own)
        try:
            self._nvml, self._gpu = _handle()
        except ImportError:
            self.problem = "NVML was not read: install it with `pip install nvidia-ml-py`"
        except Exception as error:  # NVMLError and its subclasses, as in containers without the driver's utilities.
            self.problem = f"NVML was not read: {error}"

    def read(self) -> bool:
        """Whether the GPU is throttled right now."""
        if self.problem:
            return False
        nvml, gpu = self._nvml, self._gpu
        try:
            reading = {
                "sm_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
                "memory_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
                "celsius": nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
                "watts": nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
                "reasons": nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
            }
        except Exception as error:
            self.problem = f"NVML stopped answering: {error}"
            return False
        self.readings.append(reading)
        return bool(reasons(reading["reasons"]))

    def summary(self) -> dict[str, Any]:
        if not self.readings:
            return {"problem": self.problem}
        summary: dict[str, Any] = {"problem": self.problem, "readings": len(self.readings)}
        for name in ("sm_mhz", "memory_mhz", "celsius", "watts"):
            values = [reading[name] for reading in self.readings]
            summary[name] = {"min": min(values), "max": max(values)}
        masks = {reading["reasons"] for reading in self.readings}
        summary["throttled_by"] = sorted({name for mask in masks for name in reasons(mask)})
        summary["other_processes"] = self._others()
        return summary

    def _others(self) -> int | None:
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._gpu)
        except Exception:
            return None
        return max(0, len(running) - self._own)  # By number: in a container NVML may name processes otherwise.


class CpuWatch:
    """Reads how busy the CPU was from the start to `summary()`, which is JSON; `own` as for GpuWatch."""

    def __init__(self, own: Sequence[int] = ()) -> None:
        self._own = own
        self._start = self._now()

    def read(self) -> bool:
        return False

    def summary(self) -> dict[str, Any]:
        (wall, busy, own), cores = self._start, os.cpu_count() or 1
        now = self._now()
        others = None
        if busy is not None and now[1] is not None and now[0] > wall:
            others = max(0.0, (now[1] - busy - (now[2] - own)) / (now[0] - wall) / cores)
        load = os.getloadavg() if hasattr(os, "getloadavg") else None
        return {"load": load and list(load), "mhz": _megahertz(), "others_share": others, "cores": cores}

    def _now(self) -> tuple[float, float | None, float]:
        """Seconds: of the wall clock, busy over all cores since boot, and of this process and its own."""
        try:
            ticks = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]))
            # user, nice, system, idle, iowait, irq, softirq, steal
            busy = (sum(ticks[:3]) + sum(ticks[5:8])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            busy = None
        return time.monotonic(), busy, time.process_time() + cpu_seconds(self._own)


def cpu_seconds(pids: Sequence[int]) -> float:
    """The CPU time that processes took so far."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _megahertz() -> float | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    clocks = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return sum(clocks) / len(clocks) if clocks else None


def watch(device: str, own: Sequence[int] = ()) -> GpuWatch | CpuWatch:
    """The watch for a device, such as "cuda:0"; `own` are the processes of the measurement beside this one."""
    return GpuWatch(own) if device.startswith("cuda") else CpuWatch(own)
