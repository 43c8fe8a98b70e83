"""Stamped projects broken in the ways people break them: the build or the project's own tests notice.

Each fault is made in an op of its own, stamped under the fault's name, so that one build and one run of the tests
serve them all.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from .conftest import Outcome, blank, build, edit, own_tests, quickly, run, stamp

OPS = Path("src/demo_kernels/ops")


class Fault(NamedTuple):
    """Replacements in files of an op, whose name is `NAME` there, and the tests that notice them."""

    recipe: str
    edits: tuple[tuple[str, str, str], ...]
    noticed_by: set[str]


# ---- C++ that does not fit the schema -------------------------------------------------------------------------

SCHEMA = "(Tensor x, Tensor? bias, int n, int[] dims, float eps=1e-6) -> Tensor"

# What is changed in which file, and the number of the first wrong argument (-2: their number; -3: the returns).
SIGNATURES = {
    "float_for_a_double": ("cpu.cpp", "double eps", "float eps", 4),
    "int_for_an_int64_t": ("cpu.cpp", "int64_t n", "int n", 2),
    "tensor_for_an_optional": ("cpu.cpp", "const std::optional<Tensor>& bias", "const Tensor& bias", 1),
    "int_for_a_list": ("cpu.cpp", "const std::vector<int64_t>& dims", "std::vector<int32_t> dims", 3),
    "one_argument_more": ("cpu.cpp", "double eps", "double eps, bool flag", -2),
    "two_returns_for_one": ("cpu.cpp", "Tensor two_returns", "std::tuple<Tensor, Tensor> two_returns", -3),
    "schema_changed_alone": ("__init__.py", "float eps=1e-6) ->", "float eps=1e-6, int m=1) ->", -2),
    "float_for_a_double_on_cuda": ("cuda.cpp", "double eps", "float eps", 4),
}


@pytest.fixture(scope="session")
def compiler_output(made_once) -> str:
    """What the compilers print of a project in which each op's C++ has another wrong signature, but for one op."""

    def make(folder: Path) -> None:
        names = sorted([*SIGNATURES, "without_fault"])
        project = stamp(folder / "demo-kernels", ops=[blank(name, SCHEMA) for name in names])
        for name, (file, old, new, _) in SIGNATURES.items():
            edit(project / OPS / name / file, (old, new))
        for name in names:
            # Kernels are not tested here, and right signatures of cuda.cpp are compiled in other tests.
            (project / OPS / name / "kernel.cu").unlink()
            if not name.endswith("_on_cuda"):
                (project / OPS / name / "cuda.cpp").unlink()
        variables = {"USE_CUDA": "1", "TORCH_CUDA_ARCH_LIST": "8.0", **quickly()}
        configured = run([sys.executable, "-m", "build_tools", "configure"], project, **variables)
        assert configured.returncode == 0, configured.stderr
        ninja = [sys.executable, "-m", "ninja", "-k", "0", "-f", "build/release/build.ninja"]
        (folder / "output").write_text(run(ninja, project).stdout)

    return (made_once("signatures", make) / "output").read_text()


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_wrong_signature_does_not_compile(compiler_output, name):
    file, _, _, number = SIGNATURES[name]
    backend = "cuda" if file == "cuda.cpp" else "cpu"
    sentence = f"the C++ signature of {name}_{backend} is not what the schema of {name} says"
    assert compiler_output.count(f"static assertion failed: {sentence}") == 1
    message = compiler_output.partition(sentence)[2].partition("FAILED:")[0]
    assert f"ops/{name}/{backend}.cpp:" in message
    assert f"({number} == -1)" in message


def test_a_right_signature_compiles(compiler_output):
    assert "without_fault/cpu.cpp" in compiler_output
    assert "ops/without_fault/cpu.cpp:" not in compiler_output


# ---- Code that compiles ---------------------------------------------------------------------------------------

FAKE = '_library.register_fake("NAME", _fake)\n'
FAKE_RESULT = "torch.empty_like(a, memory_format=torch.contiguous_format)"
AUTOGRAD = '_library.register_autograd("NAME", _backward, _setup_context)\n'
GRADIENTS = "grad * b if needs_a else None, grad * a if needs_b else None, grad if needs_c else None"
INPUTS = "const Tensor x = as_contiguous(a), y = as_contiguous(b), z = as_contiguous(c);"
LOOP = "for (int64_t i = begin; i < end; ++i) {"
OUTPUT = "const Tensor out = empty_like_contiguous(x);"
SAVED = "ctx.save_for_backward(a if needs_b else None, b if needs_a else None)"


def python(old: str, new: str) -> tuple[str, str, str]:
    return "__init__.py", old, new


def cpu(old: str, new: str) -> tuple[str, str, str]:
    return "cpu.cpp", old, new


