"""What a project's setup.py decides: architectures, files for one architecture, jobs."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.stamped.conftest import stamp

# What `nvcc --help` says of them, of CUDA 13.0.
NUMBERS = "75 80 86 87 88 89 90 90a 100 100a 100f 103 103a 103f 110 110a 110f 120 120a 120f 121 121a 121f"


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return stamp(tmp_path_factory.mktemp("stamped") / "demo", ops=[{"name": "elementwise", "recipe": "elementwise"}])


@pytest.fixture
def setup(project, monkeypatch) -> ModuleType:
    """The project's setup.py, loaded as a module; no GPU, and none of this machine's settings."""
    spec = importlib.util.spec_from_file_location("project_setup", project / "setup.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    for name in module.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "present_architectures", lambda known: [])
    return module


@pytest.fixture
def toolkit(setup, tmp_path):
    """A toolkit whose nvcc only says what it can compile for."""
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    allowed = ",".join(f"'sm_{number}'" for number in NUMBERS.split())
    nvcc.write_text(f'#!/bin/sh\necho "Allowed values for this option: {allowed}"\n')
    nvcc.chmod(0o755)
    return setup.Toolkit(tmp_path, (13, 0), tmp_path / "include")


def test_nvccs_help_is_understood(setup, toolkit):
    known = setup.known_architectures(toolkit)
    assert [capability.replace(".", "") for capability in known] == NUMBERS.split()
    assert known[:8] == ["7.5", "8.0", "8.6", "8.7", "8.8", "8.9", "9.0", "9.0a"]
    assert known[-3:] == ["12.1", "12.1a", "12.1f"]


@pytest.mark.parametrize(
    ("asked", "meant"),
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
def test_architectures_in_every_spelling(setup, toolkit, monkeypatch, asked, meant):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", asked)
    assert setup.architectures(toolkit) == meant.split()


def test_the_environment_comes_before_the_pin_and_the_pin_before_the_gpu(setup, toolkit, monkeypatch, capsys):
    monkeypatch.setattr(setup, "present_architectures", lambda known: ["8.9"])
    assert setup.architectures(toolkit) == ["8.9"]
    monkeypatch.setattr(setup, "CUDA_ARCHITECTURES", "8.0")
    assert setup.architectures(toolkit) == ["8.0"]
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    assert setup.architectures(toolkit) == ["9.0"]
    assert capsys.readouterr().err == ""


def test_with_no_gpu_and_no_pin_a_line_says_what_is_taken(setup, toolkit, capsys):
    assert setup.architectures(toolkit) == ["8.0", "9.0+PTX"]
    line = "demo_kernels: no GPU here: compiling for 8.0;9.0+PTX (set TORCH_CUDA_ARCH_LIST to choose).\n"
    assert capsys.readouterr().err == line


def test_a_gpu_is_compiled_for_with_all_that_it_can_do(project, setup, toolkit, monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("again", project / "setup.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.write_text("#!/bin/sh\nprintf '9.0\\n8.6\\n9.0\\n'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(smi.parent), prepend=":")
    assert module.architectures(toolkit) == ["8.6", "9.0a"]
    assert module.architectures() == ["8.6", "9.0"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("gopher", "'gopher' is no CUDA architecture; write compute capabilities such as"),
        ("9", "'9' is no CUDA architecture"),
        ("8.0a", r"nvcc 13.0 cannot compile for 8.0a; it can for 7.5, 8.0, .*12.1f. Choose with TORCH_CUDA_ARCH_LIST"),
        ("Volta", "nvcc 13.0 cannot compile for 7.0; it can for"),
        ("9.9+PTX", r"nvcc 13.0 cannot compile for 9.9\+PTX; it can for"),
    ],
)
def test_what_is_no_architecture_is_refused(setup, toolkit, monkeypatch, asked, sentence):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", asked)
    with pytest.raises(setup.BuildError, match=sentence):
        setup.architectures(toolkit)


@pytest.mark.parametrize(
    ("name", "asked", "compiled"),
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
def test_a_file_is_compiled_for_what_its_name_or_folder_says(setup, name, asked, compiled):
    assert setup.compiled_for(Path(name), asked.split()) == compiled.split()


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
def test_a_file_is_compiled_for_each_combination_that_it_names(setup, tmp_path, line, instances):
    (tmp_path / "kernel.cu").write_text(f"// A kernel.\n\n{line}\n")
    assert setup.instantiations(tmp_path / "kernel.cu") == instances


def test_instantiations_that_mean_nothing_are_refused(setup, tmp_path):
    (tmp_path / "kernel.cu").write_text("// instantiate: float16, bfloat16\n")
    with pytest.raises(setup.BuildError, match=r"is no list of instantiations; write one as in '// instantiate: T = "):
        setup.instantiations(tmp_path / "kernel.cu")


def test_a_name_that_means_nothing_is_refused(setup):
    with pytest.raises(setup.BuildError, match=r"kernel.sm_hopper.cu names no architecture; such names are x.sm_90a"):
        setup.compiled_for(Path("kernel.sm_hopper.cu"), ["9.0a"])


@pytest.mark.parametrize(
    ("architecture", "flags"),
    [
        ("8.0", ["-gencode=arch=compute_80,code=sm_80"]),
        ("9.0a", ["-gencode=arch=compute_90a,code=sm_90a"]),
        ("9.0+PTX", ["-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]),
        ("9.0a+PTX", ["-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_90,code=compute_90"]),
    ],
)
def test_ptx_is_such_that_newer_gpus_can_use_it(setup, architecture, flags):
    assert setup.gencode(architecture) == flags


def test_jobs_are_what_cores_and_memory_allow(setup, monkeypatch, tmp_path):
    monkeypatch.setattr(setup, "CGROUPS", tmp_path)
    monkeypatch.setattr(setup, "PROCESS_GROUP", tmp_path / "own")
    monkeypatch.setattr(setup.os, "sched_getaffinity", lambda _: range(64))
    monkeypatch.setattr(setup.os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**25}.get)  # 128 GiB
    assert setup.jobs() == 64
    (tmp_path / "own").write_text("0::/a/b\n")
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/memory.max").write_text(f"{32 * 2**30}\n")
    (tmp_path / "a/b/memory.max").write_text("max\n")
    assert setup.jobs() == 32
    (tmp_path / "a/b/cpu.max").write_text("400000 100000\n")
    assert setup.jobs() == 4
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("200000\n")
    assert setup.jobs() == 2
    (tmp_path / "a/memory.max").write_text("1000\n")
    assert setup.jobs() == 1
    monkeypatch.setenv("MAX_JOBS", "3")
    assert setup.jobs() == 3


def test_glue_learns_which_files_were_compiled(project, setup, toolkit, tmp_path):
    torch = setup.Torch(tmp_path, "2.11.0", "13.0")
    runtime = tmp_path / "lib64/libcudart_static.a"
    runtime.parent.mkdir()
    runtime.touch()
    op = project / "src/demo_kernels/ops/elementwise"
    marked = [op / "hopper.sm_90a.cu", op / "ampere.sm_80+.cu"]
    for path in marked:
        path.touch()
    release = setup.find_variant()
    try:
        for asked, define in (("7.5", "0 0"), ("8.0", "1 0"), ("9.0", "1 1")):
            text, objects, _ = setup.ninja_file(torch, toolkit, release, [asked])
            (glue,) = (line for line in text.splitlines() if "cxx_flags = $cxx_flags" in line)
            ampere, hopper = define.split()
            assert f"-DHAS_SM_80={ampere} -DHAS_SM_90A={hopper} " in glue
            compiled = {Path(source).name for source in objects.values()}
            assert (marked[0].name in compiled, marked[1].name in compiled) == (hopper == "1", ampere == "1")
        assert "gencode = -gencode=arch=compute_90a,code=sm_90a -DHAS" in text
    finally:
        for path in marked:
            path.unlink()


def test_the_toolkit_of_a_conda_environment_is_found(setup, toolkit, tmp_path, monkeypatch):
    target = tmp_path / "targets/x86_64-linux"
    (target / "include").mkdir(parents=True)
    (target / "include/cuda_runtime_api.h").write_text("#define CUDART_VERSION  13010\n")
    (target / "lib").mkdir()
    (target / "lib/libcudart_static.a").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    found = setup.find_toolkit(setup.Torch(tmp_path, "2.11.0", "13.0"))
    assert found == setup.Toolkit(tmp_path, (13, 1), target / "include")
    assert found.static_runtime == target / "lib/libcudart_static.a"
    assert f"-isystem {target / 'include'}" in "\n".join(setup.cuda_rules(found, setup.find_variant()))
