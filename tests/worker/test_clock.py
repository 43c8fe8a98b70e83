"""The clock of a GPU, on one that is played by numbers."""

import time

import pytest
import torch

from kernelgen.worker import clock
from kernelgen.worker.clock import CudaClock

FLUSH_S = 50e-6


class Machine:
    """A CPU and a GPU: what time it is, and when the GPU is through with all that it was given."""

    def __init__(self) -> None:
        self.now = self.busy_until = 0.0
        self.spins: list[float] = []

    def enqueue(self, seconds: float) -> None:
        self.busy_until = max(self.now, self.busy_until) + seconds

    def spin(self, cycles: int) -> None:
        self.spins.append(cycles / CudaClock.CYCLES_A_SECOND)
        self.enqueue(self.spins[-1])

    def synchronize(self) -> None:
        self.now = max(self.now, self.busy_until)

    def event(self) -> "Event":
        return Event(self)


class Event:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def record(self) -> None:
        self.time_s = max(self.machine.now, self.machine.busy_until)

    def query(self) -> bool:
        return self.machine.now >= self.time_s

    def synchronize(self) -> None:
        self.machine.now = max(self.machine.now, self.time_s)

    def elapsed_time(self, end: "Event") -> float:
        return 1e3 * (end.time_s - self.time_s)


@pytest.fixture
def machine(monkeypatch) -> Machine:
    machine = Machine()
    flush = type("Flush", (), {"fill_": lambda self, value: machine.enqueue(FLUSH_S)})
    properties = type("Properties", (), {"L2_cache_size": 50 * 2**20})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties())
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: machine.event())
    monkeypatch.setattr(torch.cuda, "_sleep", machine.spin)
    monkeypatch.setattr(torch, "empty", lambda *size, **how: flush())
    monkeypatch.setattr(clock.time, "perf_counter", lambda: machine.now)
    return machine


def call(machine: Machine, launches, kernels: int = 3, kernel_s: float = 1e-4):
    """A call of a few kernels, which the CPU takes the next of these seconds to launch, all together."""
    launches = iter(launches)

    def run() -> str:
        launch_s = next(launches)
        for _ in range(kernels):
            machine.now += launch_s / kernels
            machine.enqueue(kernel_s)
        return "result"

    return run


def samples(run, count: int) -> list[float]:
    timed = CudaClock()
    return [timed.sample([run])[0] for _ in range(count)]


def test_a_launch_that_is_hidden_by_the_spin_is_not_in_the_time(machine):
    assert samples(call(machine, 5 * [1e-4]), 5) == pytest.approx(5 * [3e-4])
    assert machine.spins == pytest.approx(5 * [CudaClock.LEAST_SPIN_S])


def test_a_launch_that_takes_longer_than_the_spin_is_timed_again(machine):
    """As that of a gradient does, by the CPU of a machine whose other cores compile."""
    assert samples(call(machine, 7 * [1e-3]), 6) == pytest.approx(6 * [3e-4])
    assert machine.spins == pytest.approx([CudaClock.LEAST_SPIN_S, *(6 * [2e-3])])


def test_a_launch_that_takes_long_once_makes_one_longer_spin_and_no_more(machine):
    seconds = samples(call(machine, [1e-4, 2e-3, 1e-4, 1e-4, 1e-4]), 4)
    assert seconds == pytest.approx(4 * [3e-4])
    assert machine.spins == pytest.approx([2e-4, 2e-4, 4e-3, 2e-4, 2e-4])


def test_launches_that_are_long_and_short_by_turns_come_to_an_end(machine):
    seconds = samples(call(machine, 20 * [1e-3, 5e-5]), 3)
    assert seconds == pytest.approx(3 * [3e-4])


def test_a_call_that_waits_for_the_gpu_is_timed_with_its_wait(machine):
    """No spin is long enough for it."""
    runs = []

    def run() -> None:
        runs.append(machine.now)
        machine.enqueue(1e-4)
        machine.synchronize()
        machine.now += 1e-3
        machine.enqueue(1e-4)

    assert samples(run, 2) == pytest.approx(2 * [1.2e-3])
    assert len(runs) < 10
    assert machine.spins[-1] == CudaClock.MOST_SPIN_S


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_call_that_takes_the_cpu_long_on_a_real_gpu():
    x = torch.ones(1000, device="cuda")

    def run() -> torch.Tensor:
        x.add(1)
        time.sleep(2e-3)
        return x.add(1)

    assert max(samples(run, 5)) < 1e-3