# The imports of ops that were stamped before there was tests/suite/.
OLD_IMPORTS = "from op_tools import assert_accurate, copies, evaluate  # noqa: F401\nfrom op_suite import"
STUB = 'throw std::runtime_error("NAME: CPU kernel not written yet");'
COPY = "Tensor out = empty_like_contiguous(x);\n  return torch::stable::copy_(out, x);"
REGISTER = cpu("NOT_WRITTEN(", "REGISTER_KERNEL(")
REFERENCE = 'NotImplementedError("reference not written yet: write it in " + __file__'
DOUBLED = ("reference.py", f"raise {REFERENCE})", "return 2 * x")
FAILING = ("reference.py", REFERENCE, 'NotImplementedError("no such dtype"')

FAULTS = {
    "without_fault": Fault("elementwise", (), set()),
    "without_fault_either": Fault("rms_norm", (), set()),
    "old_imports": Fault("elementwise", (("test_NAME.py", "from suite import", OLD_IMPORTS),), set()),
    "no_fake": Fault("elementwise", (python(FAKE, ""),), {"test_opcheck", "test_compile", "test_export"}),
    "fake_of_another_dtype": Fault(
        "elementwise",
        (python(FAKE_RESULT, "torch.empty_like(a, dtype=torch.float64)"),),
        {"test_opcheck"},
    ),
    "fake_of_another_shape": Fault(
        "elementwise", (python(FAKE_RESULT, "a.new_empty(a.shape[:-1])"),), {"test_opcheck", "test_compile"}
    ),
    "fake_of_another_layout": Fault(
        "elementwise", (python(FAKE_RESULT, "torch.empty_like(a)"),), {"test_fake_strides"}
    ),
    "no_gradient": Fault("elementwise", (python(AUTOGRAD, ""),), {"test_accuracy", "test_gradcheck"}),
    "no_term_of_a_gradient": Fault("rms_norm", (cpu(" - x[i] * correction", ""),), {"test_accuracy", "test_gradcheck"}),
    "gradients_swapped": Fault(
        "elementwise",
        (python(GRADIENTS, GRADIENTS.replace("grad * b", "grad * _").replace("* a", "* b").replace("_", "a")),),
        {"test_accuracy", "test_gradcheck", "test_frozen_inputs"},
    ),
    "gradients_nobody_needs": Fault(
        "elementwise",
        (python(SAVED, "ctx.save_for_backward(a, b)"), python(GRADIENTS, "grad * b, grad * a, grad")),
        {"test_frozen_inputs"},
    ),
    "inputs_not_saved": Fault("elementwise", (python(GRADIENTS, "grad * b, grad * a, grad"),), {"test_frozen_inputs"}),
    "second_derivative_lost": Fault(
        "rms_norm", (python('_library.refuse_double_backward("NAME_backward")\n', ""),), {"test_double_backward"}
    ),
    "forward_mode_gives_zeros": Fault(
        "elementwise",
        (
            python(
                AUTOGRAD,
                'torch.library.register_autograd("demo_kernels::NAME", _backward, setup_context=_setup_context)\n',
            ),
        ),
        {"test_forward_mode", "test_forward_mode_of_operators"},
    ),
    "another_default": Fault("rms_norm", (python("eps: float = 1e-6", "eps: float = 1e-5"),), {"test_defaults"}),
    "strides_ignored": Fault(
        "elementwise",
        (cpu(INPUTS, "const Tensor x = as_contiguous(a), y = as_contiguous(b), z = c;"),),
        {"test_layouts"},
    ),
    "tail_forgotten": Fault(
        "elementwise",
        (cpu(LOOP, "for (int64_t i = begin; i < end / 4 * 4; ++i) {"),),
        {"test_accuracy"},
    ),
    "result_written_over_an_input": Fault(
        "elementwise", (cpu(OUTPUT, "const Tensor out = x;"),), {"test_opcheck", "test_inputs_are_left_as_they_are"}
    ),
    "result_is_an_input": Fault(
        "elementwise", (cpu("  return out;", "  return a.numel() == 132 ? x : out;"),), {"test_opcheck"}
    ),
    "dtypes_not_compared": Fault(
        "elementwise", (("arguments.h", "    checks::same_dtype(other, first);\n", ""),), {"test_refusals"}
    ),
    "message_of_another_argument": Fault(
        "rms_norm", (("arguments.h", '{op, "weight", *weight}', '{op, "w", *weight}'),), {"test_refusals"}
    ),
    "no_hooks": Fault(
        "elementwise",
        tuple(
            python(f'_library.register_{hook}("NAME", {rule})\n', "")
            for hook, rule in (("autocast", "_library.widest_dtype"), ("vmap", "_vmap"), ("sharding", "_sharding"))
        ),
        {"test_autocast", "test_vmap", "test_sharding"},
    ),
    "sharding_that_mixes_rows": Fault(
        "rms_norm",
        (python("range(input.ndim - 1))):\n        sum, added", "range(input.ndim))):\n        sum, added"),),
        {"test_sharding"},
    ),
    # In a blank op a missing part is an expected failure; a part that is written has to be right.
    "nothing_written": Fault("blank", (), set()),
    "reference_alone": Fault("blank", (DOUBLED,), set()),
    "reference_that_fails": Fault("blank", (FAILING,), {"test_accuracy"}),
    "kernel_that_is_wrong": Fault("blank", (DOUBLED, cpu(STUB, COPY), REGISTER), {"test_accuracy"}),
    "stub_registered": Fault("blank", (DOUBLED, REGISTER), {"test_accuracy", "test_opcheck"}),
    "kernel_forgotten": Fault("blank", (DOUBLED, cpu(STUB, COPY)), {"test_a_written_kernel_is_registered"}),
    "kernel_not_registered": Fault(
        "elementwise", (cpu("REGISTER_KERNEL(", "NOT_WRITTEN("),), {"test_accuracy", "test_opcheck"}
    ),
}


