"""How launches, shared variables, bounds and inline assembly are rewritten."""

import re

import pytest

from kernelgen.emulator.rewrite import rewrite
from kernelgen.emulator.source_text import closing_bracket, split


def rewritten(text: str) -> str:
    """The text of a preprocessed file, rewritten and joined to one line."""
    result = rewrite(f'# 1 "kernel.cu"\n{text}')
    assert result.count("\n") == text.count("\n") + 1, "lines moved"
    return " ".join(result.split("\n", 1)[1].split()).replace(" ;", ";")


@pytest.mark.parametrize(
    "launch, kernel, arguments",
    [
        ("add<<<1, 32>>>(a, b)", "add", "a, b"),
        ("add<float, 3><<<1, 32>>>(a, b[c])", "add<float, 3>", "a, b[c]"),
        ("tensors.at(0).template add<float><<<1, 32>>>(a)", "tensors.at(0).template add<float>", "a"),
        ("kernels[wide ? 1 : 0]<<<1, 32>>>(a)", "kernels[wide ? 1 : 0]", "a"),
        ("(wide ? add<1> : add<2>)<<<1, 32>>>(a)", "(wide ? add<1> : add<2>)", "a"),
        ("return ::ops::add<(2 > 1)><<<1, 32>>>(a)", "return ::ops::add<(2 > 1)>", "a"),
        ("ops::add<Tile<2>, T><<<1, 32>>>()", "ops::add<Tile<2>, T>", ""),
        ("add\n    <<<1,\n       32>>>(a,\n         b)", "add", "a, b"),
    ],
)
def test_a_launch_becomes_a_lambda(launch, kernel, arguments):
    before, kernel = ("return ", kernel[7:]) if kernel.startswith("return ") else ("", kernel)
    body = f"[&] {{ {kernel}({arguments}); }}"
    configuration = "::emulator::Configuration(1, 32)"
    assert rewritten(f"{launch};") == f'{before}::emulator::launch("{kernel}", nullptr, {configuration}, {body});'


def test_an_argument_that_does_something_is_evaluated_once():
    result = rewritten("add<<<n, 32>>>(a, next(b), i++, c<2, 3>, {1, 2}, rest...);")
    assert (
        "[&, argument1 = next(b), argument2 = i++] { add(a, argument1, argument2, c<2, 3>, {1, 2}, rest...); }"
        in result
    )


def test_a_configuration_may_hold_any_expression():
    result = rewritten("add<<<dim3{f<1>(n), 2}, (n >> 2), sizeof(Tile<Pair<A<int>>>)>>>(a);")
    assert "::emulator::Configuration(dim3{f<1>(n), 2}, (n >> 2), sizeof(Tile<Pair<A<int>>>))" in result


def test_a_kernel_with_cluster_dimensions_is_launched_in_clusters():
    result = rewritten("void __cluster_dims__(2, 1, 1) add(int* a) { a[0]; } void f() { add<<<4, 32>>>(a); }")
    assert result.startswith("void add(int* a)")
    assert "::emulator::Configuration(4, 32).with_cluster(2, 1, 1)" in result


@pytest.mark.parametrize("cast", ["(void*)", "(const void *)", "reinterpret_cast<const void*>"])
def test_a_cast_does_not_hide_a_kernels_parameters(cast):
    assert rewritten(f"::emulator_launch_cooperative({cast}(add<2>), 1, 32, a);").startswith(
        "::emulator_launch_cooperative((add<2>), 1"
    )


def test_a_kernel_in_a_variable_is_known_by_its_address():
    result = rewritten("const auto kernel = wide ? add<4> : add<1>; kernel<<<n, 32, bytes, stream>>>(a);")
    assert '::emulator::launch("kernel", reinterpret_cast<const void*>(kernel), ' in result


GLOBAL = "__attribute__((flatten))"


