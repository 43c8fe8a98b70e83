"""Pointwise functions of the kind that people bring to `kernelgen add-op --from`."""

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def gelu_bias(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias, approximate="tanh")


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


def silu(x: Tensor) -> Tensor:
    return F.silu(x)


def relu(x: Tensor) -> Tensor:
    return F.relu(x)


def relu_squared(x: Tensor) -> Tensor:
    return F.relu(x) ** 2


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    return F.leaky_relu(x, slope)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


def celu(x: Tensor) -> Tensor:
    return F.celu(x)


def selu(x: Tensor) -> Tensor:
    return F.selu(x)


def mish(x: Tensor) -> Tensor:
    return F.mish(x)


def softplus(x: Tensor, beta: float = 1.0) -> Tensor:
    return F.softplus(x, beta)


def hardswish(x: Tensor) -> Tensor:
    return F.hardswish(x)


def hardtanh(x: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    return F.hardtanh(x, low, high)


def softsign(x: Tensor) -> Tensor:
    return F.softsign(x)


def log_sigmoid(x: Tensor) -> Tensor:
    return F.logsigmoid(x)


def tanh_shrink(x: Tensor) -> Tensor:
    return F.tanhshrink(x)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def geglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.gelu(gate, approximate="tanh") * up


def gated_residual(x: Tensor, gate: Tensor, residual: Tensor) -> Tensor:
    weight = torch.sigmoid(gate)
    return residual + weight * x


def layer_scale(x: Tensor, gamma: Tensor, residual: Tensor) -> Tensor:
    return residual + gamma * x


def scale_shift(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return x * (1 + scale) + shift


def squared_error(prediction: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(prediction, target, reduction="none")


def huber(prediction: Tensor, target: Tensor, delta: float = 1.0) -> Tensor:
    return F.huber_loss(prediction, target, reduction="none", delta=delta)


def smooth_l1(prediction: Tensor, target: Tensor) -> Tensor:
    return F.smooth_l1_loss(prediction, target, reduction="none")


def bce_with_logits(logits: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, target, reduction="none")


def focal(logits: Tensor, target: Tensor, gamma: float = 2.0) -> Tensor:
    cross_entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    probability = torch.exp(-cross_entropy)
    return (1 - probability) ** gamma * cross_entropy


def clamp(x: Tensor, low: float = -0.5, high: float = 0.5) -> Tensor:
    return x.clamp(low, high)


def choose(mask: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(mask, x, y)


def masked_scale(x: Tensor, mask: Tensor, p: float = 0.1) -> Tensor:
    return x.masked_fill(mask, 0.0) / (1 - p)


def is_close(x: Tensor, y: Tensor, *, tolerance: float = 0.1) -> Tensor:
    return (x - y).abs() <= tolerance


def cube(x: Tensor) -> Tensor:
    return x**3


def power(x: Tensor, n: int = 3) -> Tensor:
    return x**n


def soft_cap(x: Tensor, cap: float = 30.0) -> Tensor:
    return cap * torch.tanh(x / cap)


def polar(r: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    return r * torch.cos(angle), r * torch.sin(angle)


def signed_sine(x: Tensor, negate: bool = False) -> Tensor:
    return -torch.sin(x) if negate else torch.sin(x)


def gaussian(x: Tensor, mean: Tensor, log_sigma: Tensor) -> Tensor:
    z = (x - mean) * torch.exp(-log_sigma)
    return -0.5 * z * z - log_sigma - 0.5 * math.log(2 * math.pi)


def hysteresis(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    higher = x > y
    return torch.where(higher, x, 0.5 * y), higher


def upcast(x: Tensor, scale: Tensor) -> Tensor:
    return torch.log1p((x.float() * scale.float()) ** 2).to(x.dtype)


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def entropy(p: Tensor) -> Tensor:
    return -p * torch.log(p)


def log_cosh(prediction: Tensor, target: Tensor) -> Tensor:
    error = prediction - target
    return error + F.softplus(-2 * error) - math.log(2)


def logit(p: Tensor) -> Tensor:
    return torch.logit(p, 1e-6)


def lerp(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    return torch.lerp(start, end, weight)


def adaln(x: Tensor, shift: Tensor, scale: Tensor, gate: Tensor, residual: Tensor) -> Tensor:
    modulated = x * (1 + scale) + shift
    return residual + gate * modulated


def distilled(x: Tensor, teacher: Tensor) -> Tensor:
    """A tensor that has no gradient."""
    return (x - teacher.detach()).square()


def awkward(
    rows: Tensor, elements: Tensor, k: float = 2.0, place: float = 1.0, first: int = 3, last: float = 1.0, step: int = 2
) -> Tensor:
    """Names that the stamped sources use themselves."""
    kernel = rows * k + elements * place
    return kernel * first + last / step


def chunked_geglu(x: Tensor) -> Tensor:
    """Halves of the last dimension."""
    a, b = x.chunk(2, dim=-1)
    return a * F.gelu(b)


def sliced_swiglu(x: Tensor, bias: Tensor) -> Tensor:
    """A vector as large as both halves."""
    hidden = x + bias
    half = hidden.shape[-1] // 2
    return F.silu(hidden[..., :half]) * hidden[..., half:]


def pair_norm(x: Tensor) -> Tensor:
    """Neighbours are a pair."""
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.sqrt(1 + a * a + b * b)


def rotate_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def three_parts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Several results, one of which is a part as it is."""
    q, k, v = x.split(x.shape[-1] // 3, dim=-1)
    return q * 2, k, torch.tanh(v)


def beside(x: Tensor, y: Tensor) -> Tensor:
    """A result that is joined of tensors that are not cut."""
    return torch.cat((x * y, x - y), dim=-1)


def masked_gate(x: Tensor, mask: Tensor, scale: float = 2.0) -> Tensor:
    value, gate = x.tensor_split(2, dim=-1)
    return torch.where(mask, value * torch.sigmoid(scale * gate), 0.0)


def first_of_pairs(x: Tensor) -> Tensor:
    """Of what takes turns, the formula reads one part."""
    return torch.sigmoid(x[..., ::2])


def rotate_fours(x: Tensor, angle: Tensor) -> Tensor:
    """Four parts take turns, in the result too."""
    a, b, c, d = x.unflatten(-1, (-1, 4)).unbind(-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((a * cos - b * sin, a * sin + b * cos, c * cos - d * sin, c * sin + d * cos), -1).flatten(-2)


def length_of_three(x: Tensor) -> Tensor:
    """Three parts take turns, which fill no 16 bytes."""
    a, b, c = x.unflatten(-1, (-1, 3)).unbind(-1)
    return torch.sqrt(1 + a * a + b * b + c * c)


def codes_by(x: Tensor, scale: Tensor) -> Tensor:
    """A result of integers."""
    return torch.round(x / scale).clamp(-128, 127).to(torch.int8)


def codes_and_errors(x: Tensor, shift: Tensor, step: float = 0.1) -> tuple[Tensor, Tensor]:
    """The gradient by x is that of the second result, unchanged."""
    codes = ((x - shift) / step).round().clamp(0, 255).to(torch.uint8)
    return codes, x - codes.to(x.dtype) * step + shift.sin()


def causal_mask(x: Tensor) -> Tensor:
    """Values that depend on where an element lies."""
    n, m = x.shape[-2:]
    mask = torch.ones(n, m, dtype=torch.bool, device=x.device).tril()
    return x.masked_fill(~mask, -1e4)


def distance_bias(x: Tensor, slopes: Tensor) -> Tensor:
    """The same of squares, beside a tensor that broadcasts."""
    n = x.shape[-1]
    place = torch.arange(n, device=x.device)
    return x + slopes * (place[None, :] - place[:, None]).abs()


def sliding_window(x: Tensor, width: int = 4) -> Tensor:
    row = torch.arange(x.shape[-2], device=x.device)[:, None]
    column = torch.arange(x.shape[-1], device=x.device)
    return torch.where((column <= row) & (column > row - width), x, 0.0)


def rounded_parts(x: Tensor, scale: float = 255.0) -> tuple[Tensor, Tensor]:
    """Results of dtypes of their own, of what is set where a mask says so, by a function of a scalar."""
    y = x * (1 / math.log1p(scale))
    y[x < 0] = 0
    return y.to(torch.bfloat16), y.float()


def quaternion_product(a: Tensor, b: Tensor) -> Tensor:
    """The last dimension is four numbers, taken apart."""
    aw, ax, ay, az = a.unbind(-1)
    bw, bx, by, bz = b.unbind(-1)
    real = aw * bw - ax * bx - ay * by - az * bz
    i = aw * bx + ax * bw + ay * bz - az * by
    j = aw * by - ax * bz + ay * bw + az * bx
    k = aw * bz + ax * by - ay * bx + az * bw
    return torch.stack((real, i, j, k), -1)


def angular_momentum(position: Tensor, velocity: Tensor, mass: float = 1.5) -> Tensor:
    return mass * torch.cross(position, velocity, dim=-1)


def box_overlap(a: Tensor, b: Tensor) -> Tensor:
    """A number for each point, without the last dimension."""
    low, high = torch.max(a[..., :2], b[..., :2]), torch.min(a[..., 2:], b[..., 2:])
    sides = (high - low).clamp(min=0)
    both = sides[..., 0] * sides[..., 1]
    every = (a[..., 2] - a[..., 0]) * (a[..., 3] - a[..., 1]) + (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])
    return both / (every.abs() + both + 1)


def held_rewards(chosen: Tensor, rejected: Tensor, beta: float = 0.1) -> tuple[Tensor, Tensor]:
    """A result that is held constant."""
    return -F.logsigmoid(beta * (chosen - rejected)), (beta * chosen).detach()


def float8_codes(x: Tensor, scale: Tensor) -> Tensor:
    return (x.float() / scale.float()).clamp(-448, 448).to(torch.float8_e4m3fn)


def unpacked_fours(packed: Tensor) -> Tensor:
    """Integers of integers, which are all of its tensors."""
    return torch.stack(((packed & 0xF).to(torch.int8) - 8, (packed >> 4).to(torch.int8) - 8), -1).flatten(-2)


def turned_points(points: Tensor, angle: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers beside points: in both results, and in a gradient that is a sum of parts."""
    x, y = points[..., 0], points[..., 1]
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.stack((x * cos - y * sin, x * sin + y * cos), -1) * weight.unsqueeze(-1), x * angle


def decoded_boxes(anchors: Tensor, deltas: Tensor, scores: Tensor) -> Tensor:
    """Points that are rows of matrices and nothing else."""
    sizes = anchors[:, 2:] - anchors[:, :2]
    centres = anchors[:, :2] + 0.5 * sizes + deltas[:, :2] * sizes
    return torch.cat((centres - sizes, centres + torch.exp(deltas[:, 2:]) * sizes), dim=1) * scores[:, None]


def coupled_channels(x: Tensor, parameters: Tensor, shift: float = 2.0) -> Tensor:
    """Another dimension than the last is cut."""
    scale, bias = parameters.chunk(2, dim=1)
    return x * torch.sigmoid(scale + shift) + bias


def luma_and_chroma(image: Tensor) -> tuple[Tensor, Tensor]:
    """Each part is a single element of such a dimension; a result lacks the dimension."""
    red, green, blue = image.unbind(dim=-3)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    return luma, torch.stack((0.492 * (blue - luma), 0.877 * (red - luma)), dim=-3)


def gaussian_nll(mean: Tensor, target: Tensor, var: Tensor, eps: float = 1e-6) -> Tensor:
    """Numbers of one tensor are refused that are negative."""
    return F.gaussian_nll_loss(mean, target, var, full=True, eps=eps, reduction="none")


def partial_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Half of each row is turned, and meets tensors of as many elements."""
    turned, rest = x.chunk(2, -1)
    first, second = turned.chunk(2, -1)
    return torch.cat((turned * cos + torch.cat((-second, first), -1) * sin, rest), -1)


def rotation(q: Tensor) -> Tensor:
    """A result is a matrix for each point."""
    r, i, j, k = q.unbind(-1)
    s = 2.0 / (q * q).sum(-1)
    diagonal = (1 - s * (j * j + k * k), 1 - s * (i * i + k * k), 1 - s * (i * i + j * j))
    upper = (s * (i * j - k * r), s * (i * k + j * r), s * (j * k - i * r))
    lower = (s * (i * j + k * r), s * (i * k - j * r), s * (j * k + i * r))
    rows = (diagonal[0], *upper[:2], lower[0], diagonal[1], upper[2], *lower[1:], diagonal[2])
    return torch.stack(rows, -1).reshape(*q.shape[:-1], 3, 3)


def graded(rgb: Tensor, gain: Tensor) -> Tensor:
    """A matrix that the function is written with, beside a number for each point."""
    matrix = torch.tensor([[0.9, 0.2, -0.1], [0.1, 0.8, 0.1], [0.0, -0.2, 1.2]], dtype=rgb.dtype, device=rgb.device)
    return (rgb @ matrix.T) * gain.unsqueeze(-1)


def stepped(x: Tensor, at_zero: Tensor) -> Tensor:
    """PyTorch has no derivative."""
    return torch.heaviside(x, at_zero)


def differences(x: Tensor) -> Tensor:
    """Results are smaller than tensors."""
    return (x[..., 1:] - x[..., :-1]).abs()


def frame_changes(video: Tensor) -> Tensor:
    """A dimension counts from the front, and any others are behind it."""
    return (video[:, 1:] - video[:, :-1]).square()


def token_shift(x: Tensor, mix: Tensor) -> Tensor:
    """An element of the row before, and 0 before the first one."""
    before = F.pad(x[:, :-1], (0, 0, 1, 0))
    return x * mix + before * (1 - mix)


def causal_convolution(x: Tensor, newest: Tensor, middle: Tensor, oldest: Tensor) -> Tensor:
    padded = F.pad(x, (0, 0, 2, 0))
    return F.silu(newest * x + middle * padded[:, 1:-1] + oldest * padded[:, :-2])


def warped(x: Tensor, mix: Tensor) -> Tensor:
    """Elements that a pad repeats, a flip, and a part that is written to."""
    padded = F.pad(x, (1, 1), mode="reflect")
    mirrored = x.flip(-1).clone()
    mirrored[..., :1] = 0.5
    return mix * (padded[..., 2:] - padded[..., :-2]) + mirrored


def edges(image: Tensor) -> Tensor:
    """Neighbours along two dimensions."""
    across = image[..., 1:-1, 2:] - image[..., 1:-1, :-2]
    down = image[..., 2:, 1:-1] - image[..., :-2, 1:-1]
    return torch.sqrt(across * across + down * down + 1e-6)


def diffused(u: Tensor, rate: float = 0.1) -> Tensor:
    """A dimension that wraps around, and others that do not."""
    around = torch.roll(u, 1, dims=-1) + torch.roll(u, -1, dims=-1)
    above = torch.cat((u[..., :1, :], u[..., :-1, :]), dim=-2)
    below = torch.cat((u[..., 1:, :], u[..., -1:, :]), dim=-2)
    return u + rate * (around + above + below - 4 * u)


def advected(u: Tensor, speed: Tensor) -> Tensor:
    flux = speed * u
    return u - 0.5 * (torch.roll(flux, -1, -1) - torch.roll(flux, 1, -1))


def fenced(x: Tensor, mask: Tensor) -> Tensor:
    """Results are larger than tensors; an element of a mask is read as well."""
    inner = torch.where(mask, x.exp(), 1.0)
    return F.pad(inner, (1, 1), value=0.5)
