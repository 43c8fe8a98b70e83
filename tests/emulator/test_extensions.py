"""Built-in atomics, atomics on 16 bytes, kernels that allocate or start early, CUB's device-wide algorithms."""

import pytest
import torch

from kernelgen.emulator.library import EmulatorError

from . import standalone

SEEDS = range(6)


@pytest.fixture(scope="module")
def kernels():
    return standalone.build("extensions")


def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


@pytest.mark.parametrize("seed", SEEDS)
def test_builtin_atomics(kernels, seed):
    cells, total, flag, message, received = zeros(4), zeros(1, dtype=torch.float), zeros(1), zeros(1), zeros(1)
    kernels("run_builtins", cells, total, flag, message, received, True, True, seed=seed)
    assert cells.tolist() == [64, 63, 128, 5]
    assert total == 32
    assert received == 9


@pytest.mark.parametrize(("releases", "acquires"), [(False, True), (True, False)])
def test_a_message_by_a_relaxed_builtin_is_a_race(kernels, releases, acquires):
    cells, total = zeros(4), zeros(1, dtype=torch.float)
    with pytest.raises(EmulatorError, match="race"):
        kernels("run_builtins", cells, total, zeros(1), zeros(1), zeros(1), releases, acquires)


@pytest.mark.parametrize("seed", SEEDS)
def test_atomics_on_16_bytes(kernels, seed):
    place, taken, added = zeros(2, dtype=torch.int64), zeros(64, 2, dtype=torch.int64), zeros(2, dtype=torch.int64)
    kernels("run_exchange", place, taken, seed=seed)
    pairs = torch.cat([taken, place[None]]).sort(dim=0).values
    assert torch.equal(pairs, torch.arange(65)[:, None] * torch.tensor([1, 2]))
    kernels("run_add", added, seed=seed)
    assert added.tolist() == [64, 128]
    kernels("run_copy", added, place, seed=seed)
    assert place.tolist() == [64, 128]


def test_atomics_on_16_bytes_need_a_gpu_that_has_them(kernels):
    with pytest.raises(EmulatorError, match="needs sm_90; the emulated GPU is sm_80"):
        kernels("run_add", zeros(2, dtype=torch.int64), capability=80)


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_that_a_kernel_allocates_is_new(kernels, seed):
    out = zeros(64)
    kernels("run_heap", out, 0, seed=seed)
    assert torch.equal(out, 3 * (torch.arange(64, dtype=torch.int32) + 3))
    with pytest.raises(EmulatorError, match="uninitialised"):
        kernels("run_heap", out, 1, seed=seed)


def test_kernels_that_start_early(kernels):
    out = zeros(64)
    kernels("run_early", out)
    assert torch.equal(out, torch.arange(64, dtype=torch.int32))
    with pytest.raises(EmulatorError, match="cudaGridDependencySynchronize needs sm_90"):
        kernels("run_early", out, capability=80)


def test_a_device_wide_algorithm_of_cub():
    numbers, total = torch.randn(3000), torch.zeros(1)
    standalone.build("device_wide")("sum_array", numbers, total, 3000)
    torch.testing.assert_close(total[0], numbers.sum(), atol=1e-3, rtol=0)
