"""The CUDA kernels run on the current stream, on the inputs' device, and in CUDA graphs."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .backends import cuda_devices
from .evaluation import evaluate
from .inputs import random_like, tensors
from .op import OpUnderTest


class DeviceTests(OpUnderTest):
    """On a GPU; skipped where there is none."""

    def test_another_stream(self, gpu: str) -> None:
        """On the stream that is current: elsewhere the kernels would run before their inputs are there."""
        args = self.typical(gpu)
        expected = evaluate(self.op, args)
        late = pytree.tree_map_only(Tensor, lambda t: torch.zeros_like(t).requires_grad_(t.requires_grad), args)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream(gpu)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)  # About a tenth of a second.
            with torch.no_grad():
                for target, source in zip(tensors(late), tensors(args), strict=True):
                    target.copy_(source)
            outputs, grads = evaluate(self.op, late)
        stream.synchronize()
        self.assert_same(outputs, grads, expected)

    def test_a_new_thread(self, gpu: str) -> None:
        """A thread that has no CUDA context yet: the memory is PyTorch's, and the op the first to need one."""
        args = self.typical(gpu)
        expected = evaluate(self.op, args)
        with ThreadPoolExecutor(1) as pool:
            outputs, grads = pool.submit(evaluate, self.op, args).result()
        self.assert_same(outputs, grads, expected)

    def test_second_device(self, gpu: str) -> None:
        """On the inputs' device, whichever is current; and that one stays current."""
        if len(cuda_devices()) < 2:
            pytest.skip("there is one GPU")
        args = self.typical(gpu)
        if not tensors(args):
            pytest.skip("it takes no tensor")
        moved = pytree.tree_map_only(Tensor, lambda t: t.detach().to("cuda:1").requires_grad_(t.requires_grad), args)
        with torch.cuda.device(0):
            expected, got = evaluate(self.op, args), evaluate(self.op, moved)
            assert torch.cuda.current_device() == 0
        for ours, theirs in zip([*got[0], *got[1]], [*expected[0], *expected[1]], strict=True):
            assert ours.device == torch.device("cuda:1")
            torch.testing.assert_close(ours.cpu(), theirs.cpu())

    def test_cuda_graph(self, gpu: str) -> None:
        """Captured once, with the gradient if that can be captured; replayed on other inputs."""
        self.need("CUDA graphs")
        gradient = self.gradient and "CUDA graphs of the gradient" not in self.lacks
        args = self.typical(gpu, requires_grad=gradient)
        cotangents = [random_like(out) for out in tensors(self.op(*args))]
        side = torch.cuda.Stream(gpu)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            evaluate(self.op, args, cotangents)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs, grads = evaluate(self.op, args, cotangents)
        for _ in range(2):
            other = self.typical(gpu, requires_grad=gradient)
            with torch.no_grad():
                for target, source in zip(tensors(args), tensors(other), strict=True):
                    target.copy_(source)
            graph.replay()
            self.assert_same(outputs, grads, evaluate(self.op, other, cotangents))
