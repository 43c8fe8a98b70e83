"""Ops of the recipe `shaped`: formatted, green before and after their kernels are written, refused alike everywhere."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelgen.scaffold.schema.parser import parse as parse_schema
from kernelgen.scaffold.shapes.entry import shaped
from kernelgen.scaffold.shapes.parser import parse

from .conftest import REPOSITORY, Outcome, build, edit, python, quickly, run, stamp

# Tensors, optional ones and lists of both, all kinds of other arguments, results of other dtypes.
EVERY = (
    "(Tensor x, Tensor[] many, Tensor?[] some, Tensor[]? maybe, Tensor? bias, int[2] pair, SymInt n, SymInt[] sizes,"
    " str mode, ScalarType dtype, float? scale=None, *, bool flag=False, int m=3) -> (Tensor, Tensor)"
)
EVERY_REFERENCE = """def every(x, many, some, maybe, bias, pair, n, sizes, mode, dtype, scale=None, *, flag=False, m=3):
    out = x + sum(many) + sum(t for t in some if t is not None) + sum(maybe or []) * (scale or 1.0)
    out = out if bias is None else out + bias
    return out.to(x.dtype), (x.sum(-1, keepdim=True) > 0).long().expand(*x.shape[:-1], n).clone()
"""
OPS: dict[str, tuple[str, str, str | None, str]] = {
    "accumulate": (
        "(Tensor(a!) total, Tensor x, *, float alpha=1.0) -> ()",
        "total, x: ... D",
        None,
        "def accumulate(total, x, *, alpha=1.0):\n    total.add_(x, alpha=alpha)\n",
    ),
    "every": (
        EVERY,
        "x: ... D; many, some, maybe: ... D; bias: D float32; n <= 8 -> y: ... D; counts: ... n int64",
        None,
        EVERY_REFERENCE,
    ),
    "lookup": (
        "(Tensor ids, Tensor table) -> Tensor",
        "ids: B int < V; table: V D -> B D",
        "own",
        "def lookup(ids, table):\n    return table[ids]\n",
    ),
    "scaled": (
        "(Tensor x, Tensor? weight, float by=1.0) -> Tensor",
        "x: ... D; weight: D -> ... D",
        "own",
        "def scaled(x, weight, by=1.0):\n    return x * by if weight is None else x * weight * by\n",
    ),
    "pairs": (
        "(Tensor x, Tensor table) -> Tensor",
        "x: ... S 2*H; table: S H float32 -> ... S 2*H",
        "own",
        "import torch\n\n\ndef pairs(x, table):\n    left, right = x.chunk(2, -1)\n"
        "    return torch.cat((left * table, right * table), -1).to(x.dtype)\n",
    ),
}
# The mathematics of `accumulate` and `pairs` on the CPU, as a person writes it.
ACCUMULATED = (
    "total_row[j] = T(0.0f);",
    "total_row[j] = T(accumulate_t<T>(total_row[j]) + accumulate_t<T>(alpha) * accumulate_t<T>(x_row[j]));",
)
PAIRED = ("out_row[j] = T(0.0f);", "out_row[j] = T(accumulate_t<T>(x_row[j]) * table_row[j % sizes.H]);")
PAIRED_BACK = (
    "grad_x_row[j] = T(0.0f);",
    "grad_x_row[j] = T(accumulate_t<T>(grad_out_row[j]) * table_row[j % sizes.H]);",
)


def entry(name: str) -> dict[str, Any]:
    schema, shapes, backward, reference = OPS[name]
    facts = shaped(name, parse(shapes, parse_schema(schema)), backward, docstring=f"Of {name}.")
    return {"name": name, "recipe": "shaped", "reference": reference, **facts}


@pytest.fixture(scope="session")
def project(made_once) -> Path:
    """All of them, built for the CPU with two kernels written, and for CUDA with the kernel of one op."""
    return made_once("shaped", make) / "demo"


def make(home: Path) -> None:
    project = stamp(home / "demo", ops=[entry(name) for name in sorted(OPS)])
    folder = project / "src" / "demo_kernels" / "ops"
    edit(folder / "accumulate" / "cpu.cpp", ACCUMULATED, ("\nNOT_WRITTEN(", "\nREGISTER_KERNEL("))
    edit(folder / "pairs" / "cpu.cpp", PAIRED, PAIRED_BACK)
    source = folder / "pairs" / "cpu.cpp"
    source.write_text(source.read_text().replace("\nNOT_WRITTEN(", "\nREGISTER_KERNEL("))
    for name in OPS:
        # One dtype shows that a stamped kernel compiles; the others would only take time.
        kernel = folder / name / "kernel.cu"
        text = re.sub(r"= float32, float16, bfloat16, float64|= int32_t, int64_t", _first_type, kernel.read_text())
        kernel.write_text(text)
    built = build(project, USE_CUDA="1", TORCH_CUDA_ARCH_LIST="8.0", **quickly())
    assert built.returncode == 0, built.stdout + built.stderr
    assert "warning" not in built.stdout + built.stderr


def _first_type(match: re.Match[str]) -> str:
    return match[0].partition(",")[0]


def test_what_is_stamped_is_formatted(project):
    sources = [str(path) for path in (project / "src").rglob("*") if path.suffix in (".cpp", ".cu", ".cuh", ".h")]
    style = f"--style=file:{REPOSITORY / 'template' / '.clang-format'}"
    format_ = str(Path(sys.executable).parent / "clang-format")
    formatted = run([format_, style, "--dry-run", "--Werror", *sources], project)
    assert formatted.returncode == 0, formatted.stderr
    for command in (["check"], ["format", "--check", "--diff"]):
        checked = run([sys.executable, "-m", "ruff", *command, "src", "tests"], project)
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.fixture
def outcomes(project, outcomes_of) -> list[Outcome]:
    return outcomes_of("shaped-outcomes", project, "src")


@pytest.mark.parametrize("name", OPS)
def test_the_stamped_tests_of_an_op_pass(outcomes, name):
    own = [outcome for outcome in outcomes if outcome.op == name]
    assert [outcome for outcome in own if outcome.status in ("failed", "error")] == []
    passed = {outcome.test for outcome in own if outcome.status == "passed"}
    assert {"test_accuracy", "test_opcheck", "test_compile", "test_export", "test_refusals"} <= passed


def test_cpp_and_python_refuse_with_the_same_sentences(project):
    """`pairs` is written, so its refusals are those of C++; on the meta device they are Python's."""
    code = """
import torch
from demo_kernels import pairs, every

x, table = torch.ones(2, 3, 8), torch.ones(3, 4)
calls = [
    (x[..., :7], table), (x, table.double()), (x.long(), table), (x[0, 0], table), (x, table[:2]), (x, table[None]),
]
for args in calls:
    sentences = []
    for device in ("cpu", "meta"):
        try:
            pairs(*(tensor.to(device) for tensor in args))
        except RuntimeError as error:
            sentences.append(str(error).partition("\\n")[0])
    assert len(sentences) == 2 and sentences[0] == sentences[1], sentences
    print(sentences[0])
try:
    every(x, [x, x], [None], None, None, [1, 2], 9, [], "", torch.float32)
except RuntimeError as error:
    print(error)
"""
    result = python(project, code)
    assert result.stdout.splitlines() == [
        "pairs: x has shape (2, 3, 7); it takes (2, 3, 6), which is ... S 2*H",
        "pairs: table has dtype float64; it takes float32",
        "pairs: x has dtype int64; it takes float32, float16, bfloat16, float64",
        "pairs: x has shape (8,); it takes 2 dimensions or more, ... S 2*H",
        "pairs: table has shape (2, 4); it takes (3, 4), which is S H",
        "pairs: table has shape (1, 3, 4); it takes (3, 4), which is S H",
        "every: n is 9; it takes 8 or less, which is 8",
    ], result.stderr


def test_a_reference_that_does_not_fit_the_shapes_says_so(project):
    code = """
import torch
from demo_kernels import _shaped

def other(x):
    return x[1:]

try:
    _shaped.checked(lambda x: torch.empty_like(x), other)(torch.ones(3))
except RuntimeError as error:
    print(error)
"""
    sentence = (
        "other: the reference returns shape (2,) and dtype float32; the op's shapes say shape (3,) and dtype float32"
    )
    assert python(project, code).stdout.strip() == sentence


def test_a_gradient_that_is_not_there_is_refused(project):
    code = """
import torch
from demo_kernels import accumulate, pairs

x, table = torch.ones(3, 8, requires_grad=True), torch.ones(3, 4, requires_grad=True)
for call in (lambda: pairs(x, table).sum().backward(), lambda: accumulate(torch.zeros(3, 8), x)):
    try:
        call()
    except NotImplementedError as error:
        print(error)
"""
    assert python(project, code).stdout.splitlines() == [
        "pairs: no gradient of table is implemented; detach it",
        "accumulate has no gradient; call it under torch.no_grad() or on detached tensors",
    ]
