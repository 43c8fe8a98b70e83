"""What a project's build_tools decide: architectures, files for one architecture, jobs, flags, tools."""

import errno
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from build_tools import architectures, environment, instantiations, machine, ninja, objects, sources, toolkit
from build_tools.messages import BuildError, MachineError, sentence
from build_tools.ops import find_ops
from build_tools.request import whole_project
from build_tools.toolkit import Toolkit, Torch
from build_tools.variant import RELEASE

from tests.stamped.conftest import stamp
from tests.toolchain.conftest import PINS, script

# The architectures that `nvcc --help` of CUDA 13.0 lists.
NUMBERS = "75 80 86 87 88 89 90 90a 100 100a 100f 103 103a 103f 110 110a 110f 120 120a 120f 121 121a 121f"

pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return stamp(tmp_path_factory.mktemp("stamped") / "demo", ops=[{"name": "elementwise", "recipe": "elementwise"}])


@pytest.fixture
def no_gpu(monkeypatch) -> None:
    monkeypatch.setattr(architectures, "present_architectures", lambda known: [])


@pytest.fixture
def nvcc13(tmp_path) -> Toolkit:
    """A toolkit whose nvcc only says what it can compile for."""
    allowed = ",".join(f"'sm_{number}'" for number in NUMBERS.split())
    script(tmp_path / "bin" / "nvcc", f'echo "Allowed values for this option: {allowed}"')
    return Toolkit(tmp_path, (13, 0), tmp_path / "include")


def chosen_for(
    toolkit: Toolkit | None, pinned: str = "native", portable: str = "8.0;9.0+PTX"
) -> tuple[list[str], list[str]]:
    """The architectures of a build, and its notes."""
    notes: list[str] = []
    project = replace(PINS, cuda_architectures=pinned, portable_architectures=portable)
    return architectures.choose_architectures(project, toolkit, notes.append), notes


def test_nvccs_help_is_understood(nvcc13):
    known = architectures.known_architectures(nvcc13)
    assert [capability.replace(".", "") for capability in known] == NUMBERS.split()
    assert known[:8] == ["7.5", "8.0", "8.6", "8.7", "8.8", "8.9", "9.0", "9.0a"]
    assert known[-3:] == ["12.1", "12.1a", "12.1f"]


@pytest.mark.parametrize(
    ("arch_list", "chosen"),
    [
        ("9.0a", "9.0a"),
        ("8.0;9.0a", "8.0 9.0a"),
        ("8.0, 9.0a", "8.0 9.0a"),
        ("8.0 9.0a", "8.0 9.0a"),
        (";8.0;;9.0;", "8.0 9.0"),
        ("9.0+PTX", "9.0+PTX"),
        ("9.0a+ptx", "9.0a+PTX"),
        ("90", "9.0"),
        ("sm_90a", "9.0a"),
        ("SM_90A", "9.0a"),
        ("compute_90", "9.0"),
        ("100f;10.3a", "10.0f 10.3a"),
        ("12.0f", "12.0f"),
        ("Hopper", "9.0a"),
        ("ampere+PTX", "8.0 8.6+PTX"),
        ("Turing;Ada", "7.5 8.9"),
        ("Blackwell", "10.0a 10.3a 12.0a 12.1a"),
        ("all-major", "7.5 8.0 9.0 10.0 11.0 12.0+PTX"),
        ("all", "7.5 8.0 8.6 8.7 8.8 8.9 9.0 10.0 10.3 11.0 12.0 12.1+PTX"),
        ("8.0;Ampere", "8.0 8.6"),
        ("native", "8.0 9.0+PTX"),
        ("native;9.0a", "8.0 9.0+PTX 9.0a"),
    ],
)
def test_architectures_in_every_spelling(no_gpu, nvcc13, monkeypatch, arch_list, chosen):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", arch_list)
    assert chosen_for(nvcc13)[0] == chosen.split()


