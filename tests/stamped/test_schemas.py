"""Operators of every kind of schema, made by `add-op --schema`: their stamped tests pass as they are, and torch.compile
takes them."""

import contextlib
import io
import json
import sys
from pathlib import Path

import pytest

from kernelgen.cli import main
from kernelgen.scaffold import template
from tests.conftest import with_sample

from .conftest import build, edit, python, quickly, run

# By op: its schema, and the body of its reference.
SCHEMAS = {
    # Factories: the device is an argument.
    "ramp": (
        "(int n, *, ScalarType dtype, Device device) -> Tensor",
        "return torch.arange(n, dtype=dtype, device=device)",
    ),
    "full": (
        "(SymInt[] size, float value=0.5, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,"
        " bool? pin_memory=None) -> Tensor",
        "return torch.full(size, value, dtype=dtype, device=device)",
    ),
    "window": (
        "(int n) -> (Tensor, Tensor)",
        "x = torch.arange(n, dtype=torch.float64)\n    return x.cos(), x.sin()",
    ),
    # Queries: nothing is a tensor.
    "formats": ("(ScalarType t) -> str[]", 'return ["plain", str(t)]'),
    "tile": ("(int rows, bool wide) -> int", "return 64 if wide else min(rows, 32)"),
    "pick": (
        "(str name, int[2] pair=[1, 2], *, bool wide, float[] scales) -> (str, float[])",
        "return name * pair[1], [float(wide), *scales]",
    ),
    "cores": ("(Device device) -> int", "return 1"),
    "nothing": ("(int n) -> ()", "return None"),
    # In place and out=.
    "scale": ("(Tensor x, float factor) -> Tensor", "return x * factor"),
    "scale_in_place": ("scale_(Tensor(a!) x, float factor) -> Tensor(a!)", "return x.mul_(factor)"),
    "scale_out": (
        "scale.out(Tensor x, float factor, *, Tensor(a!) out) -> Tensor(a!)",
        "return torch.mul(x, factor, out=out)",
    ),
    "scale_by_tensor": ("scale.Tensor(Tensor x, Tensor factor) -> Tensor", "return x * factor"),
    "shift": ("(Tensor(a!) x, float by) -> Tensor(a!)", "return x.add_(by)"),
    "shift_and_add": (
        "(Tensor(a!) x, Tensor y) -> (Tensor(a!), Tensor sum)",
        "x.add_(1)\n    return x, x + y",
    ),
    "bounds": (
        "(Tensor x, *, Tensor(a!) low, Tensor(b!) high) -> (Tensor(a!), Tensor(b!))",
        "return low.copy_(x - 1), high.copy_(x + 1)",
    ),
    "double_all": (
        "(Tensor(a!)[] xs, float factor) -> Tensor(a!)[]",
        "for x in xs:\n        x.mul_(factor)\n    return xs",
    ),
    "maybe_out": (
        "(Tensor x, *, Tensor(a!)? out=None) -> Tensor",
        "if out is not None:\n        out.copy_(x + 1)\n    return x + 1",
    ),
    # Lists, and what may be None.
    "joined": (
        "(Tensor[] xs, float scale=1.0) -> Tensor",
        "return torch.cat([x.flatten() for x in xs]) * scale if xs else torch.zeros(0)",
    ),
    "doubled": ("(Tensor[] xs) -> Tensor[]", "return [2 * x for x in xs]"),
    "anything": (
        "(Tensor? a=None, Tensor?[]? some=None, int? n=None, Device? device=None) -> Tensor",
        "return torch.zeros(n or 3, device=device) if a is None else a + 1",
    ),
    "weighted": ("(Tensor x, *, Tensor weight, bool on) -> Tensor", "return x * weight if on else x.clone()"),
    # Results that are no tensors.
    "count": ("(Tensor x) -> int", "return x.numel()"),
    "sizes": ("(Tensor x) -> SymInt[]", "return list(x.shape)"),
    "parts": ("(Tensor x, int n) -> (Tensor, SymInt[])", "return x + n, [n, x.shape[0]]"),
    "place": ("(Tensor x) -> (Tensor, Device)", "return x + 1, x.device"),
}
# Functions whose results are in a class, or whose annotations and docstring give shapes, by `--from`.
FUNCTIONS = """
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor


class Routed(NamedTuple):
    weights: Float[Tensor, "tokens k"]
    places: Int64[Tensor, "tokens k"]


@dataclass(frozen=True)
class Soft:
    log_sum: Tensor
    probabilities: Tensor

    @property
    def largest(self) -> Tensor:
        return self.probabilities.amax(-1)


@dataclass
class Sorted:
    values: Tensor


def routed(scores: Float[Tensor, "tokens experts"], k: int = 2) -> Routed:
    weights, places = scores.topk(k, dim=-1)
    return Routed(weights, places)


def soft(x: Tensor) -> Soft:
    return Soft(torch.logsumexp(x, -1), torch.softmax(x, -1))


def sorted_rows(x: Tensor, table: Tensor) -> Sorted:
    \"""Sorts.

    Args:
        x: of shape (B, D)
        table: of shape (D,)

    Returns:
        values, of shape (B, D)
    \"""
    return Sorted((x + table).sort(-1).values)


def halves(xs: list[Tensor]) -> Soft:
    return Soft(log_sum=sum(xs), probabilities=xs[0] / 2)
"""
FROM = ("halves", "routed", "soft", "sorted_rows")
SAMPLE = ("formats", "ramp", "scale_out")
UNWRITTEN = 'raise NotImplementedError("reference not written yet: write it in " + __file__)'


