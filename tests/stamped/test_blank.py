"""Ops made from functions: they work at once, say what is left to write, and use C++ once it is written."""

import contextlib
import importlib
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernelgen.cli import main
from kernelgen.lab.new_op.request import NewOp
from kernelgen.scaffold import template

from ..conftest import ROOT, make_checkout
from .conftest import Outcome, build, edit, python, quickly, run, write_cpu

FUNCTIONS = Path(__file__).with_name("functions.py")
FROM_FUNCTIONS = ["affine", "blend", "halves", "mixture", "parts", "total", "waves", "widened"]
ACCUMULATE = "(Tensor(a!) total, Tensor x, *, float alpha=1.0) -> ()"
NAMES = [*FROM_FUNCTIONS, "accumulate"]
# The README's own example, as it is stamped.
GATE = re.search(r'add-op my_gate --schema "(.*)"', (ROOT / "README.md").read_text(encoding="utf-8"))[1]
OPS = Path("src/blank_kernels/ops")


def kernelgen(home: Path, *arguments: object) -> str:
    """What `kernelgen` of this checkout prints."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(template, "HOME", home / "checkout")
        assert main([str(argument) for argument in arguments]) == 0
    return printed.getvalue()


@pytest.fixture(scope="session")
def home(made_once) -> Path:
    """A folder with a checkout, and a project that `new` and `add-op` made with it, built for the CPU and CUDA."""
    return made_once("blank", make)


def make(home: Path) -> None:
    project = home / "blank-kernels"
    make_checkout(home / "checkout")
    with pytest.MonkeyPatch.context() as patch:
        # As of a template without the recipe `shaped`, and of functions whose shapes are not known.
        patch.setattr(NewOp, "template_knows_shapes", lambda _: False)
        add_ops(home, project)
    edit(
        project / OPS / "accumulate" / "reference.py",
        (
            'raise NotImplementedError("reference not written yet: write it in " + __file__)',
            "total.add_(x, alpha=alpha)",
        ),
    )
    for name in {*NAMES, "my_gate"} - {"affine"}:
        # One op shows that a stamped kernel compiles; the others would only take time.
        (project / OPS / name / "kernel.cu").unlink()
    result = build(project, USE_CUDA="1", TORCH_CUDA_ARCH_LIST="8.0", **quickly())
    assert result.returncode == 0, result.stdout + result.stderr


def add_ops(home: Path, project: Path) -> None:
    kernelgen(home, "new", project, "--defaults", "--data", "ops=[]")
    for name in FROM_FUNCTIONS:
        source = f"{FUNCTIONS}:{name}"
        kernelgen(home, "add-op", name, "--recipe", "blank", "--from", source, "--project", project)
    kernelgen(home, "add-op", "accumulate", "--schema", ACCUMULATE, "--project", project)
    kernelgen(home, "add-op", "my_gate", "--schema", GATE, "--project", project)


@pytest.fixture(scope="session")
def package(home) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(home / "blank-kernels" / "src")
        return importlib.import_module("blank_kernels")


@pytest.fixture(scope="session")
def unwritten(home, package) -> ModuleType:
    """The project's own tests/suite/unwritten.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(home / "blank-kernels" / "tests")
        return importlib.import_module("suite.unwritten")


# ---- From a function ------------------------------------------------------------------------------------------


