"""Faults in the recipes' CPU sources."""

from tests.worker.mutants import Mutant

_SUM = "Accumulate(a[i]) * Accumulate(b[i]) + Accumulate(c[i])"
_ELEMENT = f"out[i] = static_cast<T>({_SUM});"
_LOOP = "for (int64_t i = begin; i < end; ++i) {"
_SQUARES = "const Sum squares = pairwise_sum<Sum>(0, n, [&](int64_t i) { return x[i] * x[i]; });"
_MARGIN_WRITE = "const_cast<T*>(a)[n] = T(0.0f);\n  torch::stable::parallel_for(0, n, Tuned::grain"


def _elementwise(name: str, old: str, new: str) -> Mutant:
    return Mutant(name, "elementwise", "cpu.cpp", old, new)


def _rms_norm(name: str, old: str, new: str) -> Mutant:
    return Mutant(name, "rms_norm", "cpu.cpp", old, new)


CPU = [
    # Which elements are read and written.
    _elementwise("off_by_one_tail", "i < end; ++i", "i + 1 < end; ++i"),
    _elementwise("unwritten_tail", "i < end; ++i", "i < end - end % 8; ++i"),
    _elementwise("narrow_index", "Accumulate(b[i])", "Accumulate(b[static_cast<uint16_t>(i)])"),
    _elementwise("reads_the_next_element", "Accumulate(c[i])", "Accumulate(c[i + 1])"),
    _elementwise("noncontiguous_ignored", "y = as_contiguous(b)", "y = b"),
    _elementwise(
        "alignment_assumed",
        "torch::stable::parallel_for(0, n, Tuned::grain",
        "a = reinterpret_cast<const T*>(reinterpret_cast<uintptr_t>(a) & ~uintptr_t(15));\n"
        "  torch::stable::parallel_for(0, n, Tuned::grain",
    ),
    _elementwise("writes_past_its_input", "torch::stable::parallel_for(0, n, Tuned::grain", _MARGIN_WRITE),
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
        "      out[i] = static_cast<T>((r < 0 ? -r : r) < Accumulate(1.2e-38) ? Accumulate(0) : r);",
    ),
    _elementwise(
        "nan_becomes_zero", _ELEMENT, f"const Accumulate r = {_SUM};\n      out[i] = static_cast<T>(r == r ? r : 0);"
    ),
    _elementwise(
        "infinity_clamped",
        _ELEMENT,
        f"const Accumulate r = {_SUM};\n"
        "      out[i] = static_cast<T>(r > Accumulate(6e4) && r - r != 0 ? Accumulate(6e4) : r);",
    ),
    _elementwise(
        "sixteen_bit_product",
        "Accumulate(a[i]) * Accumulate(b[i])",
        "Accumulate(int(Accumulate(a[i]) * b[i] * 4096)) / 4096",
    ),
    # As sums by atomics are: another order, another last bit.
    _elementwise(
        "other_bits_each_time",
        _ELEMENT,
        "static int calls = 0;\n      if (i == 0) ++calls;\n"
        f"      const Accumulate r = {_SUM};\n"
        "      out[i] = static_cast<T>(calls % 2 ? r : r * (1 + Accumulate(1.2e-7)));",
    ),
    # Rows and their sums.
    _rms_norm("wrong_stride", "inputs.load(data.input + row * n, n)", "inputs.load(data.input + row * matrix.rows, n)"),
    _rms_norm(
        "float16_accumulation",
        _SQUARES,
        "T sum = T(0.0f);\n"
        "    for (int64_t i = 0; i < n; ++i) sum = static_cast<T>(Sum(sum) + x[i] * x[i]);\n"
        "    const Sum squares = Sum(sum);",
    ),
    _rms_norm(
        "sum_misses_the_last",
        "pairwise_sum<Sum>(0, n, [&](int64_t i) { return x[i] * x[i]",
        "pairwise_sum<Sum>(0, n - n % 2, [&](int64_t i) { return x[i] * x[i]",
    ),
    _rms_norm("tile_overrun", "y[i] = x[i] * scale", "if (i < 1024) y[i] = x[i] * scale"),
    _rms_norm(
        "eps_outside_the_root",
        "1 / std::sqrt(squares / Sum(n) + Sum(eps))",
        "1 / (std::sqrt(squares / Sum(n)) + Sum(eps))",
    ),
    _rms_norm(
        "low_precision_root",
        "const Sum scale = 1 / std::sqrt(squares / Sum(n) + Sum(eps));",
        "const Sum exact = 1 / std::sqrt(squares / Sum(n) + Sum(eps));\n    const Sum scale = exact * (1 + Sum(1e-4));",
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
        "return dy[i] * weight[i] * x[i]; });",
        "return dy[i] * x[i]; });",
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
