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
_SCALE = "rsqrt(group.sum(squares) * inv_n + eps);"

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
    _rms_norm("index_of_32_bits", "x(group, input + row * n,", "x(group, input + int(row) * int(n),"),
    _rms_norm("wrong_stride", "x(group, input + row * n,", "x(group, input + row * (n - n % 2),"),
    _rms_norm("sum_off_by_a_percent", _SCALE, "rsqrt(Sum(1.01) * group.sum(squares) * inv_n + eps);"),
    _rms_norm("sum_of_one_warp", "group.sum(squares)", "warp_sum(squares)"),
    _rms_norm("eps_outside_the_root", _SCALE, "1 / (sqrt(group.sum(squares) * inv_n) + eps);"),
    _rms_norm("low_precision_root", _SCALE, "Sum(1.0001) * rsqrt(group.sum(squares) * inv_n + eps);"),
    _rms_norm("weight_alignment_assumed", "in_vectors<const T>({a.weight, a.n}, a.n) &&", "", "kernel.h"),
    _rms_norm("ragged_rows_ignored", "aligned = in_vectors", "aligned = a.n % 2 == 0 || in_vectors", "kernel.h"),
    _rms_norm("strides_ignored", "input = x.data<T>()", "input = {x.data<T>().data, n}", "cuda.cpp"),
    _rms_norm("peeled_rows_not_weighted", "value * scale * weight;", "value * scale;"),
    _rms_norm(
        "sum_kept_by_no_first_row", "if (valid && group.rank() == 0) {", "if (valid && group.rank() == 0 && row) {"
    ),
    _rms_norm("wrong_stream_of_sums", "context.stream()", "nullptr", "cuda.cpp"),
    _rms_norm("residual_added_twice", "x.add(residual + row * n, sum", "x.add(sum + row * n, sum"),
    # Gradients.
    _gradient("gradient_without_weight", "slopes[access][k] = scaled * factor[k];", "slopes[access][k] = scaled;"),
    _gradient("gradient_lacks_a_factor", "* scale * scale;", "* scale;"),
    _gradient("gradient_of_the_sum_lost", "result += widen(pipeline.access(kGradSum, access));", ""),
    _gradient("first_row_again_and_again", "    pipeline.release();\n", ""),
    _gradient("last_columns_not_fetched", "Group::kStep < accesses) {", "Group::kStep < accesses - 1) {"),
    _gradient("blocks_share_a_sum", "kSharesBlock ? blockIdx.x : group.first()", "kSharesBlock ? 0 : 0"),
    _gradient(
        "last_partial_sum", "  if (partial) {", "  if (partial && (gridDim.x == 1 || blockIdx.x + 1 < gridDim.x)) {"
    ),
    _rms_norm("noncontiguous_gradient", "grad = dy.data<T>()", "grad = {dy.data<T>().data, n}", "cuda.cpp"),
    # A race that shows: nothing else takes as long as the tiles take to come. Hopper has kernels of its own.
    Mutant(
        "cuda_tiles_not_waited_for",
        "flash_attention",
        "sm80/attention_backward_keys.cuh",
        "    cp_async_wait<(Block::kStages > 1 ? Block::kStages - 2 : 0)>();\n    __syncthreads();",
        "   ",
        {"MUTANT_KERNELS_CUDA_TILES_NOT_WAITED_FOR_PATH": "sm80"},
    ),
]
