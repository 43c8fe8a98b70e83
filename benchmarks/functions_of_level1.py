"""What the 100 tasks of KernelBench's level 1 compute, as functions, and twenty others: benchmarks/intent.py makes ops
of them.

A task's sizes are those of a module's constructor there; here they are defaults, or sizes of weights.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

# ---- Products of matrices


def square_matmul(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def batched_matmul(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b)


def matrix_vector(a: Tensor, b: Tensor) -> Tensor:
    return torch.mv(a, b)


def matrix_scalar(a: Tensor, s: float) -> Tensor:
    return a * s


def matmul_large_k(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b)


def matmul_small_k(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b)


def matmul_irregular(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b)


def matmul_tall_skinny(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b)


def matmul_3d(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


def matmul_4d(a: Tensor, b: Tensor) -> Tensor:
    return torch.einsum("bijl,lk->bijk", a, b)


def diagonal_matmul(a: Tensor, b: Tensor) -> Tensor:
    return torch.diag(a) @ b


def symmetric_matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def upper_triangular_matmul(a: Tensor, b: Tensor) -> Tensor:
    return torch.triu(a @ b)


def lower_triangular_matmul(a: Tensor, b: Tensor) -> Tensor:
    return torch.tril(a @ b)


def matmul_transposed_a(a: Tensor, b: Tensor) -> Tensor:
    return a.T @ b


def matmul_transposed_b(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.T


def matmul_transposed_both(a: Tensor, b: Tensor) -> Tensor:
    return a.T @ b.T


# ---- Activations


def relu(x: Tensor) -> Tensor:
    return torch.relu(x)


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return F.leaky_relu(x, negative_slope=negative_slope)


def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


def tanh(x: Tensor) -> Tensor:
    return torch.tanh(x)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=1)


def log_softmax(x: Tensor, dim: int = 1) -> Tensor:
    return F.log_softmax(x, dim=dim)


def swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


def selu(x: Tensor) -> Tensor:
    return torch.selu(x)


def hard_sigmoid(x: Tensor) -> Tensor:
    return F.hardsigmoid(x)


def softplus(x: Tensor) -> Tensor:
    return F.softplus(x)


def softsign(x: Tensor) -> Tensor:
    return x / (1 + torch.abs(x))


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha=alpha)


def hard_tanh(x: Tensor) -> Tensor:
    return F.hardtanh(x, min_val=-1.0, max_val=1.0)


# ---- Norms


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    return F.batch_norm(x, None, None, weight, bias, training=True, eps=eps)


def instance_norm(x: Tensor, eps: float = 1e-5) -> Tensor:
    return F.instance_norm(x, eps=eps)


def group_norm(x: Tensor, weight: Tensor, bias: Tensor, num_groups: int = 8, eps: float = 1e-5) -> Tensor:
    return F.group_norm(x, num_groups, weight, bias, eps)


def rms_norm(x: Tensor, eps: float = 1e-5) -> Tensor:
    rms = torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + eps)
    return x / rms


def frobenius_norm(x: Tensor) -> Tensor:
    norm = torch.norm(x, p="fro")
    return x / norm


def l1_norm(x: Tensor) -> Tensor:
    return x / torch.mean(torch.abs(x), dim=1, keepdim=True)


def l2_norm(x: Tensor) -> Tensor:
    return x / torch.norm(x, p=2, dim=1, keepdim=True)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, bias, eps)


# ---- Pooling


def max_pool_1d(x: Tensor, size: int = 4, stride: int = 2, padding: int = 2, dilation: int = 1) -> Tensor:
    return F.max_pool1d(x, size, stride, padding, dilation)


def max_pool_2d(x: Tensor, size: int = 2, stride: int = 2, padding: int = 1, dilation: int = 1) -> Tensor:
    return F.max_pool2d(x, size, stride, padding, dilation)


def max_pool_3d(x: Tensor, size: int = 3, stride: int = 2, padding: int = 1, dilation: int = 1) -> Tensor:
    return F.max_pool3d(x, size, stride, padding, dilation)


def average_pool_1d(x: Tensor, size: int = 4, stride: int = 2, padding: int = 1) -> Tensor:
    return F.avg_pool1d(x, size, stride, padding)


def average_pool_2d(x: Tensor, size: int = 3) -> Tensor:
    return F.avg_pool2d(x, size)


def average_pool_3d(x: Tensor, size: int = 3, stride: int = 2, padding: int = 1) -> Tensor:
    return F.avg_pool3d(x, size, stride, padding)


# ---- Reductions


def sum_reduction(x: Tensor, dim: int = 1) -> Tensor:
    return torch.sum(x, dim=dim, keepdim=True)


def mean_reduction(x: Tensor, dim: int = 1) -> Tensor:
    return torch.mean(x, dim=dim)


def max_reduction(x: Tensor, dim: int = 1) -> Tensor:
    return torch.max(x, dim=dim)[0]


def argmax_reduction(x: Tensor, dim: int = 1) -> Tensor:
    return torch.argmax(x, dim=dim)


def argmin_reduction(x: Tensor, dim: int = 1) -> Tensor:
    return torch.argmin(x, dim=dim)


def min_reduction(x: Tensor, dim: int = 1) -> Tensor:
    return torch.min(x, dim=dim)[0]


# ---- Convolutions


def conv2d_square_11(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.conv2d(x, weight, bias, stride=4, padding=2)


def conv3d_square(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv3d(x, weight)


def conv2d_wide_input(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight)


def conv2d_wide_input_and_kernel(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight)


def conv_transposed_2d_square(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose2d(x, weight)


def conv_transposed_3d_wide(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose3d(x, weight)


def conv3d_wide_input(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv3d(x, weight)


def conv3d_flat_kernel(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv3d(x, weight)


def conv_transposed_3d_square(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose3d(x, weight)


def conv2d_wide_kernel(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight)


def conv2d_square(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight)


def conv_transposed_1d(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose1d(x, weight)


def conv_transposed_2d_wide_kernel(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose2d(x, weight)


def conv3d_wide_input_and_kernel(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv3d(x, weight)


def conv1d(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv1d(x, weight)


def conv_transposed_3d_wide_kernel(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose3d(x, weight)


def conv_transposed_2d_wide(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose2d(x, weight)


def conv_transposed_3d_wide_input(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose3d(x, weight)


def conv_transposed_2d_wide_input(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose2d(x, weight)


def conv_transposed_3d_grouped(x: Tensor, weight: Tensor, groups: int = 4) -> Tensor:
    return F.conv_transpose3d(x, weight, stride=(2, 2, 2), padding=(1, 2, 3), output_padding=(1, 1, 1), groups=groups)


def conv_transposed_3d_grouped_square(x: Tensor, weight: Tensor, groups: int = 4) -> Tensor:
    return F.conv_transpose3d(x, weight, stride=2, padding=3, groups=groups)


def conv_transposed_1d_dilated(x: Tensor, weight: Tensor, dilation: int = 3) -> Tensor:
    return F.conv_transpose1d(x, weight, stride=1, padding=0, dilation=dilation)


def conv_transposed_2d_all(x: Tensor, weight: Tensor, groups: int = 4) -> Tensor:
    return F.conv_transpose2d(x, weight, stride=(2, 3), padding=(1, 2), groups=groups, dilation=(2, 1))


def conv1d_dilated(x: Tensor, weight: Tensor, stride: int = 3, dilation: int = 4) -> Tensor:
    return F.conv1d(x, weight, stride=stride, dilation=dilation)


def conv_transposed_3d_dilated(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose3d(x, weight, stride=2, padding=1, dilation=2)


def conv_transposed_2d_padded(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose2d(x, weight, stride=(1, 1), padding=(1, 2))


def conv_transposed_1d_all(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose1d(x, weight, stride=2, padding=1, dilation=2)


def conv2d_dilated(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, stride=1, padding=(2, 4), dilation=(2, 3))


def conv_transposed_2d_dilated(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv_transpose2d(x, weight, stride=5, padding=1, dilation=2)


def depthwise_square(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, groups=x.shape[1])


def depthwise_tall_kernel(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, groups=x.shape[1])


def depthwise_wide_input(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, groups=x.shape[1])


def depthwise_wide_input_and_kernel(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, groups=x.shape[1])


def depthwise_separable(x: Tensor, depthwise: Tensor, pointwise: Tensor) -> Tensor:
    return F.conv2d(F.conv2d(x, depthwise, padding=1, groups=x.shape[1]), pointwise)


def pointwise_conv(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight)


# ---- Others


def new_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


def cumulative_sum(x: Tensor, dim: int = 1) -> Tensor:
    return torch.cumsum(x, dim=dim)


def cumulative_product(x: Tensor, dim: int = 1) -> Tensor:
    return torch.cumprod(x, dim=dim)


def reverse_cumulative_sum(x: Tensor, dim: int = 1) -> Tensor:
    return torch.cumsum(x.flip(dim), dim=dim).flip(dim)


def exclusive_cumulative_sum(x: Tensor, dim: int = 1) -> Tensor:
    exclusive = torch.cat((torch.zeros_like(x.select(dim, 0).unsqueeze(dim)), x), dim=dim)[:-1]
    return torch.cumsum(exclusive, dim=dim)


def masked_cumulative_sum(x: Tensor, mask: Tensor, dim: int = 1) -> Tensor:
    return torch.cumsum(x * mask, dim=dim)


def mse_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    return torch.mean((predictions - targets) ** 2)


def cross_entropy_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(predictions, targets)


def huber_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    return F.smooth_l1_loss(predictions, targets)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def kl_div_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    return F.kl_div(torch.log(predictions), targets, reduction="batchmean")


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0) -> Tensor:
    return F.triplet_margin_loss(anchor, positive, negative, margin=margin)


def hinge_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    return torch.mean(torch.clamp(1 - predictions * targets, min=0))


# ---- Twenty others


def cosine_loss(a: Tensor, b: Tensor) -> Tensor:
    return torch.mean(1 - F.cosine_similarity(a, b, dim=1))


def mish(x: Tensor) -> Tensor:
    return x * torch.tanh(F.softplus(x))


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def dropout_residual(x: Tensor, residual: Tensor, keep: Tensor, p: float = 0.1) -> Tensor:
    return torch.where(keep, x / (1 - p), 0.0) + residual


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias, approximate="tanh")


def residual_rms(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    total = x + residual
    return total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * weight, total


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(torch.where(mask, scores, float("-inf")), dim=-1)


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
    return torch.round(x / scale), scale


def focal_loss(logits: Tensor, targets: Tensor, gamma: float = 2.0) -> Tensor:
    probabilities = torch.sigmoid(logits)
    chosen = probabilities * targets + (1 - probabilities) * (1 - targets)
    loss = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return (loss * (1 - chosen) ** gamma).mean()


def log_cosh_loss(prediction: Tensor, target: Tensor) -> Tensor:
    difference = prediction - target
    return (difference + F.softplus(-2 * difference) - 0.6931471805599453).mean()


def gaussian_nll(mean: Tensor, target: Tensor, variance: Tensor, eps: float = 1e-6) -> Tensor:
    clamped = variance.clamp(min=eps)
    return (0.5 * (torch.log(clamped) + (target - mean) ** 2 / clamped)).mean()


def label_smoothing(logits: Tensor, target: Tensor, smoothing: float = 0.1) -> Tensor:
    log_probabilities = F.log_softmax(logits, dim=-1)
    nll = -log_probabilities.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return ((1 - smoothing) * nll - smoothing * log_probabilities.mean(-1)).mean()


def row_entropy(logits: Tensor) -> Tensor:
    log_probabilities = F.log_softmax(logits, dim=-1)
    return -(log_probabilities.exp() * log_probabilities).sum(-1)


def channel_scale(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return x * scale[:, None, None] + shift[:, None, None]


def standardise_columns(x: Tensor, eps: float = 1e-6) -> Tensor:
    return (x - x.mean(0)) / torch.sqrt(x.var(0, unbiased=False) + eps)


def global_average(x: Tensor) -> Tensor:
    return x.mean(dim=(2, 3))


def spatial_softmax(x: Tensor) -> Tensor:
    return F.softmax(x.flatten(2), dim=-1).view_as(x)


def log_sum_exp_columns(x: Tensor) -> Tensor:
    return torch.logsumexp(x, dim=0)


def row_product(x: Tensor) -> Tensor:
    return x.prod(dim=-1)


def max_with_place(x: Tensor) -> tuple[Tensor, Tensor]:
    values, indices = x.max(dim=-1)
    return values, indices
