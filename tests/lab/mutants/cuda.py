"""Faults in the recipes' CUDA sources."""

from tests.lab.mutants import Mutant


def _elementwise(name: str, old: str, new: str, file: str = "kernel.cu") -> Mutant:
    return Mutant(f"cuda_{name}", "elementwise", file, old, new)


def _rms_norm(name: str, old: str, new: str, file: str = "kernel.cu") -> Mutant:
    return Mutant(f"cuda_{name}", "rms_norm", file, old, new)


_FMA = "return static_cast<T>(fma(widen(a), widen(b), widen(c)));"
_RESULT = "const auto r = fma(widen(a), widen(b), widen(c));\n  return static_cast<T>("
_SCALE = "const Sum scale = rsqrt(block_sum(squares) / Sum(n) + eps);"

CUDA = [
    # Which elements are read and written.
    _elementwise("off_by_one_tail", "thread; i < n; i += threads", "thread; i + 1 < n; i += threads"),
    _elementwise("unwritten_tail", "thread; i < n; i += threads", "thread; i < groups * N; i += threads"),
    _elementwise("last_group", "group + (V - 1) * threads < groups;", "group + (V - 1) * threads + 1 < groups;"),
    _elementwise(
        "narrow_index", "out[i] = multiply_add(a[i], b[i], c[i]);", "out[i] = multiply_add(a[i], b[uint16_t(i)], c[i]);"
    ),
    _elementwise("alignment_assumed", "vector_aligned(a, b, c, out);", "true;"),
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
    _rms_norm("index_of_32_bits", "const T* x = input + row * n;", "const T* x = input + int(row) * int(n);"),
    _rms_norm("wrong_stride", "const T* x = input + row * n;", "const T* x = input + row * (n - n % 2);"),
    _rms_norm(
        "sum_off_by_a_percent",
        "        squares += widen(values[k]) * widen(values[k]);\n      }\n    }",
        "        squares += widen(values[k]) * widen(values[k]);\n      }\n    }\n    squares *= Sum(1.01);",
    ),
    _rms_norm("sum_of_one_warp", "block_sum(squares)", "warp_sum(squares)"),
    _rms_norm("eps_outside_the_root", _SCALE, "const Sum scale = 1 / (sqrt(block_sum(squares) / Sum(n)) + eps);"),
    _rms_norm(
        "low_precision_root", _SCALE, "const Sum scale = Sum(1.0001) * rsqrt(block_sum(squares) / Sum(n) + eps);"
    ),
    _rms_norm(
        "weight_alignment_assumed", "rows_aligned<T>(n, input, weight, output)", "rows_aligned<T>(n, input, output)"
    ),
    _rms_norm("ragged_rows_ignored", "return n % kVectorLength<T> == 0 && vector_aligned", "return vector_aligned"),
    _rms_norm("sum_kept_by_no_first_row", "if (threadIdx.x == 0) {", "if (threadIdx.x == 0 && row > 0) {"),
    _rms_norm("wrong_stream_of_sums", "context.stream()", "nullptr", "cuda.cpp"),
    # Gradients.
    _rms_norm("gradient_without_weight", "products += widen(grads[k]) * factors[k] *", "products += widen(grads[k]) *"),
    _rms_norm("gradient_lacks_a_factor", "* scale * scale;", "* scale;"),
    _rms_norm(
        "missing_barrier",
        "sums[threadIdx.y][threadIdx.x] = sum;\n  __syncthreads();",
        # The first warp would often be last by luck.
        "if (threadIdx.y > 0) __nanosleep(20000);\n  sums[threadIdx.y][threadIdx.x] = sum;",
    ),
    _rms_norm("last_lane", "lane < kLanes; ++lane", "lane < kLanes - 1; ++lane"),
    _rms_norm("rows_counted_twice", "row += gridDim.y * kLanes", "row += kLanes"),
    _rms_norm("last_partial_sum", "grad_weight, int64_t(sums), n)", "grad_weight, int64_t(sums) - (sums > 1), n)"),
    _rms_norm("noncontiguous_gradient", "dy = as_contiguous(grad)", "dy = grad", "cuda.cpp"),
]