def test_the_environment_comes_before_the_pin_and_the_pin_before_the_gpu(nvcc13, monkeypatch):
    monkeypatch.setattr(architectures, "present_architectures", lambda known: ["8.9"])
    assert chosen_for(nvcc13) == (["8.9"], [])
    assert chosen_for(nvcc13, pinned="8.0") == (["8.0"], [])
    assert chosen_for(nvcc13, pinned=" 8.0, 9.0;") == (["8.0", "9.0"], [])
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    assert chosen_for(nvcc13, pinned="8.0") == (["9.0"], [])


def test_with_no_gpu_and_no_pin_a_note_says_what_is_taken(no_gpu, nvcc13):
    note = "no GPU here: compiling for 8.0;9.0+PTX (set TORCH_CUDA_ARCH_LIST to choose)."
    assert chosen_for(nvcc13) == (["8.0", "9.0+PTX"], [note])
    assert chosen_for(nvcc13, portable="8.0, 9.0+PTX;")[0] == ["8.0", "9.0+PTX"]
    for portable in ("native", ""):
        with pytest.raises(BuildError, match=f"PORTABLE_ARCHITECTURES in setup.py is '{portable}', which names no GPU"):
            chosen_for(nvcc13, portable=portable)


def test_a_gpu_is_compiled_for_with_all_that_it_can_do(nvcc13, monkeypatch, tmp_path):
    smi = script(tmp_path / "bin" / "nvidia-smi", r"printf '9.0\n8.6\n9.0\n'")
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    assert chosen_for(nvcc13)[0] == ["8.6", "9.0a"]
    assert chosen_for(None)[0] == ["8.6", "9.0"]


@pytest.mark.parametrize(
    ("arch_list", "sentence"),
    [
        ("gopher", "'gopher' is no CUDA architecture; write compute capabilities such as"),
        ("9", "'9' is no CUDA architecture"),
        ("8.0a", r"nvcc 13.0 cannot compile for 8.0a; it can for 7.5, 8.0, .*12.1f. Choose with TORCH_CUDA_ARCH_LIST"),
        ("Volta", "nvcc 13.0 cannot compile for 7.0; it can for"),
        ("9.9+PTX", r"nvcc 13.0 cannot compile for 9.9\+PTX; it can for"),
    ],
)
def test_what_is_no_architecture_is_refused(nvcc13, monkeypatch, arch_list, sentence):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", arch_list)
    with pytest.raises(BuildError, match=sentence):
        chosen_for(nvcc13)


@pytest.mark.parametrize(
    ("name", "chosen", "compiled"),
    [
        ("kernel.cu", "8.0 9.0a", "8.0 9.0a"),
        ("kernel.sm_90a.cu", "8.0 9.0a", "9.0a"),
        ("kernel.sm_90a.cu", "8.0 9.0+PTX", "9.0a"),
        ("kernel.sm_90a.cu", "8.0 10.0a", ""),
        ("kernel.sm_80.cu", "8.0 8.6 9.0", "8.0"),
        ("kernel.sm_80+.cu", "7.5 8.0 8.6+PTX 9.0a", "8.0 8.6+PTX 9.0a"),
        ("kernel.sm_80+.cu", "7.5", ""),
        ("kernel.sm_100f.cu", "10.3a", "10.0f"),
        ("kernel.sm_100f.cu", "11.0 9.0a", ""),
        ("kernel.sm_100a.cu", "10.0f 10.3", "10.0a"),
        ("sm80/kernel.cu", "7.5 8.0 8.6+PTX 9.0a", "8.0 8.6+PTX 9.0a"),
        ("sm80/kernel.cu", "7.5", ""),
        ("sm90/kernel.cu", "8.0 9.0", "9.0a"),
        ("sm90/kernel.cu", "8.0 10.0a", ""),
    ],
)
def test_a_file_is_compiled_for_what_its_name_or_folder_says(name, chosen, compiled):
    assert sources.compiled_for(Path(name), chosen.split()) == compiled.split()


