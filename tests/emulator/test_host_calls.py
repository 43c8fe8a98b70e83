"""What host code gets wrong with memory and launches is named, and does no harm to the process."""

import pytest
import torch

from kernelgen.emulator.compiler import EmulatorError

from . import standalone

FAULTS = {
    1: r"add cannot be launched: .* blocks of \(1, 1, 65\) threads",
    2: "a thread has 256 KB of stack on the emulated GPU, and this one needs more",
    3: "cudaMemset of 5128 bytes goes 8 bytes past the end of 5120 bytes of memory",
    4: "cudaMemcpy of 404 bytes goes 4 bytes past the end of 400 bytes of memory",
    5: "an address that no allocation begins at, or that was freed already",
    6: "an address that no allocation begins at, or that was freed already",
}


def test_memory_that_the_host_fills_itself_is_a_kernels_too():
    out = torch.empty(100)
    standalone.build("host_calls")("run_host_calls", out, 0)
    assert torch.equal(out, torch.arange(100.0) + 1)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_host_is_named(fault):
    with pytest.raises(EmulatorError, match=FAULTS[fault]):
        standalone.build("host_calls")("run_host_calls", torch.empty(200), fault)
