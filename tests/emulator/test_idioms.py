"""Kernels that are written in ways which the recipes do not use."""

import pytest
import torch

from kernelgen.emulator.compiler import EmulatorError
from tests.conftest import with_sample

from . import standalone
from .conftest import SEEDS


@pytest.mark.parametrize("seed", with_sample(SEEDS, []))
def test_ptx_as_a_compiler_writes_it(seed):
    kernels = standalone.build("generated_ptx")
    x, y, total, softmax = torch.randn(1008), torch.randn(1008), torch.empty(1008), torch.empty(14, 72).half()
    kernels("run", x, y, total, softmax, 1008, 14, 72, seed=seed)
    assert torch.equal(total, x + y)
    torch.testing.assert_close(softmax.float(), x.view(14, 72).softmax(1), atol=2e-3, rtol=2e-3)


@pytest.mark.corpus
def test_a_texture_is_refused_in_a_sentence(tmp_path):
    source = tmp_path / "texture.cu"
    source.write_text("__global__ void read(cudaTextureObject_t t, float* x) {\n  *x = tex1Dfetch<float>(t, 0);\n}\n")
    with pytest.raises(EmulatorError, match=r"texture\.cu:2:.*the emulated GPU has no textures and surfaces"):
        standalone.build(source)
