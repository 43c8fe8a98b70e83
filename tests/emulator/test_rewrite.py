"""How launches, shared variables, bounds and inline assembly are rewritten."""

import re

import pytest

from kernelgen.emulator.rewrite import closing_bracket, rewrite, split


def rewritten(text: str) -> str:
    """The text of a preprocessed file, rewritten and joined to one line."""
    result = rewrite(f'# 1 "kernel.cu"\n{text}')
    assert result.count("\n") == text.count("\n") + 1, "lines moved"
    return " ".join(result.split("\n", 1)[1].split()).replace(" ;", ";")


@pytest.mark.parametrize(
    "launch, kernel, arguments",
    [
        ("add<<<1, 32>>>(a, b)", "add", "a, b"),
        ("add<float, 3><<<1, 32>>>(a, f(b, c))", "add<float, 3>", "a, f(b, c)"),
        ("ops::add<Tile<2>, T><<<1, 32>>>()", "ops::add<Tile<2>, T>", ""),
        ("add\n    <<<1,\n       32>>>(a,\n         b)", "add", "a, b"),
    ],
)
def test_a_launch_becomes_a_lambda(launch, kernel, arguments):
    body = f"[&] {{ {kernel}({arguments}); }}"
    configuration = "::emulator::Configuration(1, 32)"
    assert rewritten(f"{launch};") == f'::emulator::launch("{kernel}", nullptr, {configuration}, {body});'


def test_a_kernel_in_a_variable_is_known_by_its_address():
    result = rewritten("const auto kernel = wide ? add<4> : add<1>; kernel<<<n, 32, bytes, stream>>>(a);")
    assert '::emulator::launch("kernel", reinterpret_cast<const void*>(kernel), ' in result


@pytest.mark.parametrize(
    "declared, names",
    [
        ("float sums[2][kWarp + 1]", "sums"),
        ("Barriers<Tile, 3> barriers", "barriers"),
        ("T x[kStep], y[kStep][f(1, 2)]", "x, y"),
    ],
)
def test_shared_variables_become_members(declared, names):
    struct = f"struct Shared0 {{ {declared}; }}; auto& [{names}] = ::emulator::shared<Shared0>();"
    assert rewritten(f"__shared__ {declared};") == struct


def test_dynamic_shared_memory_becomes_an_aligned_pointer():
    aligned = rewritten("extern __shared__ alignas(kSwizzle<2>) unsigned char shared[];")
    assert aligned.startswith("unsigned char* const shared = static_cast<unsigned char*>(")
    assert "dynamic_shared(kSwizzle<2>)" in aligned
    assert "dynamic_shared(16)" in rewritten("extern __shared__ float shared[];")


def test_assembly_becomes_a_program_and_its_operands():
    result = rewritten('asm volatile("a %0, [%1], %2;" " b;" : "+f"(x[i]) : "l"(&map), "n"(N ? 1 : 2) : "memory");')
    assert '::emulator::parse("a %0, [%1], %2;" " b;")' in result
    assert "{::emulator::out(x[i]), ::emulator::in<'l'>(&map), ::emulator::in<'n'>(N ? 1 : 2), {}}" in result


def test_assembly_without_outputs():
    result = rewritten('asm volatile("a %0;" ::"r"(std::max(a, b)) : "memory");')
    assert "{::emulator::in<'r'>(std::max(a, b)), {}}" in result


def test_empty_assembly_goes_away():
    assert rewritten('asm volatile("" : "+r"(x));') == "(void)0;"


def test_bounds_are_checked_where_there_is_a_body():
    kernel = "void __launch_bounds__(f(2), 1)\n    add(const float* a, int n) {\n  a[n];\n}"
    assert rewritten(kernel) == "void add(const float* a, int n) { ::emulator::check_bounds(f(2), 1); a[n]; }"
    assert rewritten("void __launch_bounds__(8) add(int n);") == "void add(int n);"


def test_system_headers_stay_as_they_are():
    system = '# 1 "/usr/include/x.h" 1 3\nasm("nop");\n# 3 "kernel.cu" 2\n'
    assert rewrite(f'# 1 "kernel.cu"\n{system}') == f'# 1 "kernel.cu"\n{system}'


def test_brackets_in_strings_do_not_count():
    text = '("a)", [{1}, 2], "\\")")'
    assert closing_bracket(text, 0) == len(text) - 1
    assert [part.strip() for part in split(text[1:-1], ",")] == ['"a)"', "[{1}, 2]", '"\\")"']
    assert re.fullmatch(r"\s*", split("a,", ",")[1])