@pytest.mark.parametrize(
    "declared, kernel, has_address",
    [
        (f"{GLOBAL} void add(int* a) {{}}", "add", True),
        (f"static {GLOBAL} void __launch_bounds__(f(2), 1) add(int* a);", "ops::add", True),
        (f"template <typename T, int N = 3> {GLOBAL} void add(T* a) {{}}", "add<float>", True),
        (f"template <typename T, Pair<int, 2> N>\nstatic {GLOBAL} void add(T* a) {{}}", "add<T, {1, 2}>", True),
        (f"template <typename T, int N> {GLOBAL} void add(T* a) {{}}", "add<float>", False),
        (f"template <typename... T> {GLOBAL} void add(T... a) {{}}", "add<float>", False),
        (f"template <typename T> requires (sizeof(T) > 2) {GLOBAL} void add(T* a) {{}}", "add", False),
        (f"{GLOBAL} void add(int* a) {{}} {GLOBAL} void add(float* a) {{}}", "add", False),
        (f"template {GLOBAL} void add<float>(float* a);", "add", False),
    ],
)
def test_a_launch_tells_the_address_of_a_kernel_that_has_one(declared, kernel, has_address):
    result = rewritten(f"{declared}\nvoid f() {{ {kernel}<<<1, 32, bytes>>>(a); }}")
    address = f"reinterpret_cast<const void*>({kernel})" if has_address else "nullptr"
    assert f'::emulator::launch("{kernel}", {address}, ' in result


@pytest.mark.parametrize(
    "declared, names, element",
    [
        ("float sums[2][kWarp + 1]", "sums", "sizeof(::std::remove_all_extents_t<decltype(Shared0::sums)>)"),
        ("Barriers<Tile, 3> barriers", "barriers", "sizeof(::std::remove_all_extents_t<decltype(Shared0::barriers)>)"),
        ("T x[kStep], y[kStep][f(1, 2)]", "x, y", "0"),
        (
            "union { A a; B b[2]; } storage",
            "storage",
            "sizeof(::std::remove_all_extents_t<decltype(Shared0::storage)>)",
        ),
        ("alignas(16) float x[4], y", "x, y", "0"),
        (
            "Pair<A, B> table[2] __attribute__((aligned(16)))",
            "table",
            "sizeof(::std::remove_all_extents_t<decltype(Shared0::table)>)",
        ),
    ],
)
def test_shared_variables_become_members(declared, names, element):
    shared = f'::emulator::shared<Shared0>("{names}", {element})'
    struct = f"struct Shared0 {{ {declared}; }}; auto& [{names}] = {shared};"
    assert rewritten(f"void f() {{ __shared__ {declared}; }}") == f"void f() {{ {struct} }}"


@pytest.mark.parametrize("declaration", ["static __shared__ float x[2]", "float __shared__ x[2]"])
def test_the_keyword_may_stand_anywhere(declaration):
    element = "sizeof(::std::remove_all_extents_t<decltype(Shared0::x)>)"
    expected = f'struct Shared0 {{ float x[2]; }}; auto& [x] = ::emulator::shared<Shared0>("x", {element});'
    assert rewritten(f"void f() {{ {declaration}; }}") == f"void f() {{ {expected} }}"


def test_shared_variables_outside_of_functions_become_objects():
    result = rewritten("namespace a { __shared__ float x[2]; extern __shared__ int y[]; }")
    assert 'static const ::emulator::NamespaceShared<Shared0, decltype(Shared0::x)> x{"x"};' in result
    assert "static const ::emulator::DynamicArray<int, 16> y;" in result


def test_dynamic_shared_memory_becomes_an_aligned_pointer():
    def dynamic(declaration: str) -> str:
        return rewritten(f"void f() {{ {declaration}; }}")[len("void f() { ") : -len("; }")]

    aligned = dynamic("extern __shared__ alignas(kSwizzle<2>) unsigned char shared[]")
    assert aligned == "unsigned char* const shared = ::emulator::dynamic_array<unsigned char, kSwizzle<2>>()"
    assert (
        dynamic("extern alignas(32) __shared__ float4 s[]")
        == "float4* const s = ::emulator::dynamic_array<float4, 32>()"
    )
    assert dynamic("extern __shared__ int s[][8]").startswith("::emulator::Element<int[8]>* const s = ")
    assert (
        dynamic("extern __shared__ Tile<A, 2> tile")
        == "Tile<A, 2>& tile = *::emulator::dynamic_array<Tile<A, 2>, 16>()"
    )
    assert "unsigned char, 64>" in dynamic("extern __shared__ unsigned char s[] __attribute__((aligned(64)))")


