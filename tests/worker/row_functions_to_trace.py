"""Functions with reductions of rows, of the kind that people bring to `kernelgen add-op --from`."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def softmax(x: Tensor) -> Tensor:
    return F.softmax(x, dim=-1)


def log_softmax(x: Tensor) -> Tensor:
    return F.log_softmax(x, dim=-1)


def softmax_temperature(x: Tensor, temperature: float = 2.0) -> Tensor:
    return torch.softmax(x / temperature, -1)


def rms(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    variance = x.pow(2).mean(-1, keepdim=True)
    return x * torch.rsqrt(variance + eps) * weight


def layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def log_sum_exp(x: Tensor) -> Tensor:
    return x.logsumexp(-1)


def unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return -(target * F.log_softmax(logits, -1)).sum(-1)


def smooth_cross_entropy(logits: Tensor, target: Tensor, smoothing: float = 0.1) -> Tensor:
    log_probabilities = F.log_softmax(logits, -1)
    nll = -(target * log_probabilities).sum(-1)
    uniform = -log_probabilities.mean(-1)
    return (1 - smoothing) * nll + smoothing * uniform


def mean_square(x: Tensor) -> Tensor:
    return (x * x).mean(-1)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1) * torch.rsqrt((a * a).sum(-1) * (b * b).sum(-1) + 1e-6)


def gated_rms(x: Tensor, gate: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    y = x * F.silu(gate)
    return y * torch.rsqrt((y * y).mean(-1, keepdim=True) + eps) * weight


def kl(p: Tensor, q: Tensor) -> Tensor:
    return (F.softmax(p, -1) * (F.log_softmax(p, -1) - F.log_softmax(q, -1))).sum(-1)


def standardise(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)


def amax_scale(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 7
    return x / scale, scale.squeeze(-1)


def rows_bias(x: Tensor, bias: Tensor) -> Tensor:
    return x.softmax(-1) + bias[None, :]


def mean_squared_error(prediction: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    return F.mse_loss(prediction, target, reduction=reduction)


def batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, training: bool = True, *, eps: float = 1e-5
) -> Tensor:
    return F.batch_norm(x, None, None, weight, bias, training=training, eps=eps)


def instance_norm(x: Tensor) -> Tensor:
    return F.instance_norm(x)


def mean_of(x: Tensor, dim: int = 1) -> Tensor:
    return x.mean(dim)


def largest(x: Tensor) -> tuple[Tensor, Tensor]:
    values, places = x.max(dim=-1)
    return values, places


def chosen(logits: Tensor, place: Tensor) -> Tensor:
    return -F.log_softmax(logits, -1).gather(-1, place.unsqueeze(-1)).squeeze(-1)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(torch.where(mask, scores, float("-inf")), dim=-1)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits, target)


def cosine_loss(a: Tensor, b: Tensor) -> Tensor:
    return 1 - F.cosine_similarity(a, b, dim=-1).mean()


def product(x: Tensor) -> Tensor:
    return x.prod(-1)


def running_sum(x: Tensor, mask: Tensor) -> Tensor:
    return torch.cumsum(torch.where(mask, x, 0.0), -1)


def sum_from_here(x: Tensor, weight: Tensor) -> Tensor:
    return x.flip(-1).cumsum(-1).flip(-1) * weight


def running_product(x: Tensor) -> Tensor:
    return torch.cumprod(x, -1)


def survey(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    bounded = torch.tanh(x)
    rows = bounded.mean(-1)
    return torch.cumsum(x, -1), bounded.prod(-1), (rows * rows).mean() / (1 + rows.abs()).sum()


def weighted_bce(logits: Tensor, target: Tensor, positive_weight: Tensor) -> Tensor:
    """PyTorch has no derivative by the weight."""
    losses = F.binary_cross_entropy_with_logits(logits, target, pos_weight=positive_weight, reduction="none")
    return losses.mean(-1)


def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    """Integers beside the scale of each row."""
    scale = x.abs().amax(-1, keepdim=True) / 127 + 1e-6
    return torch.round(x / scale).clamp(-128, 127).to(torch.int8), scale


def wide_loss(logits: Tensor, target: Tensor, ignored: int = -100) -> Tensor:
    """Of float32 whatever the logits are, and 0 where a target is none."""
    chosen = logits.float().log_softmax(-1).gather(-1, target.clamp(min=0).unsqueeze(-1))[..., 0]
    return torch.where(target == ignored, 0.0, -chosen)


def brier(logits: Tensor, target: Tensor) -> Tensor:
    classes = F.one_hot(target, logits.shape[-1])
    return (logits.softmax(-1) - classes).square().sum(-1)


def flags_and_counts(x: Tensor, limit: float = 0.5) -> tuple[Tensor, Tensor, Tensor]:
    """A truth value and a count of each row, and one number of all in float32."""
    return x.isnan().any(-1), (x > limit).sum(-1), x.float().square().mean()


def margin_by_pair(a: Tensor, b: Tensor, same: Tensor, margin: float = 1.0) -> Tensor:
    """A mask with an element for each row."""
    distance = (a - b).square().sum(-1)
    return torch.where(same, distance, (margin - distance).clamp(min=0))


def padded_softmax(scores: Tensor, lengths: Tensor) -> Tensor:
    """Places in a row beside a number of it."""
    padding = torch.arange(scores.shape[-1], device=scores.device) > lengths[:, None]
    return scores.masked_fill(padding, -1e9).softmax(-1)


def gated_halves(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """A row is half of the last dimension."""
    hidden, gate = x.chunk(2, -1)
    hidden = hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + eps)
    return hidden * weight * F.silu(gate)


def turned_norm(x: Tensor, cos: Tensor, sin: Tensor, eps: float = 1e-6) -> Tensor:
    """A norm of both halves before a rotary embedding, whose result is joined of halves."""
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def causal_softmax(scores: Tensor) -> Tensor:
    """Rows know which row of a plane they are."""
    queries, keys = scores.shape[-2:]
    is_seen = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).tril()
    return scores.masked_fill(~is_seen, float("-inf")).softmax(-1)


def sloped_softmax(scores: Tensor, slopes: Tensor, window: int = 8) -> Tensor:
    """Planes are square, and a number for each head is repeated along the others."""
    place = torch.arange(scores.shape[-1], device=scores.device)
    distance = place[:, None] - place[None, :]
    scores = scores - slopes[:, None, None] * distance
    return scores.masked_fill((distance < 0) | (distance >= window), float("-inf")).softmax(-1)


def modulated_norm(x: Tensor, scale: Tensor, shift: Tensor, keep: Tensor) -> Tensor:
    """Tensors, and a mask, that have some of the dimensions."""
    h = F.layer_norm(x, (x.shape[-1],), eps=1e-6)
    return torch.where(keep[:, None, :], h * (1 + scale.unsqueeze(1)) + shift[:, None], x)


def rotated_heads(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Tensors that are repeated for each head, beside one that is cut."""
    first, second = x.chunk(2, dim=-1)
    return x * cos[:, None, :] + torch.cat((-second, first), dim=-1) * sin[:, None, :]


