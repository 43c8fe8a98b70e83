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


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Callable[[], Tensor], float]:
    """The call that computes the attention of q, k, v (batch, tokens, heads, dimension), quantised to e4m3 here with a
    scale for each tensor. It returns codes in e4m3, the only result that cuDNN writes on Hopper; the second result is
    their scale.

    Raises:
        cudnn.cudnnGraphNotSupportedError: this cuDNN has no such kernel for this GPU and shape.
    """
    import cudnn

    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    graph = cudnn.pygraph(
        io_data_type=cudnn.data_type.FP8_E4M3,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=handle,
    )
    buffers: dict[object, Tensor] = {}

    def operand(name: str, tensor: Tensor, data_type: object) -> object:
        place = graph.tensor(name=name, dim=list(tensor.shape), stride=list(tensor.stride()), data_type=data_type)
        buffers[place] = tensor
        return place

    def factor(name: str, value: float) -> object:
        tensor = torch.full((1, 1, 1, 1), value, dtype=torch.float32, device=q.device)
        return operand(name, tensor, cudnn.data_type.FLOAT)

    operands: dict[str, object] = {}
    scale = 1.0
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        scale = tensor.abs().max().float().item() / LARGEST
        codes = (tensor.float() / scale).to(torch.float8_e4m3fn)
        # The frontend takes heads before tokens, in any order of memory.
        operands[name] = operand(name, codes.transpose(1, 2), cudnn.data_type.FP8_E4M3)
        operands[f"descale_{name}"] = factor(f"descale_{name}", scale)
    # A row of the result is a mean of values, so their scale holds it.
    result = torch.empty_like(q, dtype=torch.float8_e4m3fn)
    output, _, largest_weight, largest_output = graph.sdpa_fp8(
        **operands,
        descale_s=factor("descale_s", 1 / WEIGHT_SCALE),
        scale_s=factor("scale_s", WEIGHT_SCALE),
        scale_o=factor("scale_o", 1 / scale),
        generate_stats=False,
        attn_scale=q.shape[-1] ** -0.5,
        use_causal_mask=causal,
        name="attention",
    )
    by_head = result.transpose(1, 2)
    output.set_output(True).set_dim(list(by_head.shape)).set_stride(list(by_head.stride()))
    output.set_data_type(cudnn.data_type.FP8_E4M3)
    buffers[output] = by_head
    for largest in (largest_weight, largest_output):
        largest.set_output(True).set_dim([1, 1, 1, 1]).set_stride([1, 1, 1, 1]).set_data_type(cudnn.data_type.FLOAT)
        buffers[largest] = torch.empty(1, 1, 1, 1, dtype=torch.float32, device=q.device)
    graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    workspace = torch.empty(max(graph.get_workspace_size(), 1), dtype=torch.uint8, device=q.device)

    addresses = {place: tensor.data_ptr() for place, tensor in buffers.items()}

    def call() -> Tensor:
        assert buffers  # Their memory lives as long as the call.
        graph.execute(addresses, workspace.data_ptr(), handle=handle)
        return result

    return call, scale