def test_assembly_becomes_a_program_its_operands_and_their_values():
    result = rewritten('asm volatile("a %0, [%1], %2;" " b;" : "+f"(x[i]) : "l"(&map), "n"(N ? 1 : 2) : "memory");')
    assert '::emulator::Assembly emulator_assembly{"a %0, [%1], %2;" " b;", emulator_operands}' in result
    assert "{::emulator::output<decltype((x[i]))>(), ::emulator::input<'l', decltype((&map))>(), " in result
    assert "{::emulator::out(x[i]), ::emulator::in<'l'>(&map), ::emulator::in<'n'>(N ? 1 : 2), 0}" in result


def test_assembly_without_outputs():
    result = rewritten('asm volatile("a %0;" ::"r"(std::max(a, b)) : "memory");')
    assert "{::emulator::input<'r', decltype((std::max(a, b)))>(), {}}" in result
    assert "{::emulator::in<'r'>(std::max(a, b)), 0}" in result


def test_any_function_may_be_inlined():
    assert rewritten("__noinline__ int f();") == " int f();".strip()


def test_empty_assembly_goes_away():
    assert rewritten('asm volatile("" : "+r"(x));') == "(void)0;"


def test_bounds_are_checked_where_there_is_a_body():
    kernel = "void __launch_bounds__(f(2), 1)\n    add(const float* a, int n) {\n  a[n];\n}"
    assert rewritten(kernel) == "void add(const float* a, int n) { ::emulator::check_bounds(f(2), 1); a[n]; }"
    assert rewritten("void __launch_bounds__(8) add(int n);") == "void add(int n);"


def test_system_headers_stay_as_they_are():
    system = '# 1 "/usr/include/x.h" 1 3\nasm("nop");\n# 3 "kernel.cu" 2\n'
    assert rewrite(f'# 1 "kernel.cu"\n{system}') == f'# 1 "kernel.cu"\n{system}'


def test_a_raw_string_may_hold_assembly():
    result = rewritten('asm volatile(R"({ a %0; // note\n b; })" : "=r"(x));')
    assert '::emulator::Assembly emulator_assembly{"{ a %0; // note\\n b; }", emulator_operands}' in result


def test_a_toolkits_headers_are_rewritten():
    header = (
        '# 1 "/opt/cuda/include/cuda_runtime_api.h" 1 3\n# 1 "/opt/cuda/include/mma.h" 1 3\nvoid f() { asm("a;"); }\n'
    )
    assert "emulator::execute(" in rewrite(f'# 1 "kernel.cu"\n{header}# 3 "kernel.cu" 2\n')


def test_what_strings_hold_is_no_launch():
    assert rewritten('const char* text = "a<<<1, 2>>>(b)";') == 'const char* text = "a<<<1, 2>>>(b)";'


def test_brackets_in_strings_do_not_count():
    text = '("a)", [{1}, 2], "\\")")'
    assert closing_bracket(text, 0) == len(text) - 1
    assert [part.strip() for part in split(text[1:-1], ",")] == ['"a)"', "[{1}, 2]", '"\\")"']
    assert re.fullmatch(r"\s*", split("a,", ",")[1])


def test_a_macro_of_the_system_may_stand_in_a_launch():
    # As g++ spells NULL and cudaStreamPerThread.
    text = 'add<<<1, 32, 0,\n# 3 "kernel.cu" 3 4\n  __null\n# 3 "kernel.cu"\n  >>>(a);\n'
    result = rewrite(f'# 1 "/usr/include/string.h" 1 3\n# 1 "kernel.cu"\n{text}')
    assert "::emulator::Configuration(1, 32, 0, __null), [&] { add(a); })" in result
