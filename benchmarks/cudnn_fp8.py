"""cuDNN's attention in 8 bits, by the package `nvidia-cudnn-frontend`: a peer that PyTorch does not call."""

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

LARGEST = torch.finfo(torch.float8_e4m3fn).max
# Softmax weights are at most 1. Their codes are of weights times this, so that small weights are no denormals.
WEIGHT_SCALE = 256.0


def is_installed() -> bool:
    return find_spec("cudnn") is not None


class Graph:
    """A graph of cuDNN's frontend, and the memory of its operands and results.

    Args:
        device: where scales and results of a number are.
    """

    def __init__(self, device: torch.device) -> None:
        import cudnn

        self._cudnn, self._device = cudnn, device
        self._handle = cudnn.create_handle()
        cudnn.set_stream(handle=self._handle, stream=torch.cuda.current_stream().cuda_stream)
        self.graph = cudnn.pygraph(
            io_data_type=cudnn.data_type.FP8_E4M3,
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=self._handle,
        )
        self._buffers: dict[object, Tensor] = {}

    def codes(self, name: str, tensor: Tensor) -> object:
        """An operand in e4m3."""
        return self._operand(name, tensor, self._cudnn.data_type.FP8_E4M3)

    def scale(self, name: str, value: float) -> object:
        tensor = torch.full((1, 1, 1, 1), value, dtype=torch.float32, device=self._device)
        return self._operand(name, tensor, self._cudnn.data_type.FLOAT)

    def write_codes(self, place: object, tensor: Tensor) -> None:
        """Has a result in e4m3 written to a tensor."""
        self._write(place, tensor, self._cudnn.data_type.FP8_E4M3)

    def write_number(self, place: object) -> None:
        """Has a result that is one number written to memory that nobody reads."""
        self._write(place, torch.empty(1, 1, 1, 1, device=self._device), self._cudnn.data_type.FLOAT)

    def compiled(self) -> Callable[[], None]:
        """The call that computes the results."""
        self.graph.build([self._cudnn.heur_mode.A, self._cudnn.heur_mode.FALLBACK])
        size = max(self.graph.get_workspace_size(), 1)
        workspace = torch.empty(size, dtype=torch.uint8, device=self._device)
        addresses = {place: tensor.data_ptr() for place, tensor in self._buffers.items()}
        return lambda: self.graph.execute(addresses, workspace.data_ptr(), handle=self._handle)

    def _operand(self, name: str, tensor: Tensor, data_type: object) -> object:
        place = self.graph.tensor(name=name, dim=list(tensor.shape), stride=list(tensor.stride()), data_type=data_type)
        self._buffers[place] = tensor
        return place

    def _write(self, place: object, tensor: Tensor, data_type: object) -> None:
        place.set_output(True).set_dim(list(tensor.shape)).set_stride(list(tensor.stride())).set_data_type(data_type)
        self._buffers[place] = tensor


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Callable[[], Tensor], float]:
    """The call that computes the attention of q, k, v (batch, tokens, heads, dimension), quantised to e4m3 here with a
    scale for each tensor. It returns codes in e4m3, the only result that cuDNN writes on Hopper; the second result is
    their scale.

    Raises:
        cudnn.cudnnGraphNotSupportedError: this cuDNN has no such kernel for this GPU and shape.
    """
    graph = Graph(q.device)
    operands: dict[str, object] = {}
    scale = 1.0
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        scale = tensor.abs().max().float().item() / LARGEST
        codes = (tensor.float() / scale).to(torch.float8_e4m3fn)
        # The frontend takes heads before tokens, in any order of memory.
        operands[name] = graph.codes(name, codes.transpose(1, 2))
        operands[f"descale_{name}"] = graph.scale(f"descale_{name}", scale)
    # A row of the result is a mean of values, so their scale holds it.
    result = torch.empty_like(q, dtype=torch.float8_e4m3fn)
    output, _, largest_weight, largest_output = graph.graph.sdpa_fp8(
        **operands,
        descale_s=graph.scale("descale_s", 1 / WEIGHT_SCALE),
        scale_s=graph.scale("scale_s", WEIGHT_SCALE),
        scale_o=graph.scale("scale_o", 1 / scale),
        generate_stats=False,
        attn_scale=q.shape[-1] ** -0.5,
        use_causal_mask=causal,
        name="attention",
    )
    graph.write_codes(output, result.transpose(1, 2))
    graph.write_number(largest_weight)
    graph.write_number(largest_output)
    compute = graph.compiled()

    def call() -> Tensor:
        compute()
        return result

    return call, scale
