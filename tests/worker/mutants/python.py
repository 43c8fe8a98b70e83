"""Faults in an op's Python, the same on every device."""

from tests.worker.mutants import Mutant


def _init(name: str, recipe: str, old: str, new: str) -> Mutant:
    return Mutant(name, recipe, "__init__.py", old, new)


PYTHON = [
    # Results kept by the inputs' addresses: right until a buffer is used again.
    _init(
        "stale_cached_output",
        "elementwise",
        "    return _operators.stale_cached_output(a, b, c)",
        "    key = (a.data_ptr(), b.data_ptr(), c.data_ptr(), a.shape, a.dtype)\n"
        "    if torch.is_grad_enabled():\n"
        "        return _operators.stale_cached_output(a, b, c)\n"
        "    if key not in _results:\n"
        "        _results[key] = _operators.stale_cached_output(a, b, c)\n"
        "    return _results[key]\n\n\n_results = {}",
    ),
    _init("wrong_gradient_term", "elementwise", "return grad * b if needs_a", "return grad * a if needs_a"),
    _init("missing_gradient", "elementwise", "grad if needs_c else None", "None"),
    _init("gradient_of_the_wrong_sign", "elementwise", "grad * a if needs_b", "-grad * a if needs_b"),
    # What a tensor that is given twice would be: one argument, not two.
    _init(
        "inputs_taken_for_distinct",
        "elementwise",
        "    return _operators.inputs_taken_for_distinct(a, b, c)",
        "    by_address = {t.data_ptr(): t for t in (a, b, c)} if a.numel() else {}\n"
        "    first, *rest = [*by_address.values()] or [a]\n"
        "    b, c = (rest or [b])[0], (rest or [c])[-1] if len(rest) == 2 else c * 0\n"
        "    return _operators.inputs_taken_for_distinct(first, b, c)",
    ),
    _init(
        "eps_not_passed",
        "rms_norm",
        "_operators.eps_not_passed(input, weight, eps, residual)\n    return",
        "_operators.eps_not_passed(input, weight, 1e-6, residual)\n    return",
    ),
    # A tensor of the wrong dtype comes out.
    _init(
        "widened_output",
        "rms_norm",
        "return output if residual is None",
        "return output.to(_library.sum_dtype(input)) if residual is None",
    ),
]

# These take their process with them, or never end.
FATAL = [
    _init(
        "crashes_when_empty",
        "elementwise",
        "    return _operators",
        "    if a.numel() == 0:\n        __import__('ctypes').string_at(0)\n    return _operators",
    ),
    _init(
        "hangs_on_one_element",
        "elementwise",
        "    return _operators",
        "    while a.numel() == 1:\n        pass\n    return _operators",
    ),
]