def calls(name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Calls of a function of functions.py: arguments of shapes and dtypes that it takes, by position and by name."""
    import torch

    torch.manual_seed(0)

    def x(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return torch.randn(shape, dtype=dtype, requires_grad=True)

    return {
        "affine": lambda: [
            ((x(3, 5),), {}),
            ((x(3, 5), 0.5), {}),
            ((x(3, 5), 3), {"bias": x(5)}),
            ((), {"x": x(4), "factor": -1.0, "bias": None}),
        ],
        "waves": lambda: [((x(2, 7),), {}), ((x(5),), {})],
        "mixture": lambda: [(([x(3), x(3)], [0.5, 2.0]), {}), (([x(2, 2)], (1,)), {})],
        "blend": lambda: [
            ((x(4), x(4)), {"alpha": 0.25}),
            ((x(4).exp().detach().requires_grad_(), x(4).exp().detach()), {"alpha": 0.25, "mode": "geometric"}),
        ],
        "widened": lambda: [
            ((x(3), torch.float32), {}),
            ((x(3, dtype=torch.float32), torch.float64, torch.device("cpu")), {}),
        ],
        "parts": lambda: [((x(2, 6),), {})],
        "total": lambda: [
            ((x(2, 3), [x(2), x(1)]), {}),
            ((x(2, 3), []), {"dims": [0, 1]}),
            ((x(2, 3), [x(2).detach(), None], [1]), {"shift": x(3).detach()}),
        ],
        "halves": lambda: [((x(2, 6),), {}), ((x(2, 6, dtype=torch.float32),), {})],
    }[name]()


def function_named(name: str) -> Callable[..., Any]:
    from . import functions

    return getattr(functions, name)


def check_alike(op: Callable[..., Any], name: str, create_graph: bool = False) -> None:
    """The op's values and gradients are those of its function; with `create_graph` the second derivatives too."""
    import torch
    from torch.utils._pytree import tree_leaves

    def evaluate(function, args, kwargs):
        values = tree_leaves(function(*args, **kwargs))
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        grads = torch.autograd.grad([v.pow(3).sum() for v in values], leaves, create_graph=create_graph)
        if not create_graph:
            return [*values, *grads]
        return [*values, *grads, *torch.autograd.grad([g.pow(2).sum() for g in grads], leaves)]

    for args, kwargs in calls(name):
        actual, expected = evaluate(op, args, kwargs), evaluate(function_named(name), args, kwargs)
        # Second derivatives may add up their terms in another order.
        torch.testing.assert_close(actual, expected, **({} if create_graph else {"rtol": 0, "atol": 0}))


@pytest.mark.parametrize("name", FROM_FUNCTIONS)
def test_an_op_made_from_a_function_gives_its_values_and_gradients(package, name):
    check_alike(getattr(package, name), name)


def test_the_reference_runs_in_the_dtypes_of_a_call_under_autocast(package):
    """Autocast would compute a product in 16 bits, forward and again for the gradient, whose dtypes then differ."""
    import torch

    def product(x, weight):
        return x @ weight

    library = package._library
    op = library.define({"product": "(Tensor x, Tensor weight) -> Tensor"}, product).product
    library.register_reference_autograd("product", product)
    tensors = [torch.randn(7, 7, requires_grad=True) for _ in range(2)]

    def evaluate():
        output = op(*tensors)
        return output, *torch.autograd.grad(output, tensors, torch.ones_like(output))

    expected = evaluate()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(map(torch.equal, evaluate(), expected))


@pytest.mark.parametrize("name", FROM_FUNCTIONS)
def test_such_an_op_can_be_differentiated_twice(package, name):
    check_alike(getattr(package, name), name, create_graph=True)


@pytest.mark.parametrize("name", FROM_FUNCTIONS)
def test_such_an_op_compiles_into_one_graph_and_trains_there(package, name):
    import torch

    torch._dynamo.reset()
    check_alike(torch.compile(getattr(package, name), fullgraph=True, backend="aot_eager"), name)


@pytest.mark.parametrize("name", FROM_FUNCTIONS)
def test_such_an_op_keeps_the_signature_and_its_docstring_describes_each_argument(package, name):
    import inspect

    of_op, of_function = (inspect.signature(function) for function in (getattr(package, name), function_named(name)))
    assert [(p.name, p.kind, p.default) for p in of_op.parameters.values()] == [
        (p.name, p.kind, p.default) for p in of_function.parameters.values()
    ]
    assert all(f"{parameter}:" in getattr(package, name).__doc__ for parameter in of_op.parameters)


def test_a_missing_keyword_argument_is_named(package):
    import torch

    with pytest.raises(TypeError, match="alpha"):
        package.blend(torch.ones(2), torch.ones(2))


def test_a_result_has_memory_of_its_own(package):
    import torch

    x = torch.ones(2, 6)
    for result in (*package.halves(x), *package.parts(x)):
        result.zero_()
    assert torch.equal(x, torch.ones(2, 6))
    left, _, same = package.parts(x)
    left.zero_()
    assert torch.equal(same, torch.ones(2, 3))


def test_a_gradient_that_pytorch_cannot_carry_is_refused(package):
    import torch

    x, y = torch.ones(2), torch.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="total: no gradient of a list that holds None"):
        package.total(x, [y, None])
    with pytest.raises(NotImplementedError, match="total: no gradient of shift, which is given by name"):
        package.total(x, [], shift=y)
    with torch.no_grad():
        assert package.total(x, [y, None], shift=y).tolist() == [4.0, 4.0]