def test_a_line_of_a_file_goes_before_its_folder(tmp_path):
    kernel = tmp_path / "sm80" / "kernel.cu"
    kernel.parent.mkdir()
    kernel.write_text("// architectures: 7.5+\n")
    assert sources.compiled_for(kernel, ["7.5", "8.0", "9.0a"]) == ["7.5", "8.0", "9.0a"]
    assert sources.macros(tmp_path, ["7.5"]) == ["-DHAS_SM_75=1"]
    kernel.write_text("// architectures: Turing\n")
    with pytest.raises(BuildError, match=r"'// architectures: Turing' says no architecture.*write it as in 7.5\+"):
        sources.compiled_for(kernel, ["7.5"])


@pytest.mark.parametrize(
    ("line", "instances"),
    [
        ("", [{}]),
        ("// instantiate: T = float16", [{"T": "float16"}]),
        (
            "// instantiate: T = float16, bfloat16; D = 64, 128",
            [{"T": t, "D": d} for t in ("float16", "bfloat16") for d in ("64", "128")],
        ),
    ],
)
def test_a_file_is_compiled_for_each_combination_that_it_names(tmp_path, line, instances):
    (tmp_path / "kernel.cu").write_text(f"// A kernel.\n\n{line}\n")
    assert instantiations.instantiations(tmp_path / "kernel.cu") == instances


def test_instantiations_that_mean_nothing_are_refused(tmp_path):
    (tmp_path / "kernel.cu").write_text("// instantiate: float16, bfloat16\n")
    with pytest.raises(BuildError, match=r"is no list of instantiations; write one as in '// instantiate: T = "):
        instantiations.instantiations(tmp_path / "kernel.cu")


def test_a_name_that_means_nothing_is_refused():
    with pytest.raises(BuildError, match=r"kernel.sm_hopper.cu names no architecture; such names are x.sm_90a"):
        sources.compiled_for(Path("kernel.sm_hopper.cu"), ["9.0a"])


