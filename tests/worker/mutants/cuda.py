"""Faults in the recipes' CUDA sources."""

from tests.worker.mutants import Mutant


def _elementwise(name: str, old: str, new: str, file: str = "kernel.cu") -> Mutant:
    return Mutant(f"cuda_{name}", "elementwise", file, old, new)


def _rms_norm(name: str, old: str, new: str, file: str = "forward.cu") -> Mutant:
    return Mutant(f"cuda_{name}", "rms_norm", file, old, new)


def _gradient(name: str, old: str, new: str) -> Mutant:
    return _rms_norm(name, old, new, "backward.cu")


_FMA = "return static_cast<T>(fma(widen(a), widen(b), widen(c)));"
_RESULT = "const auto r = fma(widen(a), widen(b), widen(c));\n  return static_cast<T>("
_SCALE = "rsqrt(squares * inv_n + eps);"

CUDA = [
    # Which elements are read and written.
    _elementwise("off_by_one_tail", "thread; i < n; i += threads", "thread; i + 1 < n; i += threads"),
    _elementwise("unwritten_tail", "thread; i < n; i += threads", "thread; i < groups * N; i += threads"),
    _elementwise("last_group", "(V - 1) * threads < groups", "(V - 1) * threads + 1 < groups"),
    _elementwise(
        "narrow_index", "out[i] = multiply_add(a[i], b[i], c[i]);", "out[i] = multiply_add(a[i], b[uint16_t(i)], c[i]);"
    ),
    _elementwise("alignment_assumed", "aligned = vector_aligned(a, b, c, out)", "aligned = true"),
    _elementwise("noncontiguous_ignored", "y = as_contiguous(b)", "y = b", "cuda.cpp"),
    _elementwise(
        "overwrites_its_input", "const Tensor out = empty_like_contiguous(x);", "const Tensor out = x;", "cuda.cpp"
    ),
    _elementwise("wrong_stream", "context.stream()", "nullptr", "cuda.cpp"),
    # What is computed.
    _elementwise("denormals_flushed", _FMA, f"{_RESULT}fabs(r) < 1.2e-38 ? decltype(r)(0) : r);"),
    _elementwise("nan_becomes_zero", _FMA, f"{_RESULT}r == r ? r : decltype(r)(0));"),
    _elementwise("infinity_clamped", _FMA, f"{_RESULT}isinf(r) && r > 0 ? decltype(r)(6e4) : r);"),
    _elementwise("float32_accumulation_of_float64", _FMA, "return static_cast<T>(fmaf(float(a), float(b), float(c)));"),
    _elementwise(
        "other_bits_each_time",
        _FMA,
        "const auto r = fma(widen(a), widen(b), widen(c));\n"
        "  return static_cast<T>(clock64() % 2 ? r : r * decltype(r)(1.0000002));",
    ),
    # Rows and their sums.
    _rms_norm("wrong_stride", "{a.output, a.n}", "{a.output, a.n - a.n % 2}"),
    _rms_norm("ragged_rows_ignored", "tensors, a.rows, a.n, [&]", "tensors, a.rows, a.n - a.n % 8, [&]"),
    _rms_norm("sum_off_by_a_percent", _SCALE, "rsqrt(Sum(1.01) * squares * inv_n + eps);"),
    _rms_norm("eps_outside_the_root", _SCALE, "1 / (sqrt(squares * inv_n) + eps);"),
    _rms_norm("low_precision_root", _SCALE, "Sum(1.0001) * rsqrt(squares * inv_n + eps);"),
    _rms_norm("sum_kept_by_no_first_block", "x.write_numbers(rstd", "if (blockIdx.x > 0) x.write_numbers(rstd"),
    _rms_norm("wrong_stream_of_sums", "context.stream()", "nullptr", "cuda.cpp"),
    _rms_norm("residual_added_to_itself", "a.input, a.res", "a.residual.data ? a.residual : a.input, a.res"),
    _rms_norm(
        "strides_ignored", "arguments.input = x.data<T>();", "arguments.input = {x.data<T>().data, n};", "cuda.cpp"
    ),
    # Gradients.
    _gradient("gradient_without_weight", "slope = scaled * weight;", "slope = scaled;"),
    _gradient("gradient_lacks_a_factor", "* row.rstd * row.rstd", "* row.rstd"),
    _gradient("gradient_of_the_sum_lost", "  tensors.grad_sum = a.grad_sum;\n", ""),
    _gradient("first_row_again_and_again", "return {rstd[row]}", "return {rstd[0]}"),
    _gradient("gradient_of_the_weight_lacks_a_factor", "{scaled * x}", "{dy * x}"),
    _gradient("last_row_left_out", "tensors.rows = a.rows", "tensors.rows = a.rows - (a.rows > 1)"),
    _rms_norm(
        "noncontiguous_gradient",
        "arguments.grad = dy.data<T>();",
        "arguments.grad = {dy.data<T>().data, n};",
        "cuda.cpp",
    ),
    # A race that shows: nothing else takes as long as the tiles take to come.
    Mutant(
        "cuda_tiles_not_waited_for",
        "flash_attention",
        "sm80/backward_keys.cu",
        "    cp_async_wait<Block::kStages - 2>();\n    __syncthreads();",
        "   ",
    ),
]