def padded_scores(lengths: Tensor, scores: Tensor) -> Tensor:
    """The tensor of rows is not the first."""
    padding = torch.arange(scores.shape[-1], device=scores.device)[None, :] >= lengths[:, None]
    return scores.masked_fill(padding, -1e4)


def group_norm(x: Tensor, weight: Tensor, bias: Tensor, groups: int = 4) -> Tensor:
    return F.group_norm(x, groups, weight, bias)


def head_norm(q: Tensor, weight: Tensor, heads: int = 4, eps: float = 1e-6) -> Tensor:
    rows, columns, width = q.shape
    of_heads = q.view(rows, columns, heads, width // heads)
    return (of_heads * torch.rsqrt(of_heads.pow(2).mean(-1, keepdim=True) + eps) * weight).reshape(q.shape)


def block_codes(x: Tensor) -> tuple[Tensor, Tensor]:
    blocks = x.unflatten(-1, (-1, 32))
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
    return torch.round(blocks / scale).clamp(-127, 127).to(torch.int8).flatten(-2), scale.squeeze(-1)


def weighted_pool(x: Tensor, scores: Tensor) -> Tensor:
    return (x * scores.softmax(-1)[..., None]).sum(1)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def contrastive(similarities: Tensor, scale: float = 14.0) -> Tensor:
    return F.cross_entropy(similarities * scale, torch.arange(similarities.shape[0], device=similarities.device))


def rotated_projection(x: Tensor, cos: Tensor, sin: Tensor, heads: int = 4) -> Tensor:
    """Halves of each head, which the projection has joined."""
    of_heads = x.view(x.shape[0], x.shape[1], heads, -1)
    first, second = of_heads.chunk(2, dim=-1)
    c, s = cos[None, :, None, :], sin[None, :, None, :]
    return torch.cat((first * c - second * s, second * c + first * s), dim=-1).view(x.shape)


def gated_heads(x: Tensor, gate: Tensor) -> Tensor:
    """Heads come before positions in one tensor, and are joined in the other."""
    batch, heads, columns, width = x.shape
    return x.transpose(1, 2).reshape(batch, columns, heads * width) * torch.sigmoid(gate)


def channels_last(x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """The result comes in another order."""
    return ((x - mean[None, :, None, None]) * scale[None, :, None, None]).permute(0, 2, 3, 1)


def float8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-12).float() / 448
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def rotated_queries_and_keys(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Of four tensors there are many assumptions about masks, which come behind those about rows."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    (q1, q2), (k1, k2) = q.chunk(2, -1), k.chunk(2, -1)
    return q * cos + torch.cat((-q2, q1), -1) * sin, k * cos + torch.cat((-k2, k1), -1) * sin


def residual_rms(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """PyTorch rounds its eps to float32."""
    h = x + residual
    return F.rms_norm(h, (h.shape[-1],), weight, eps), h


def plain_rms(x: Tensor, weight: Tensor) -> Tensor:
    """PyTorch's eps is that of the dtype that it computes in."""
    return F.rms_norm(x, (x.shape[-1],), weight)


def weighted_places(x: Tensor, weights: Tensor) -> Tensor:
    return torch.einsum("bsd,bs->bd", x, weights)


def scaled_maps(x: Tensor, scale: Tensor) -> Tensor:
    """A row is two dimensions that are counted from the front, of tensors of four or more."""
    return x * F.hardsigmoid(scale)[:, :, None, None]


def noise_ratio(prediction: Tensor, target: Tensor, largest: float = 1.0) -> Tensor:
    """A row is three dimensions."""
    return 10 * torch.log10(largest**2 / (prediction - target).square().mean(dim=(-3, -2, -1)))


def running_log_sum(x: Tensor, scale: float = 2.0) -> Tensor:
    """The gradient is PyTorch's: it has two running totals."""
    return torch.logcumsumexp(x * scale, -1)


def running_largest(x: Tensor, y: Tensor) -> Tensor:
    return x.cummax(-1).values * y


def policy_loss(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, clip: float = 0.2) -> Tensor:
    """The line that keeps exponentials of two tensors is as long as lines may be."""
    ratio = torch.exp(logp - old_logp)
    advantage = advantage.unsqueeze(-1)
    losses = -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    return (losses * mask).sum(-1) / mask.sum(-1).clamp(min=1)
