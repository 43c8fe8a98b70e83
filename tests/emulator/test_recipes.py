"""Every recipe's CUDA kernels compute what its reference does, under several thread schedules."""

import ctypes
import math

import pytest
import torch

from tests.conftest import with_sample

from .conftest import SEEDS, Memory

NAMES = {torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def close(result: torch.Tensor, expected: torch.Tensor, label: str = "") -> None:
    """Asserts an error of at most 16 eps, relative to max(|expected|, 1): enough for sums of a few hundred terms."""
    assert result.shape == expected.shape
    tolerance = 16 * torch.finfo(result.dtype).eps
    error = (result.double() - expected.double()).abs() / expected.double().abs().clamp(min=1)
    assert (error <= tolerance).all(), f"{label}: off by {error.max():.2e}, not {tolerance:.2e}"


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


@pytest.fixture(autouse=True)
def _same_inputs():
    torch.manual_seed(0)


@pytest.mark.parametrize("n", (1, 1003, 5 * 2048 + 7))
@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("shift", (0, 1))
def test_elementwise(compiled, reference, memory, dtype, n, shift):
    library = compiled("elementwise", ["kernel.cu"])
    a, b, c = (memory.copy(random(n, dtype=dtype), shift) for _ in "abc")
    out = memory.empty(n, dtype=dtype)
    library(f"forward_{NAMES[dtype]}", a, b, c, out, n, seed=n)
    expected = reference("elementwise").elementwise(a.double(), b.double(), c.double())
    assert torch.equal(out, expected.to(dtype)) if dtype != torch.float64 else torch.allclose(out, expected, rtol=1e-15)


# Rows for a few lanes, for a warp, for a block, for a part of a block, for a block that holds more, for a cluster, and
# too long for all of these. Rows that fill their thread groups, groups without a row, and fewer rows than four for each
# of two multiprocessors, whose gradient is one launch. By their lengths and shifts they begin anywhere, in all tensors
# alike or not.
ROWS = [
    *((37, 24, 80), (9, 1021, 80), (8, 2048, 80), (27, 1100, 80)),
    *((16, 256, 80), (19, 256, 80), (8, 1024, 80), (9, 1024, 80)),
    *((8, 9000, 90), (8, 9001, 90), (2, 20_000, 90), (2, 20_000, 80)),
    *((45, 320, 90), (1, 9000, 90)),  # Three accesses of two rows a thread; a row's gradient in a cluster.
    *((100, 33, 90), (19, 1027, 90), (1, 700, 90), (4, 20_001, 80), (2, 66_001, 90), (30, 511, 90)),
]
# Elements by which tensors start past a multiple of 16 bytes, and from a row's end to the next row.
LAYOUTS = {"aligned": (0, 0), "shifted": (1, 0), "apart": (0, 8), "shifted apart": (3, 5)}


@pytest.mark.parametrize("rows, n, capability", ROWS)
@pytest.mark.parametrize("extras", (False, True), ids=("plain", "residual"))
@pytest.mark.parametrize("op", ("rms_norm", "layer_norm"))
def test_norms(compiled, reference, memory, op, extras, rows, n, capability):
    dtype = torch.bfloat16 if n % 8 == 0 else torch.float32
    check_norm(compiled, reference, memory, op, extras, rows, n, capability, dtype)


# The last has more rows than the threads take at a time.
@pytest.mark.parametrize("rows, n", [(40, 100), (5, 301), (9, 2056), (403, 28)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", ("rms_norm", "layer_norm"))
def test_norms_of_rows_anywhere(compiled, reference, memory, op, layout, rows, n):
    check_norm(compiled, reference, memory, op, True, rows, n, 90, torch.bfloat16, *LAYOUTS[layout])


def check_norm(
    compiled, reference, memory, op, extras, rows, n, capability, dtype, shift: int = 0, apart: int = 0
) -> None:
    library, name = compiled(op, capability=capability), NAMES[dtype]
    inputs = {"input": random(rows, n, dtype=dtype)}
    inputs |= {"residual": random(rows, n, dtype=dtype), "weight": random(n, dtype=dtype)} if extras else {}
    inputs |= {"bias": random(n, dtype=dtype)} if extras and op == "layer_norm" else {}
    leaves = {key: value.double().requires_grad_() for key, value in inputs.items()}
    # The kernel normalises the rounded sum of input and residual.
    rounded = (inputs["input"] + inputs["residual"]).double() if extras else inputs["input"].double()
    results = getattr(reference(op), op)(**leaves)
    expected, expected_sum = results if extras else (results, None)

    def rows_apart(tensor: torch.Tensor | None) -> torch.Tensor | None:
        """The rows with NaN between them."""
        if tensor is None or apart == 0:
            return memory.copy(tensor, shift)
        return memory.copy(torch.nn.functional.pad(tensor, (0, apart), value=math.nan), shift)

    copies = {key: rows_apart(value) if value.dim() == 2 else memory.copy(value) for key, value in inputs.items()}
    output, total = memory.empty(rows, n, dtype=dtype), memory.empty(rows, n, dtype=dtype)
    statistics = [memory.empty(rows) for _ in range(1 if op == "rms_norm" else 2)]
    scratch = memory.empty(200 * n)
    affine = [copies.get(key) for key in ("weight", "bias")[: len(statistics)]]
    seed, gpu = rows + n, {"capability": capability, "multiprocessors": 2}
    library(
        f"forward_{name}",
        *(copies["input"], copies.get("residual"), *affine, output, total if extras else None),
        *(*statistics, scratch, scratch.numel(), rows, n, n + apart),
        seed=seed,
        **gpu,
    )
    exact = getattr(reference(op), op)(
        **{k: v.detach() for k, v in leaves.items() if k != "residual"} | {"input": rounded}
    )
    close(output, exact, "output")
    if extras:
        assert torch.equal(total, rounded.to(dtype))

    grad, grad_sum = random(rows, n, dtype=dtype), random(rows, n, dtype=dtype) if extras else None
    loss = (expected * grad.double()).sum() + ((expected_sum * grad_sum.double()).sum() if extras else 0)
    loss.backward()
    grads = {key: memory.empty(*leaves[key].shape, dtype=dtype) for key in ("input", "weight", "bias") if key in leaves}
    affine_grads = [grads.get(key) for key in ("weight", "bias")[: len(statistics)]]
    library(
        f"backward_{name}",
        *(rows_apart(grad), rows_apart(grad_sum), rows_apart(rounded.to(dtype)), copies.get("weight")),
        *(*statistics, grads["input"], *affine_grads, scratch, scratch.numel(), rows, n, n + apart),
        seed=seed,
        **gpu,
    )
    for key, value in grads.items():
        close(value, leaves[key].grad, f"gradient of {key}")


SWIGLUS = [(1, 1), (1, 4099), (5, 100), (3, 1032), (2, 5001), (301, 24), (70, 8), (7, 1028), (6, 1365)]


@pytest.mark.parametrize("rows, n", SWIGLUS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float16), ids=NAMES.get)
@pytest.mark.parametrize("halves", (False, True), ids=("two", "one"))
def test_swiglu(compiled, reference, memory, dtype, rows, n, halves):
    library, name = compiled("swiglu"), NAMES[dtype]
    whole = memory.copy(random(rows, 2 * n, dtype=dtype))
    gate, up = whole.chunk(2, -1) if halves else (memory.copy(part.contiguous()) for part in whole.chunk(2, -1))
    stride = gate.stride(0)
    output, grad = memory.empty(rows, n, dtype=dtype), memory.copy(random(rows, n, dtype=dtype))
    library(f"forward_{name}", gate, up, stride, output, rows, n, seed=n)
    g, u = gate.double().requires_grad_(), up.double().requires_grad_()
    expected = reference("swiglu").swiglu(g, u)
    expected.backward(grad.double())
    close(output, expected)
    both = memory.empty(rows, 2 * n, dtype=dtype)
    grad_gate, grad_up = both.chunk(2, -1) if halves else (memory.empty(rows, n, dtype=dtype) for _ in "ab")
    library(f"backward_{name}", grad, gate, up, stride, grad_gate, grad_up, rows, n, seed=n)
    close(grad_gate, g.grad)
    close(grad_up, u.grad)


# Small tiles; in the last case large ones.
SM80 = [(50, 72, 136, 2), (200, 136, 200, 4), (250, 376, 264, 2), (3, 120 * 128 - 5, 72, 2)]
# On GPUs with so many multiprocessors, the shape classes Small, Few, Halves and Quarters; and large ones.
SM90 = [
    *((70, 72, 72, 4), (50, 72, 72, 4), (70, 72, 776, 8), (50, 72, 520, 12)),
    *((200, 136, 200, 4), (130, 72, 72, 4), (200, 520, 72, 2)),
]
PRODUCTS = [
    *(("sm80", torch.float16, *shape) for shape in SM80),
    *(("sm90", torch.bfloat16, *shape) for shape in SM90),
]


@pytest.mark.parametrize("path, dtype, m, n, k, multiprocessors", PRODUCTS)
@pytest.mark.parametrize("seed", with_sample(SEEDS, {8}))
def test_linear_activation(compiled, reference, memory, path, dtype, m, n, k, multiprocessors, seed):
    gpu = {"seed": seed, "multiprocessors": multiprocessors}
    check_product(compiled("linear_activation"), reference, memory, path, dtype, m, n, k, **gpu)


def check_product(library, reference, memory, path, dtype, m, n, k, **gpu):
    x, bias = (memory.copy(random(*size, dtype=dtype)) for size in ((m, k), (n,)))
    weight = memory.copy((random(n, k) / math.sqrt(k)).to(dtype))
    y, z = memory.empty(m, n, dtype=dtype), memory.empty(m, n, dtype=dtype)
    library(f"{path}_{NAMES[dtype]}", x, weight, bias, y, z, m, n, k, **gpu)
    exact_inputs = [t.double() for t in (x, weight, bias)]
    close(z, reference("linear_activation").linear_activation(*exact_inputs, "none"))
    close(y, reference("linear_activation").linear_activation(*exact_inputs, "gelu_tanh"))


@pytest.mark.parametrize(
    "m, n, k, multiprocessors", [SM80[0], *(pytest.param(*shape, marks=pytest.mark.corpus) for shape in SM80[1:])]
)
def test_linear_activation_on_7_5(compiled, reference, memory, m, n, k, multiprocessors):
    library, gpu = compiled("linear_activation", capability=75), {"capability": 75, "multiprocessors": multiprocessors}
    check_product(library, reference, memory, "sm80", torch.float16, m, n, k, **gpu)


@pytest.mark.parametrize("path, dtype", [("sm80", torch.float16), ("plain", torch.float32)])
def test_linear_activation_of_unaligned_rows(compiled, reference, memory, path, dtype):
    m, n, k = 67, 35, 83
    x = memory.copy(random(m, k, dtype=dtype), shift=1)
    weight = memory.copy((random(n, k) / math.sqrt(k)).to(dtype), shift=1)
    y = memory.empty(m, n, dtype=dtype)
    compiled("linear_activation")(f"{path}_{NAMES[dtype]}", x, weight, None, y, None, m, n, k)
    close(y, reference("linear_activation").linear_activation(x.double(), weight.double(), None, "gelu_tanh"))


# Large tiles begin at 300 of them, which take minutes here.
@pytest.mark.parametrize("n", [96 * 64 - 70, 96 * 64 - 5, pytest.param(300 * 128 - 5, marks=pytest.mark.corpus)])
def test_linear_activation_without_tensor_cores(compiled, reference, memory, n):
    """By each of the plain kernel's tiles, of which the number of columns decides."""
    m, k = 3, 37
    x, weight, bias = memory.copy(random(m, k)), memory.copy(random(n, k) / math.sqrt(k)), memory.copy(random(n))
    y, z = memory.empty(m, n), memory.empty(m, n)
    compiled("linear_activation")("plain_float32", x, weight, bias, y, z, m, n, k)
    exact_inputs = [t.double() for t in (x, weight, bias)]
    close(z, reference("linear_activation").linear_activation(*exact_inputs, "none"))
    close(y, reference("linear_activation").linear_activation(*exact_inputs, "gelu_tanh"))


# Rows of W and of x in eights of a warp's tile, as the entries have them; warps; elements past an aligned address.
# Short rows, whole vectors, rows of both that end inside of a tile, fewer steps of k than warps.
DIRECT = (
    *((1, 1, 2, 1, 5, 17, 45), (1, 1, 1, 0, 3, 1, 3), (1, 1, 3, 7, 9, 20, 200)),
    *((2, 4, 2, 3, 37, 41, 131), (2, 4, 4, 0, 32, 32, 64), (2, 4, 1, 5, 1, 70, 7)),
)


@pytest.mark.parametrize("high, wide, warps, shift, m, n, k", DIRECT)
@pytest.mark.parametrize("capability", [75, 90])
def test_linear_activation_of_rows_at_any_address(
    compiled, reference, memory, capability, high, wide, warps, shift, m, n, k
):
    gpu, dtype = {"capability": capability, "seed": k}, torch.float16
    x = memory.copy(random(m, k, dtype=dtype), shift=shift)
    weight = memory.copy((random(n, k) / math.sqrt(k)).to(dtype), shift=shift)
    bias, y, z = memory.copy(random(n, dtype=dtype)), memory.empty(m, n, dtype=dtype), memory.empty(m, n, dtype=dtype)
    library = compiled("linear_activation", capability=capability)
    library(f"direct_{high}_{wide}_float16", x, weight, bias, y, z, m, n, k, warps, **gpu)
    exact_inputs = [t.double() for t in (x, weight, bias)]
    close(z, reference("linear_activation").linear_activation(*exact_inputs, "none"))
    close(y, reference("linear_activation").linear_activation(*exact_inputs, "gelu_tanh"))


@pytest.mark.parametrize("m, n", [(1, 3), (70, 264), (33, 101)])
def test_the_elementwise_backward_of_linear_activation(compiled, reference, memory, m, n):
    grad, saved = (memory.copy(random(m, n, dtype=torch.float16)) for _ in "gs")
    grad_z, grad_bias = memory.empty(m, n, dtype=torch.float16), memory.empty(n, dtype=torch.float16)
    partial = memory.empty(n * 64)
    arguments = (grad, saved, grad_z, grad_bias, partial, partial.numel(), m, n)
    compiled("linear_activation")("backward_float16", *arguments, seed=m)
    expected = reference("linear_activation").linear_activation_backward(grad.float(), saved.float(), "gelu_tanh", True)
    close(grad_z, expected[0])
    close(grad_bias, expected[1])


class Shape(ctypes.Structure):
    """As in entries/flash_attention_problem.h."""

    NUMBERS = ("batch", "heads", "kv_heads", "queries", "keys", "dim", "value_dim", "left", "right")
    _fields_ = (*((name, ctypes.c_int64) for name in NUMBERS), ("scale", ctypes.c_double), ("sinks", ctypes.c_void_p))


class Attention:
    """An attention problem, as arguments of the entries' functions and of the reference."""

    def __init__(self, memory: Memory, dims: int, shape: tuple[int, ...], capability: int = 89, **options) -> None:
        self.memory, self.dims, self.options = memory, dims, options
        self.dtype = torch.bfloat16 if dims == 128 and capability >= 80 else torch.float16
        self.name = f"{NAMES[self.dtype]}_{dims}"
        batch, heads, kv_heads, queries, keys, dim = shape
        value_dim = options.pop("value_dim", dim)
        left, right = options.get("window", (-1, -1))
        right = 0 if options.get("causal") else right
        self.sinks = None if options.get("sinks") is None else memory.copy(options["sinks"])
        sinks = None if self.sinks is None else self.sinks.data_ptr()
        self.shape = Shape(*shape, value_dim, left, right, options.get("scale") or dim**-0.5, sinks)
        self.q = self.random_tensor(batch, queries, heads, dim)
        self.k, self.v = (self.random_tensor(batch, keys, kv_heads, size) for size in (dim, value_dim))
        self.rows, self.out = (batch, heads, queries), (batch, queries, heads, value_dim)

    def random_tensor(self, *shape: int) -> torch.Tensor:
        return self.memory.copy(random(*shape, dtype=self.dtype))

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.memory.empty(*tensor.shape, dtype=self.dtype)

    def inputs(self) -> tuple:
        return ctypes.addressof(self.shape), self.q, self.k, self.v, float(self.options.get("softcap") or 0)

    def forward(self, library, splits: int = 1, decode_warps: int = 0, **gpu) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = self.memory.empty(*self.out, dtype=self.dtype), self.memory.empty(*self.rows)
        partial = self.partial_results(splits)
        library(f"forward_{self.name}", *self.inputs(), out, lse, splits, *partial, decode_warps, **gpu)
        return out, lse

    def partial_results(self, splits: int) -> tuple[torch.Tensor | None, ...]:
        """Memory for the outputs and softmaxes of splits of the keys; none where they are not split."""
        sizes = (128 if self.dims == 96 else self.dims, 2) if splits > 1 else ()
        return tuple(self.memory.empty(splits, *self.rows, size) for size in sizes) or (None, None)

    def backward(self, library, out, lse, grad, grad_lse, deterministic: bool, **gpu) -> list[torch.Tensor]:
        grads = [self.empty_like(tensor) for tensor in (self.q, self.k, self.v)]
        delta, (batch, heads, queries) = self.memory.empty(*self.rows), self.rows
        # Tiles of backward_keys have 16, 32, 48 or 64 rows.
        rows = max(math.ceil(queries / tile) * tile for tile in (16, 32, 48, 64))
        sums = self.memory.empty(batch * heads * rows * self.dims).zero_()
        last = (delta, None if deterministic else sums)
        library(f"backward_{self.name}", *self.inputs(), out, lse, grad, grad_lse, *grads, *last, **gpu)
        return grads


SINKS = torch.tensor([0.5, 4.0, -2.0, 1.5, 0.0, 3.0])

ATTENTION = [
    (64, (2, 2, 1, 100, 130, 64), {"causal": True}),
    (64, (1, 2, 2, 70, 65, 40), {"softcap": 3.0, "window": (20, 5)}),
    (128, (1, 4, 2, 33, 150, 128), {"causal": True}),
    (128, (1, 1, 1, 90, 40, 96), {"causal": True, "softcap": 20.0}),  # The first rows attend to nothing.
    (64, (2, 2, 1, 90, 40, 64), {"causal": True, "sinks": SINKS[:2]}),
]


# GPUs with less shared memory than others, for the kernels of sm80/: code for 7.5 there, and code for 8.0 on 8.9.
SMALL_GPUS = (75, 89)


def code_for(gpu: int) -> int:
    """The compute capability that the kernels of sm80/ are compiled for, for a GPU by its own."""
    return gpu if gpu == 90 else min(gpu, 80)


@pytest.fixture
def flash_attention(compiled):
    """The kernels of sm80/ for a GPU, by its compute capability."""
    return lambda gpu=89: compiled("flash_attention", capability=code_for(gpu))


# Few queries. Head dimension; batch, heads, heads of keys, queries, keys, dimension; splits, warps; options.
DECODED = [
    (128, (2, 2, 2, 1, 150, 128), 1, 4, {}),
    (64, (1, 3, 1, 1, 70, 40), 2, 4, {"window": (50, 0)}),
    (128, (1, 6, 2, 4, 300, 96), 3, 8, {"causal": True, "softcap": 5.0}),  # 12 rows, more than a block takes at once.
    (64, (1, 2, 1, 3, 2, 64), 1, 4, {"causal": True}),  # The first row attends to nothing.
    (64, (1, 2, 1, 3, 2, 64), 1, 4, {"causal": True, "sinks": SINKS[:2]}),
    (128, (1, 6, 2, 4, 300, 96), 3, 8, {"causal": True, "sinks": SINKS}),
]


@pytest.mark.parametrize("dims, shape, splits, warps, options", DECODED)
@pytest.mark.parametrize("gpu", SMALL_GPUS)
@pytest.mark.parametrize("seed", with_sample(SEEDS, {8}))
def test_flash_attention_decodes(flash_attention, reference, memory, dims, shape, splits, warps, options, gpu, seed):
    attention = Attention(memory, dims, shape, gpu, **options)
    inputs = (attention.q.float(), attention.k.float(), attention.v.float())
    expected, expected_lse = reference("flash_attention").flash_attention(*inputs, **options, return_lse=True)
    out, lse = attention.forward(flash_attention(gpu), splits, warps, seed=seed, capability=gpu)
    close(out, expected)
    assert torch.allclose(lse, expected_lse, atol=1e-4)


# Exponents of the scale. The first leaves scores moderate. With the second some rows, and some steps of a row, have
# scores of 2^26 or more, for which the sm90 kernel computes weights in another way.
SCALES = (10, 24, 31, 100)


def check_large_scores(forward, reference, memory, dims, power):
    """Checks the output of `forward(attention)` where scores are large, and where no score is positive."""
    for negative in (False, True):
        options = {"causal": True, "scale": 0.9 * 2.0**power}
        attention = Attention(memory, dims, (1, 1, 1, 70, 300, dims), **options)
        if negative:
            attention.q.abs_()
            attention.k.abs_().neg_()
        doubles = (tensor.double() for tensor in (attention.q, attention.k, attention.v))
        expected, expected_lse = reference("flash_attention").flash_attention(*doubles, **options, return_lse=True)
        out, lse = forward(attention)
        close(out, expected)
        assert torch.allclose(lse.double(), expected_lse, rtol=2e-6, atol=0)


@pytest.mark.parametrize("dims", (64, 128))
@pytest.mark.parametrize("power", SCALES)
def test_flash_attention_with_large_scores(flash_attention, reference, memory, dims, power):
    library = flash_attention()
    for splits, decode_warps in ((1, 0), (3, 0), (1, 4)):

        def forward(attention, splits=splits, decode_warps=decode_warps):
            return attention.forward(library, splits, decode_warps, capability=89)

        check_large_scores(forward, reference, memory, dims, power)


def infinite_key(memory, dims):
    """Two queries whose weight of the second key is 0, as is that of the rows that pad a tile."""
    attention = Attention(memory, dims, (1, 1, 1, 2, 5, 16))
    attention.q.abs_()
    attention.k[:, 1] = -torch.inf
    return attention


def check_infinite_key(grads):
    for gradient in grads[1:]:
        assert gradient.isfinite().all()
        assert not gradient[:, 1].any()


@pytest.mark.parametrize("dims", (64, 128))
def test_flash_attention_with_an_infinite_key(flash_attention, memory, dims):
    library, attention = flash_attention(), infinite_key(memory, dims)
    out, lse = attention.forward(library, capability=89)
    for deterministic in (False, True):
        grad = attention.random_tensor(*out.shape)
        check_infinite_key(attention.backward(library, out, lse, grad, None, deterministic, capability=89))


@pytest.mark.parametrize("dims, shape, options", ATTENTION)
@pytest.mark.parametrize("gpu", with_sample((*SMALL_GPUS, 90), set(SMALL_GPUS)))
@pytest.mark.parametrize("seed", with_sample(SEEDS, {8}))
def test_flash_attention(flash_attention, reference, memory, dims, shape, options, gpu, seed):
    library, schedule = flash_attention(gpu), {"seed": seed, "capability": gpu}
    attention = Attention(memory, dims, shape, gpu, **options)
    leaves = [t.float().requires_grad_() for t in (attention.q, attention.k, attention.v)]
    expected, expected_lse = reference("flash_attention").flash_attention(*leaves, **options, return_lse=True)
    out, lse = attention.forward(library, **schedule)
    close(out, expected)
    assert torch.allclose(lse, expected_lse, atol=1e-4)
    if dims == 64:
        close(attention.forward(library, splits=3, **schedule)[0], expected)

    grad = attention.random_tensor(*out.shape)
    grad_lse = None if -torch.inf in lse else memory.copy(random(*lse.shape))
    loss = (expected * grad.float()).sum() + (0 if grad_lse is None else (expected_lse * grad_lse).sum())
    loss.backward()
    for deterministic in (False, True):
        grads = attention.backward(library, out, lse, grad, grad_lse, deterministic, **schedule)
        for name, gradient, leaf in zip("qkv", grads, leaves, strict=True):
            close(gradient, leaf.grad, f"gradient of {name}, {deterministic=}")


# Heads of more widths: the kernels' width; batch, heads, heads of keys, queries, keys, dimension; dimension of values.
WIDE = [
    (96, (1, 2, 1, 40, 70, 80), 80, {"causal": True}),
    (192, (1, 2, 1, 20, 70, 192), 128, {"causal": True, "softcap": 3.0}),
    (192, (1, 1, 1, 20, 40, 136), 192, {"window": (20, 5), "sinks": SINKS[:1]}),
    (256, (1, 2, 1, 20, 40, 256), 256, {"causal": True}),
    (192, (1, 2, 1, 2, 70, 192), 128, {"causal": True}),
    (256, (1, 2, 1, 1, 70, 256), 256, {}),
]


@pytest.mark.parametrize("dims, shape, value_dim, options", WIDE)
@pytest.mark.parametrize("gpu", with_sample((75, 80, 89, 90), {80, 89}))
def test_flash_attention_of_wide_heads(compiled, reference, memory, dims, shape, value_dim, options, gpu):
    """On GPUs with little shared memory and with more of it, whose tiles differ; decoded, and with split keys."""
    library = compiled("flash_attention", capability=code_for(gpu), entry="flash_attention_wide")
    attention = Attention(memory, dims, shape, gpu, value_dim=value_dim, **options)
    leaves = [t.float().requires_grad_() for t in (attention.q, attention.k, attention.v)]
    expected, expected_lse = reference("flash_attention").flash_attention(*leaves, **options, return_lse=True)
    for splits, warps in ((2, 0), (1, 4), (2, 2), (1, 0)):
        if warps and shape[3] > 8:
            continue
        out, lse = attention.forward(library, splits, warps, capability=gpu)
        close(out, expected)
        assert torch.allclose(lse, expected_lse, atol=1e-4)

    grad = attention.random_tensor(*out.shape)
    (expected * grad.float()).sum().backward()
    for deterministic in (False, True):
        grads = attention.backward(library, out, lse, grad, None, deterministic, capability=gpu)
        for name, gradient, leaf in zip("qkv", grads, leaves, strict=True):
            close(gradient, leaf.grad, f"gradient of {name}, {deterministic=}")