@pytest.mark.parametrize(
    ("architecture", "flags"),
    [
        ("8.0", ["-gencode=arch=compute_80,code=sm_80"]),
        ("9.0a", ["-gencode=arch=compute_90a,code=sm_90a"]),
        ("9.0+PTX", ["-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]),
        ("9.0a+PTX", ["-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_90,code=compute_90"]),
    ],
)
def test_ptx_is_such_that_newer_gpus_can_use_it(architecture, flags):
    assert architectures.gencode(architecture) == flags


def test_jobs_are_what_cores_and_memory_allow(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "PROCESS_GROUP", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**25}.get)  # 128 GiB
    assert machine.jobs() == 64
    (tmp_path / "own").write_text("0::/a/b\n")
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/memory.max").write_text(f"{32 * 2**30}\n")
    (tmp_path / "a/b/memory.max").write_text("max\n")
    assert machine.jobs() == 32
    (tmp_path / "a/b/cpu.max").write_text("400000 100000\n")
    assert machine.jobs() == 4
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("200000\n")
    assert machine.jobs() == 2
    (tmp_path / "a/memory.max").write_text("1000\n")
    assert machine.jobs() == 1
    monkeypatch.setenv("MAX_JOBS", "3")
    assert machine.jobs() == 3


def definition(project: Path, toolkit: Toolkit, chosen: list[str], **pins) -> tuple[str, list[objects.Object]]:
    """The text of build.ninja, and the objects; the test is inside the project."""
    pinned = replace(PINS, **pins)
    request = whole_project(pinned, RELEASE)
    object_files = objects.list_objects(pinned, request, toolkit, chosen)
    tools = ninja.Tools(Torch(project, "2.11.0", "13.0"), toolkit, "g++")
    return ninja.ninja_file(pinned, request, tools, object_files), object_files


@pytest.fixture
def whole_toolkit(nvcc13) -> Toolkit:
    (nvcc13.home / "lib64").mkdir()
    (nvcc13.home / "lib64/libcudart_static.a").touch()
    return nvcc13


def test_glue_learns_which_files_were_compiled(project, whole_toolkit, monkeypatch):
    monkeypatch.chdir(project)
    op = project / "src/demo_kernels/ops/elementwise"
    marked = [op / "hopper.sm_90a.cu", op / "sm80/ampere.cu"]
    (op / "sm80").mkdir()
    for path in marked:
        path.touch()
    try:
        for architecture, defines in (("7.5", "0 0"), ("8.0", "1 0"), ("9.0", "1 1")):
            text, object_files = definition(project, whole_toolkit, [architecture])
            (glue,) = (line for line in text.splitlines() if "own_flags = -DUSE_CUDA" in line)
            ampere, hopper = defines.split()
            assert f"-DHAS_SM_80={ampere} -DHAS_SM_90A={hopper} " in glue
            compiled = {file.source.name for file in object_files}
            assert (marked[0].name in compiled, marked[1].name in compiled) == (hopper == "1", ampere == "1")
        assert "own_flags = -gencode=arch=compute_90a,code=sm_90a -DHAS" in text
    finally:
        for path in marked:
            path.unlink()
        (op / "sm80").rmdir()


def test_a_project_has_flags_of_its_own_for_all_ops_and_for_one(project, whole_toolkit, monkeypatch):
    monkeypatch.chdir(project)
    cxx, nvcc = {"*": ["-DCXX_ALL"], "elementwise": ["-DCXX_ONE"]}, {"*": ["-DNVCC_ALL"], "elementwise": ["-DNVCC_ONE"]}
    text, _ = definition(project, whole_toolkit, ["9.0"], cxx_flags=cxx, nvcc_flags=nvcc)
    (for_cxx,) = (line for line in text.splitlines() if line.startswith("cxx_flags = "))
    (for_nvcc,) = (line for line in text.splitlines() if line.startswith("nvcc_flags = "))
    assert ("-DCXX_ALL" in for_cxx, "-DNVCC_ALL" in for_nvcc) == (True, True)
    own = [line for line in text.splitlines() if "own_flags = " in line]
    assert sorted(line.rpartition(" ")[2] for line in own) == ["-DCXX_ONE", "-DCXX_ONE", "-DNVCC_ONE"]
    assert objects.unknown_ops(replace(PINS, cxx_flags={"*": [], "wrong": []}), find_ops(PINS)) == ["wrong"]
    with pytest.raises(BuildError, match=r"NVCC_FLAGS in setup\.py holds -arch=sm_80, which would replace"):
        architectures.refuse_architecture_flags(replace(PINS, nvcc_flags={"elementwise": ["-arch=sm_80"]}))


@pytest.mark.parametrize(
    ("pin", "value", "takes"),
    [
        ("cxx_flags", {"*": "-O1"}, r"a list of words for each op, such as {'*': ['-O3']}"),
        ("nvcc_flags", ["-O1"], r"a list of words for each op"),
        ("cxx_flags", {"*": ["-DA=1\n2"]}, r"a list of words for each op"),
        ("cuda_architectures", ["8.0", "9.0"], r'a text such as "8.0;9.0a"'),
        ("portable_architectures", 9.0, r'a text such as "8.0;9.0a"'),
        ("oldest_torch", "2.10", r"two whole numbers such as (2, 10)"),
    ],
)
def test_a_pin_of_another_type_is_refused(pin, value, takes):
    with pytest.raises(BuildError, match=re.escape(f"{pin.upper()} in setup.py is {value!r}; write {takes}")):
        replace(PINS, **{pin: value})


@pytest.mark.parametrize("variable", ["CXX", "CXXFLAGS", "LDFLAGS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"])
def test_a_variable_with_an_open_quotation_is_named(monkeypatch, variable):
    monkeypatch.setenv(variable, '-DNAME="a b')
    with pytest.raises(MachineError, match=rf'^{variable}=-DNAME="a b is no list of words \(No closing quotation\); '):
        environment.words(variable)


def test_every_folder_of_include_is_on_the_include_path(project, whole_toolkit, monkeypatch):
    monkeypatch.chdir(project)
    folder = project / "src/demo_kernels/include/a_folder"
    folder.mkdir()
    text, _ = definition(project, whole_toolkit, ["9.0"])
    folder.rmdir()
    flag = "-Isrc/demo_kernels/include "
    assert text.count("-Isrc/demo_kernels/include/a_folder ") == text.count(flag) == 2


def test_the_toolkit_of_a_conda_environment_is_found(project, tmp_path, monkeypatch):
    target = tmp_path / "targets/x86_64-linux"
    (target / "include").mkdir(parents=True)
    (target / "include/cuda_runtime_api.h").write_text("#define CUDART_VERSION  13010\n")
    (target / "lib").mkdir()
    (target / "lib/libcudart_static.a").touch()
    script(tmp_path / "bin" / "nvcc", "")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    conda = toolkit.find_toolkit(Torch(tmp_path, "2.11.0", "13.0"), note=pytest.fail)
    assert conda == Toolkit(tmp_path, (13, 1), target / "include")
    assert conda.static_runtime == target / "lib/libcudart_static.a"
    monkeypatch.chdir(project)
    text, _ = definition(project, conda, ["9.0"])
    assert f"-isystem {target / 'include'}" in text
    assert f"cuda_libraries = {target / 'lib/libcudart_static.a'} " in text


@pytest.mark.parametrize(
    ("cuda", "says", "not_said"),
    [
        ("13.0", "install one with `kernelgen doctor --fix`", "another torch"),
        ("12.8", "install NVIDIA's toolkit 12.8", "doctor --fix"),
        (None, "torch 2.11.0 is built without CUDA: get one built with CUDA by `pip install", "doctor --fix"),
    ],
)
def test_the_cure_of_a_missing_toolkit_fits_the_torch(tmp_path, monkeypatch, cuda, says, not_said):
    monkeypatch.setattr(toolkit, "toolkit_homes", lambda torch: [])
    notes: list[str] = []
    torch = Torch(tmp_path, "2.11.0", cuda)
    assert toolkit.find_toolkit(torch, notes.append) is None
    monkeypatch.setenv("USE_CUDA", "1")
    with pytest.raises(BuildError) as refusal:
        toolkit.find_toolkit(torch, notes.append)
    for text in (*notes, str(refusal.value)):
        assert text.startswith("no CUDA toolkit (nvcc) was found")
        assert says in text
        assert not_said not in text


def test_a_package_whose_folder_is_gone_is_no_project_without_ops(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BuildError, match="there is no folder src/"):
        find_ops(PINS)


def test_an_nvcc_that_cannot_be_run(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").write_text("no program")
    with pytest.raises(BuildError, match=r"nvcc cannot be run \(Permission denied\); point CUDA_HOME at another"):
        chosen_for(Toolkit(tmp_path, (13, 0), tmp_path / "include"))


def test_a_project_that_cannot_be_written_is_a_sentence_with_its_cure():
    refusal = sentence(OSError(errno.EROFS, "Read-only file system", "build/release.lock"))
    assert refusal.endswith("build/release.lock; a build writes into the project: copy it to where you may write.")


def test_pytest_from_a_folder_above_says_where_to_run_it(project):
    command = [sys.executable, "-m", "pytest", "-q", "--co", "-p", "no:cacheprovider"]
    outcome = subprocess.run(command, cwd=project.parent, capture_output=True, text=True, check=False)
    assert f"run it there, or as `pytest {project}`" in outcome.stdout
