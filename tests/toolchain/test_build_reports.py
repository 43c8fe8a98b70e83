"""`kernelgen build --timings` and `--resources`: from what Ninja, nvcc and ptxas wrote."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from kernelgen.toolchain import resources, timings
from kernelgen.toolchain.build import Outcome

OBJECTS = {
    "build/release/op/kernel.cu.float16.90a.o": "src/demo/ops/op/kernel.cu (float16)",
    "build/release/op/cpu.cpp.o": "src/demo/ops/op/cpu.cpp",
}
LIBRARIES = ["src/demo/_cpu.so", "src/demo/_cuda.so"]

# The library of the CPU was linked by an earlier build, whose clock was another.
LOG = """# ninja log v7
0\t900\t1\tbuild/release/op/cpu.cpp.o\taa
0\t7000\t1\tsrc/demo/_cpu.so\tbb
0\t2000\t2\tbuild/release/op/kernel.cu.float16.90a.o\tcc
5\t1005\t2\tbuild/release/op/cpu.cpp.o\taa
2000\t2250\t2\tsrc/demo/_cuda.so\tdd
"""

NVCC_TIMES = """source file name , phase name , phase input files , phase output file , arch , tool, metric , unit
kernel.cu , g++ (preprocessing 4) , a  , b ,  , nvcc , 127.0 , ms
kernel.cu , cudafe++ , a  , b , compute_90a , nvcc , 370.0 , ms
kernel.cu , g++ (preprocessing 1) , a  , b , compute_90a , nvcc , 140.0 , ms
kernel.cu , cicc ,  a  , b , compute_90a , nvcc , 325.0 , ms
kernel.cu , ptxas , a  , b , sm_90a , nvcc , 89.0 , ms
"""

UNNAMED = "_GLOBAL__N__8dbf2efe_9_kernel_cu_96fba6df_24137"
PTXAS = f"""ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN4demo{len(UNNAMED)}{UNNAMED}4spinILi4EfEEvPT0_' for 'sm_90a'
ptxas info    : Function properties for _ZN4demo{len(UNNAMED)}{UNNAMED}4spinILi4EfEEvPT0_
    16 bytes stack frame, 24 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 15.692 ms
ptxas info    : Compiling entry function 'plain' for 'sm_80'
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 360 bytes cmem[0]
"""


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "build/release/op"
    folder.mkdir(parents=True)
    (tmp_path / "build/release/.ninja_log").write_text(LOG)
    (folder / "kernel.cu.float16.90a.o.csv").write_text(NVCC_TIMES)
    (folder / "kernel.cu.float16.90a.o.txt").write_text(PTXAS)
    return tmp_path


def outcome(*built: str) -> Outcome:
    configuration = {"package": "demo", "architectures": ["9.0a"], "objects": OBJECTS, "libraries": LIBRARIES}
    return Outcome("release", configuration, list(built), 2.25)


def test_timings_are_of_this_build_and_show_what_nvcc_did(root):
    steps = timings.read(root, outcome(*OBJECTS, "src/demo/_cuda.so"))
    assert [(Path(step.name).name, step.kind, step.seconds) for step in steps] == [
        ("kernel.cu (float16)", "nvcc", 2.0),
        ("cpu.cpp", "c++", pytest.approx(1.0)),
        ("_cuda.so", "link", 0.25),
    ]
    phases = {"cudafe++": 0.37, "cicc 90a": 0.325, "g++ preprocessing": 0.267, "ptxas 90a": 0.089}
    assert steps[0].phases == phases
    lines = timings.table(steps).splitlines()
    assert lines[0].startswith("    2.00 s  62%  src/demo/ops/op/kernel.cu (float16)  cudafe++ 0.37 · cicc 90a 0.3")
    assert lines[-1] == "    3.25 s in 3 steps"


def test_with_nothing_built_the_last_time_of_each_is_shown(root):
    assert [step.seconds for step in timings.read(root, outcome())] == [7.0, 2.0, pytest.approx(1.0), 0.25]


def test_the_picture_has_a_row_for_each_job(root):
    picture = timings.draw(root / "build", timings.read(root, outcome(*OBJECTS, "src/demo/_cuda.so")))
    svg = ElementTree.parse(picture).getroot()
    bars = svg.findall(".//{*}g/{*}rect")
    assert sorted(bar.get("y") for bar in bars) == ["30", "30", "56"]
    assert "src/demo/ops/op/kernel.cu (float16): 2.00 s" in svg.find(".//{*}title").text


def test_resources_of_each_kernel(root):
    spin, plain = resources.read(root, outcome())
    assert (spin.name, spin.architecture) == ("demo::spin<4, float>", "9.0a")
    assert (spin.registers, spin.shared, spin.stack) == (168, 1024, 16)
    assert (spin.spill_stores, spin.spill_loads) == (24, 8)
    assert (plain.name, plain.architecture, plain.registers, plain.shared) == ("plain", "8.0", 8, 0)
    table = resources.table([plain, spin]).splitlines()
    assert table[0].split() == ["kernel", "for", "registers", "shared", "stack", "spilled"]
    assert table[2].split() == ["plain", "8.0", "8", "0", "0", "-"]
    assert table[3].split()[-5:] == ["9.0a", "168", "1024", "16", "24+8"]


def test_without_kernels_a_line_says_so():
    assert resources.table([]) == "no kernels: nothing was compiled for a GPU"
