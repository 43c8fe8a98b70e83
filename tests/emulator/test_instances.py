"""Instantiations of a source are compiled together where they can be, and one by one where they cannot."""

import subprocess

import pytest

from kernelgen.emulator import compiler, instances
from kernelgen.emulator.compile import compile_instances

HEAD = "namespace op {\ntemplate <typename T>\n__global__ void twice(T* x) { x[threadIdx.x] *= 2; }\n\n"
END = "template void run(\n    INSTANCE_T*);\n\n}  // namespace op\n"
BODY = "template <typename T>\nvoid run(T* x) { twice<T><<<1, 32>>>(x); }\n\n"
FLOAT, DOUBLE = ["-DINSTANCE_T=float"], ["-DINSTANCE_T=double"]


def test_the_end_of_a_source_is_repeated_with_its_lines_numbers():
    text = instances.repeated(HEAD + BODY + END, "twice.cu", [FLOAT, DOUBLE])
    assert text.count("template void run(\n    INSTANCE_T*);") == 2
    assert text.count(f'{instances.BEGIN}\n# 8 "twice.cu"\ntemplate void run(') == 2
    assert "#define INSTANCE_T float\n" in text
    assert text.endswith('# 10 "twice.cu"\n\n}  // namespace op\n')


def test_declarations_of_other_objects_instantiations_are_repeated_where_they_are():
    declaration = "// Elsewhere.\nextern template void run(\n    INSTANCE_T);\n\n"
    text = instances.repeated(HEAD + declaration + BODY + END, "twice.cu", [FLOAT, DOUBLE])
    assert text.count("extern template void run(\n    INSTANCE_T);") == 2
    assert text.index("extern template") < text.index("void run(T* x)") < text.rindex(instances.BEGIN)
    assert text.count("void run(T* x)") == 1
    assert instances.checked(text.replace("INSTANCE_T", "float")) is not None


@pytest.mark.parametrize(
    "source",
    [
        HEAD + BODY,  # Nothing to repeat.
        f"using T = INSTANCE_T;\n{HEAD}{BODY}{END}",
        HEAD + BODY + "template <>\nvoid run(INSTANCE_T*) {}\n",
        f"__device__ int runs;\n{HEAD}{BODY}{END}",
    ],
)
def test_a_source_that_does_more_with_an_instance_is_not_repeated(source):
    assert instances.repeated(source, "twice.cu", [FLOAT, DOUBLE]) is None


@pytest.mark.parametrize("repetition", ["int x;", "template void f(int) {}", "template void f(INSTANCE_T);", "int f()"])
def test_what_is_repeated_has_to_be_instantiations(repetition):
    def marked(text: str) -> str:
        return f"{instances.BEGIN}\n{text}\n{instances.END}\n"

    assert instances.checked(marked("template void f(int);") + marked(repetition)) is None
    assert instances.checked(marked('template void f(int);\n# 3 "x"\ntemplate void f(float);')) is not None


def test_a_header_that_mentions_an_instance_keeps_the_objects_apart(tmp_path):
    (tmp_path / "own.cuh").write_text("")
    (tmp_path / "own.cu").write_text(f'#include "own.cuh"\n{HEAD}{BODY}{END}')
    files = [
        {"path": f"{n}.o", "source": "own.cu", "label": n, "is_kernel": True, "flags": [f"-DINSTANCE_T={n}", "-I."]}
        for n in ("float", "double")
    ]
    (joined,) = instances.objects(files, tmp_path, [])
    assert (joined.path, joined.flags, joined.instances) == ("own.cu.o", ["-I."], (FLOAT, DOUBLE))
    (tmp_path / "own.cuh").write_text("constexpr int kBytes = sizeof(INSTANCE_T);\n")
    assert [file.path for file in instances.objects(files, tmp_path, [])] == ["float.o", "double.o"]


@pytest.mark.parametrize("is_joined", [True, False])
def test_an_object_holds_every_instance_and_depends_on_the_source(tmp_path, is_joined):
    source, target = tmp_path / "twice.cu", tmp_path / "twice.cu.o"
    end = END if is_joined else END.replace("}  // namespace", "inline int unused;\n}  // namespace")
    source.write_text(f'#include "own.cuh"\n{HEAD}{BODY}{end}')
    (tmp_path / "own.cuh").write_text("")
    compile_instances(compiler.find(), source, target, [], [FLOAT, DOUBLE])
    names = subprocess.check_output(["nm", "-C", "--defined-only", target], text=True)
    assert "void op::run<float>(float*)" in names
    assert "void op::run<double>(double*)" in names
    rules = (tmp_path / "twice.cu.o.d").read_text()
    assert str(source) in rules
    assert "own.cuh" in rules
    assert {path.name for path in tmp_path.iterdir()} == {"twice.cu", "own.cuh", "twice.cu.o", "twice.cu.o.d"}