def make(checkout: Path, project: Path, names: list[str]) -> None:
    def kernelgen(*arguments: str) -> None:
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
            patch.setattr(template, "HOME", checkout)
            assert main([*arguments]) == 0

    kernelgen("new", str(project), "--defaults", "--data", "ops=[]")
    functions = project.parent / "functions.py"
    functions.write_text(FUNCTIONS)
    for name in set(names) & set(FROM):
        kernelgen("add-op", name, "--from", f"{functions}:{name}", "--project", str(project))
    for name in set(names) - set(FROM):
        schema, body = SCHEMAS[name]
        kernelgen("add-op", name, "--schema", schema, "--project", str(project))
        reference = project / "src/schema_kernels/ops" / name / "reference.py"
        edit(reference, (UNWRITTEN, body))
        if "torch." in body and "import torch\n" not in reference.read_text():
            edit(reference, ("from torch import Tensor\n", "import torch\nfrom torch import Tensor\n"))
    result = build(project, USE_CUDA="0", **quickly())
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="session")
def project_of(made_once, shared_checkout):
    """The project that holds an op: one of the sample, or one of all others."""

    def project(name: str) -> Path:
        is_sampled = name in SAMPLE
        names = [other for other in (*SCHEMAS, *FROM) if (other in SAMPLE) == is_sampled]
        folder = made_once(
            f"schemas-{'sample' if is_sampled else 'all'}",
            lambda folder: make(shared_checkout, folder / "schema-kernels", names),
        )
        return folder / "schema-kernels"

    return project


@pytest.mark.parametrize("name", with_sample([*SCHEMAS, *FROM], SAMPLE))
def test_its_stamped_tests_pass(project_of, outcomes_of, name):
    project = project_of(name)
    outcomes = outcomes_of(f"{project.parent.name}-outcomes", project, "src/schema_kernels/ops")
    own = [outcome for outcome in outcomes if outcome.op == name]
    assert [outcome for outcome in own if outcome.status == "failed"] == []
    passed = {outcome.test for outcome in own if outcome.status == "passed"}
    # A device cannot be part of a graph, and a single number neither.
    expected = {"test_opcheck"} if name in ("count", "place") else {"test_opcheck", "test_compile"}
    assert expected <= passed
    returns = SCHEMAS.get(name, ["-> Tensor"])[0].rpartition("-> ")[2]
    assert ("test_accuracy" if "Tensor" in returns else "test_results_that_are_no_tensors") in passed | {
        outcome.test for outcome in own if returns == "()"
    }