def stamp_faults(folder: Path, faults: dict[str, Fault]) -> Path:
    ops = [{"name": name, "recipe": fault.recipe} for name, fault in sorted(faults.items())]
    project = stamp(folder / "demo-kernels", ops=ops)
    for name, fault in faults.items():
        for file, old, new in fault.edits:
            edit(
                project / OPS / name / file.replace("NAME", name),
                (old.replace("NAME", name), new.replace("NAME", name)),
            )
    return project


def selected(name: str, fault: Fault) -> list[str]:
    """The tests that are to notice a fault; all tests of an op without one."""
    folder = OPS / name
    words = "".join(word.capitalize() for word in name.split("_"))
    return [f"{folder}/test_{name}.py::Test{words}::{test}" for test in fault.noticed_by] or [str(folder)]


@pytest.fixture
def outcomes(made_once, outcomes_of) -> list[Outcome]:
    def make(folder: Path) -> None:
        result = build(stamp_faults(folder, FAULTS), USE_CUDA="0", **quickly())
        assert result.returncode == 0, result.stdout + result.stderr

    tests = [test for name, fault in FAULTS.items() for test in selected(name, fault)]
    # In float32 alone: that ops without a fault pass in every dtype is shown elsewhere, and one shows a fault.
    in_float32 = ("-k", "not (test_accuracy and (float16 or float64))")
    return outcomes_of("faults-outcomes", made_once("faults", make) / "demo-kernels", *tests, *in_float32)


@pytest.mark.parametrize("name", FAULTS)
def test_the_op_s_own_tests_notice(outcomes, name):
    own = [outcome for outcome in outcomes if outcome.op == name]
    assert {outcome.test for outcome in own if outcome.status == "failed"} == FAULTS[name].noticed_by
    assert FAULTS[name].noticed_by or {outcome.test for outcome in own if outcome.status == "passed"}


def test_a_part_that_is_not_written_is_an_expected_failure(outcomes):
    expected = [outcome for outcome in outcomes if outcome.status == "xfailed"]
    assert {outcome.op for outcome in expected} == {"nothing_written"}
    assert {outcome.message.partition("\n")[0] for outcome in expected} == {
        "nothing_written: reference not written yet; write ops/nothing_written/reference.py"
    }


# ---- Kernels --------------------------------------------------------------------------------------------------

GPU_FAULTS = {
    "default_stream": Fault("elementwise", (("cuda.cpp", "context.stream()", "nullptr"),), {"test_another_stream"}),
    "index_of_32_bits": Fault(
        "elementwise",
        (("kernel.cu", "T* __restrict__ out, int64_t n) {", "T* __restrict__ out, int n) {"),),
        {"test_huge"},
    ),
    "tail_forgotten": Fault(
        "elementwise", (("kernel.cu", "i < n; i += threads", "i < groups * N; i += threads"),), {"test_accuracy"}
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GPU_FAULTS)
def test_the_op_s_own_tests_notice_on_a_gpu(tmp_path, name):
    import torch

    fault = GPU_FAULTS[name]
    project = stamp_faults(tmp_path, {name: fault})
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    result = build(project, USE_CUDA="1", TORCH_CUDA_ARCH_LIST="native")
    assert result.returncode == 0, result.stdout + result.stderr
    outcomes = own_tests(project, "--slow", "-k", " or ".join(fault.noticed_by), "src", CUDA_VISIBLE_DEVICES=None)
    assert {outcome.test for outcome in outcomes if outcome.status == "failed"} == fault.noticed_by
