"""Faults in the recipes' CPU sources."""

from tests.lab.mutants import Mutant

_SUM = "Accumulate(a) * Accumulate(b) + Accumulate(c)"
_ELEMENT = f"return static_cast<T>({_SUM});"
_STORE = "out[i] = multiply_add(a[i], b[i], c[i]);"
_PARALLEL = "torch::stable::parallel_for(0, n, Tuned::grain"
_LOOP = "for (int64_t i = begin; i < end; ++i) {"
_SQUARES = "const Sum squares = pairwise_sum<Sum>(0, matrix.n, [&](int64_t i) { return Sum(x[i]) * Sum(x[i]); });"
_MARGIN_WRITE = "const_cast<T*>(a)[n] = T(0.0f);\n  " + _PARALLEL


def _elementwise(name: str, old: str, new: str) -> Mutant:
    return Mutant(name, "elementwise", "cpu.cpp", old, new)


def _rms_norm(name: str, old: str, new: str) -> Mutant:
    return Mutant(name, "rms_norm", "cpu.cpp", old, new)


CPU = [
    # Which elements are read and written.
    _elementwise("off_by_one_tail", "i < end; ++i", "i + 1 < end; ++i"),
    _elementwise("unwritten_tail", "i < end; ++i", "i < end - end % 8; ++i"),
    _elementwise("narrow_index", _STORE, _STORE.replace("b[i]", "b[static_cast<uint16_t>(i)]")),
    _elementwise("reads_the_next_element", _STORE, _STORE.replace("c[i]", "c[i + 1]")),
    _elementwise("noncontiguous_ignored", "y = as_contiguous(b)", "y = b"),
    _elementwise(
        "alignment_assumed",
        _PARALLEL,
        f"a = reinterpret_cast<const T*>(reinterpret_cast<uintptr_t>(a) & ~uintptr_t(15));\n  {_PARALLEL}",
    ),
    _elementwise("writes_past_its_input", _PARALLEL, _MARGIN_WRITE),
    _elementwise("overwrites_its_input", "const Tensor out = empty_like_contiguous(x);", "const Tensor out = x;"),
    # What is computed.
    _elementwise(
        "float32_accumulation_of_float64",
        "using Accumulate = std::conditional_t<std::is_same_v<T, double>, double, float>;",
        "using Accumulate = float;",
    ),
    _elementwise(
        "denormals_flushed",
        _ELEMENT,
        f"const Accumulate r = {_SUM};\n"
        "  return static_cast<T>((r < 0 ? -r : r) < Accumulate(1.2e-38) ? Accumulate(0) : r);",
    ),
    _elementwise(
        "nan_becomes_zero", _ELEMENT, f"const Accumulate r = {_SUM};\n  return static_cast<T>(r == r ? r : 0);"
    ),
    _elementwise(
        "infinity_clamped",
        _ELEMENT,
        f"const Accumulate r = {_SUM};\n"
        "  return static_cast<T>(r > Accumulate(6e4) && r - r != 0 ? Accumulate(6e4) : r);",
    ),
    _elementwise(
        "sixteen_bit_product",
        "Accumulate(a) * Accumulate(b)",
        "Accumulate(int(Accumulate(a) * b * 4096)) / 4096",
    ),
    # As sums by atomics are: another order, another last bit.
    _elementwise(
        "other_bits_each_time",
        _STORE,
        "static int calls = 0;\n      if (i == 0) ++calls;\n      const T r = multiply_add(a[i], b[i], c[i]);\n"
        "      out[i] = calls % 2 ? r : static_cast<T>(double(r) * (1 + 1.2e-7));",
    ),
    # Rows and their sums.
    _rms_norm(
        "wrong_stride", "const T* x = data.input + row * matrix.n;", "const T* x = data.input + row * matrix.rows;"
    ),
    _rms_norm(
        "float16_accumulation",
        _SQUARES,
        "T sum = T(0.0f);\n"
        "    for (int64_t i = 0; i < matrix.n; ++i) sum = static_cast<T>(Sum(sum) + Sum(x[i]) * Sum(x[i]));\n"
        "    const Sum squares = Sum(sum);",
    ),
    _rms_norm(
        "sum_misses_the_last",
        "pairwise_sum<Sum>(0, matrix.n, [&](int64_t i) { return Sum(x[i]) * Sum(x[i])",
        "pairwise_sum<Sum>(0, matrix.n - matrix.n % 2, [&](int64_t i) { return Sum(x[i]) * Sum(x[i])",
    ),
    _rms_norm("tile_overrun", "output[row * matrix.n + i] =", "if (i < 1024) output[row * matrix.n + i] ="),
    _rms_norm(
        "eps_outside_the_root",
        "1 / std::sqrt(squares / Sum(matrix.n) + Sum(eps))",
        "1 / (std::sqrt(squares / Sum(matrix.n)) + Sum(eps))",
    ),
    _rms_norm(
        "low_precision_root",
        "const Sum scale = 1 / std::sqrt(squares / Sum(matrix.n) + Sum(eps));",
        "const Sum exact = 1 / std::sqrt(squares / Sum(matrix.n) + Sum(eps));\n"
        "    const Sum scale = exact * (1 + Sum(1e-4));",
    ),
    _rms_norm(
        "noncontiguous_weight",
        "const std::optional<Tensor> w = as_contiguous(weight),",
        "const std::optional<Tensor> w = weight,",
    ),
    _rms_norm("sum_kept_for_no_first_row", "rstd[row] = scale;", "if (row > 0) rstd[row] = scale;"),
    _rms_norm("residual_lost", "added ? sum : x, w", "x, w"),
    # Gradients.
    _rms_norm("noncontiguous_gradient", "dy = as_contiguous(grad)", "dy = grad"),
    _rms_norm(
        "gradient_without_weight",
        "return Sum(dy[i]) * data.factor(i) * Sum(x[i]); });",
        "return Sum(dy[i]) * Sum(x[i]); });",
    ),
    _rms_norm("gradient_lacks_a_factor", "* scale * scale;", "* scale;"),
    _rms_norm("uninitialised_sums", "std::fill(sums, sums + matrix.n, Sum(0));", ""),
    _rms_norm("blocks_share_a_sum", "Sum* sums = partial + block * matrix.n;", "Sum* sums = partial;"),
    _rms_norm(
        "last_row_of_a_block",
        "row < std::min(matrix.rows, (block + 1) * kBlock)",
        "row < std::min(matrix.rows, (block + 1) * kBlock - 1)",
    ),
    _rms_norm(
        "last_block_of_rows",
        "pairwise_sum<Sum>(0, blocks.rows, term)",
        "pairwise_sum<Sum>(0, blocks.rows - (blocks.rows > 1), term)",
    ),
]