@pytest.mark.corpus
def test_a_class_of_results_is_the_function_s(project_of):
    """Also in a compiled graph and under vmap."""
    program = """
import torch, schema_kernels as k
x = torch.randn(3, 5, requires_grad=True)
for function in (k.soft, torch.compile(k.soft, fullgraph=True, backend="aot_eager")):
    result = function(x)
    print(type(result).__module__, type(result).__name__, result.largest.shape, result.log_sum.requires_grad)
print(type(k.routed(x)).__name__, k.routed(x, 3).places.shape, type(k.sorted_rows(x, x[0])).__name__)
print(type(torch.vmap(k.soft)(x)).__name__)
"""
    result = python(project_of("soft"), program)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        *["schema_kernels.ops.soft.reference Soft torch.Size([3]) True"] * 2,
        "Routed torch.Size([3, 3]) Sorted",
        "Soft",
    ]


def test_they_work_in_a_graph_and_run_where_their_device_says(project_of):
    """A factory sized by a tensor, a query answered while tracing, and a result that is the argument `out`."""
    program = """
import torch, schema_kernels as k

def f(x):
    out = torch.empty_like(x)
    assert k.scale_out(x, len(k.formats(x.dtype)), out=out) is out
    return out + k.ramp(x.shape[0], dtype=x.dtype, device=x.device)

compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
for n in (3, 4, 5):
    assert torch.equal(compiled(torch.ones(n)), f(torch.ones(n)))
print(compiled(torch.ones(3)).tolist(), k.ramp(3, dtype=torch.int8, device="meta").device)
print(torch.ops.schema_kernels.scale.out)
for device in ("cuda", "xla"):
    try:
        k.ramp(3, dtype=torch.float32, device=device)
    except NotImplementedError as error:
        print(error)
"""
    result = python(project_of("ramp"), program)
    assert result.returncode == 0, result.stderr
    values, operator, on_cuda, on_xla = result.stdout.splitlines()
    assert values == "[2.0, 3.0, 4.0] meta"
    assert operator == "schema_kernels.scale.out"
    assert on_cuda.startswith("ramp on CUDA: ")
    assert on_xla == "ramp: no kernel runs on xla; it takes cpu, cuda, meta"


# Kernels of a factory and of an op that writes to its argument, in place of the line that throws.
KERNELS = {
    "ramp": """
  const Tensor out = torch::stable::empty({n}, dtype, std::nullopt, device);
  dtypes::visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t i = 0; i < n; ++i) dtypes::mutable_data<T>(out)[i] = T(i);
  });
  return out;
""",
    "scale_in_place": """
  dtypes::visit_floating(x.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    const Tensor values = as_contiguous(x);
    T* const data = dtypes::mutable_data<T>(values);
    for (int64_t i = 0; i < x.numel(); ++i) data[i] = T(static_cast<double>(data[i]) * factor);
    if (!x.is_contiguous()) torch::stable::copy_(x, values);
  });
""",
}


def test_the_lab_takes_factories_and_ops_that_write_to_their_arguments(shared_checkout, tmp_path):
    project = tmp_path / "lab-kernels"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
        patch.setattr(template, "HOME", shared_checkout)
        assert main(["new", str(project), "--defaults", "--data", "ops=[]"]) == 0
        for name in KERNELS:
            assert main(["add-op", name, "--schema", SCHEMAS[name][0], "--project", str(project)]) == 0
    for name, body in KERNELS.items():
        folder = project / "src/lab_kernels/ops" / name
        edit(folder / "reference.py", (UNWRITTEN, SCHEMAS[name][1]))
        unwritten = f'\n  throw std::runtime_error("{name}: CPU kernel not written yet");\n'
        edit(folder / "cpu.cpp", (unwritten, body), ("NOT_WRITTEN(", "REGISTER_KERNEL("), ("[[maybe_unused]] ", ""))
    done = build(project, USE_CUDA="0", **quickly())
    assert done.returncode == 0, done.stdout + done.stderr

    def lab(verb: str, *arguments: str) -> tuple[int, dict]:
        command = [sys.executable, "-m", "kernelgen", verb, *KERNELS, "--device", "cpu", *arguments, "--json"]
        done = run(command, project)
        return done.returncode, json.loads(done.stdout)

    code, report = lab("fuzz", "--count", "12")
    assert code == 0, report
    code, report = lab("bench", "--samples", "10", "--cases", "small", "--peers")
    assert code == 0, report
    assert [case["faults"] for case in report["cases"]] == [[], []]