def test_an_op_that_writes_to_its_argument_does_so(package):
    import torch

    def twice(total, x):
        package.accumulate(total, x)
        package.accumulate(total, x, alpha=0.5)
        return total + 1

    torch._dynamo.reset()
    for function in (twice, torch.compile(twice, fullgraph=True, backend="aot_eager")):
        total, x = torch.arange(6.0).view(2, 3), torch.ones(2, 3)
        assert torch.equal(function(total, x), torch.arange(6.0).view(2, 3) + 2.5)
        assert torch.equal(total, torch.arange(6.0).view(2, 3) + 1.5)
    with pytest.raises(NotImplementedError, match="accumulate has no gradient"):
        package.accumulate(torch.zeros(3), torch.ones(3, requires_grad=True))


@pytest.mark.parametrize("name", NAMES)
def test_on_cuda_a_call_says_what_to_write(package, unwritten, home, name):
    """Without a GPU no tensor is on CUDA, but the dispatcher calls CUDA's kernel where its key is given."""
    import torch

    operator = getattr(torch.ops.blank_kernels, name).default
    args, kwargs = calls(name)[0] if name != "accumulate" else ((torch.ones(2), torch.ones(2)), {})
    kernels = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    file = home / "blank-kernels" / OPS / name / "kernel.cu"
    message = f"^{name} on CUDA: kernel not written yet: write it in {file}$"
    with pytest.raises(NotImplementedError, match=message) as raised:
        operator.redispatch(kernels, *args, **kwargs)
    expected = f"{name}: CUDA kernel not written yet; write ops/{name}/cuda.cpp"
    assert unwritten.reason_to_fail(file.parent, raised.value) == expected
    assert unwritten.reason_to_fail(file.parent, NotImplementedError("another")) is None
    # The suite does not take it for a refusal of an argument either.
    with pytest.raises(NotImplementedError), importlib.import_module("suite").refusal("kernel"):
        operator.redispatch(kernels, *args, **kwargs)


def test_stamped_python_is_clean(home):
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check"], ["format", "--check", "--diff"]):
        result = run([*ruff, *command, "src", "tests", "conftest.py"], home / "blank-kernels")
        assert result.returncode == 0, result.stdout + result.stderr


# ---- Its stamped tests ----------------------------------------------------------------------------------------


@pytest.fixture
def outcomes(home, outcomes_of) -> list[Outcome]:
    return outcomes_of("blank-outcomes", home / "blank-kernels", *(str(OPS / name) for name in (*NAMES, "my_gate")))


@pytest.mark.parametrize("name", NAMES)
def test_the_stamped_tests_of_an_op_pass(outcomes, name):
    own = [outcome for outcome in outcomes if outcome.op == name]
    assert [outcome for outcome in own if outcome.status == "failed"] == []
    assert {"test_accuracy", "test_opcheck", "test_compile", "test_export"} <= {
        outcome.test for outcome in own if outcome.status == "passed"
    }


def test_before_anything_is_written_an_op_s_tests_are_expected_failures(outcomes):
    own = [outcome for outcome in outcomes if outcome.op == "my_gate"]
    assert {outcome.status for outcome in own} == {"passed", "skipped", "xfailed"}
    reasons = {outcome.message.partition("\n")[0] for outcome in own if outcome.status == "xfailed"}
    assert reasons == {"my_gate: reference not written yet; write ops/my_gate/reference.py"}


# ---- When C++ is written --------------------------------------------------------------------------------------


def test_list_says_which_backends_are_written(home):
    listed = json.loads(kernelgen(home, "list", "--json", "--project", home / "blank-kernels"))
    assert {op["name"]: op["backends"] for op in listed["ops"]} == {name: [] for name in (*NAMES, "my_gate")}
    assert "  affine      blank  no backend  pristine" in kernelgen(home, "list", "--project", home / "blank-kernels")


def test_a_kernel_in_cpp_takes_over_from_the_reference(home, copy_of):
    project = copy_of(home / "blank-kernels")
    write_cpu(
        project / OPS / "affine",
        """const Tensor in = as_contiguous(x), out = empty_like_contiguous(in);
  for (int64_t i = 0; i < in.numel(); ++i) {
    dtypes::mutable_data<float>(out)[i] = dtypes::data<float>(in)[i] * float(factor) + 1000;
  }
  return out;""",
    )
    assert build(project, TORCH_CUDA_ARCH_LIST="8.0", **quickly()).returncode == 0
    listed = json.loads(kernelgen(home, "list", "--json", "--project", project))
    assert next(op["backends"] for op in listed["ops"] if op["name"] == "affine") == ["cpu"]
    code = """
import torch, blank_kernels
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = blank_kernels.affine(x, 3.0)
y.sum().backward()
print(y.tolist(), x.grad.tolist(), blank_kernels.waves(x)[0].shape)
"""
    result = python(project, code)
    assert result.stdout.strip() == "[1003.0, 1006.0] [3.0, 3.0] torch.Size([2])", result.stderr
