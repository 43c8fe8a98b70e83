"""Functions are traced to the operators that kernels are written in, or it is said what was in the way."""

import ast
import functools
import hashlib
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernelgen.scaffold.schema.from_python import reference  # noqa: E402
from kernelgen.worker.trace import traced  # noqa: E402
from kernelgen.worker.trace.evaluate import evaluate  # noqa: E402
from kernelgen.worker.trace.function import load  # noqa: E402
from kernelgen.worker.trace.graph import Sample  # noqa: E402
from kernelgen.worker.trace.refusals import RefusedError  # noqa: E402
from kernelgen.worker.trace.symbols import EPSILON  # noqa: E402
from tests.conftest import locked, shared_folder  # noqa: E402

POINTWISE = Path(__file__).with_name("functions_to_trace.py")
ROWS = POINTWISE.with_name("row_functions_to_trace.py")

HELPERS = """
import functools
import torch
from torch import Tensor

FACTOR = torch.tensor(0.7)
TABLE = torch.tensor([0.1, 0.2, 0.3, 0.4])

def doubled(function):
    @functools.wraps(function)
    def inner(x):
        return 2 * function(x)
    return inner

@doubled
def helper(x):
    return x.sin()

@torch.no_grad()
def largest(x):
    return x.abs().amax(-1, keepdim=True)

def twice(x: Tensor) -> Tensor:
    return helper(x)

def held(x: Tensor) -> Tensor:
    return x / largest(x)

def scaled(x: Tensor) -> Tensor:
    return x * FACTOR

def looked_up(x: Tensor) -> Tensor:
    return x * TABLE
"""


def names_in(path: Path) -> list[str]:
    return [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]


NAMES, ROW_NAMES = names_in(POINTWISE), names_in(ROWS)


def trace(path: Path, name: str) -> dict:
    return json.loads(trace_of(path.read_text(), path, name))


@functools.cache
def trace_of(text: str, path: Path, name: str) -> str:
    """As JSON: whoever asks again for the same function of the same text gets a copy, in any worker of this run."""
    kept = shared_folder() / f"trace-{hashlib.sha256(f'{text} {path} {name}'.encode()).hexdigest()[:20]}"
    with locked(kept.with_suffix(".lock")):
        if not kept.exists():
            unfinished = kept.with_suffix(".unfinished")
            unfinished.write_text(new_trace(path, name))
            unfinished.rename(kept)
    return kept.read_text()


def new_trace(path: Path, name: str, calls: list[dict] | None = None, said: dict[str, str] | None = None) -> str:
    function = reference.read(path, name)
    arguments = function.schema.entry()["arguments"]
    request = {
        "source": function.source,
        "function": name,
        "arguments": arguments,
        "recipes": ["pointwise", "row_wise"],
        "calls": calls,
        "said": said,
    }
    return json.dumps(traced(request))


def trace_text(
    folder: Path,
    body: str,
    signature: str = "x: Tensor",
    result: str = "Tensor",
    calls: list[dict] | None = None,
    said: dict[str, str] | None = None,
) -> dict:
    """The trace of a function with this body; nan != nan where it stands in a comparison of texts."""
    path = folder / "text.py"
    head = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import Tensor\n\n\n"
    path.write_text(f"{head}def f({signature}) -> {result}:\n    {body}\n")
    return trace(path, "f") if calls is None and said is None else json.loads(new_trace(path, "f", calls, said))


def test_the_corpus_is_large_enough():
    assert len(NAMES) >= 35


@pytest.mark.parametrize("name", NAMES)
def test_every_function_of_the_corpus_is_taken(name):
    """The worker itself compares the graphs with the function, at several numbers for each scalar."""
    facts = trace(POINTWISE, name)
    assert all(path["forward"]["nodes"] for path in facts["paths"])
    # The first assumption that holds: tensors are floats unless they are called masks, or packed.
    assumed = facts["assumption"]
    assert assumed["recipe"] == "pointwise"
    others = {"mask": "bool", "packed": "uint8"}
    assert assumed["dtypes"] == {name: others.get(name, "float") for name in assumed["dtypes"]}


@pytest.mark.parametrize("name", ROW_NAMES)
def test_every_function_of_rows_is_taken(name):
    assert trace(ROWS, name)["assumption"]["recipe"] == "row_wise"


@pytest.mark.parametrize(
    ("name", "rows", "ranks"),
    [
        ("softmax", {"dims": [-1]}, [1, None]),
        ("mean_squared_error", {"from": 0}, [1, None]),
        ("batch_norm", {"but": 1}, [2, None]),
        ("instance_norm", {"from": 2}, [3, None]),
        ("mean_of", {"argument": "dim"}, [1, None]),
    ],
)
def test_the_dimensions_of_a_row_hold_for_every_rank(name, rows, ranks):
    assumption = trace(ROWS, name)["assumption"]
    assert (assumption["rows"], assumption["ranks"]) == (rows, ranks)


def test_a_middle_dimension_counts_from_the_side_that_the_function_counts_from(tmp_path):
    first = trace_text(tmp_path, "return x - x.amax(1, keepdim=True)")["assumption"]
    last = trace_text(tmp_path, "return x - x.amax(-2, keepdim=True)")["assumption"]
    assert (first["rows"], first["ranks"]) == ({"dims": [1]}, [2, None])
    assert (last["rows"], last["ranks"]) == ({"dims": [-2]}, [2, None])


def test_numbers_and_places_of_rows_are_arguments():
    assert trace(ROWS, "batch_norm")["assumption"]["kinds"] == {"x": "element", "weight": "row", "bias": "row"}
    assert trace(ROWS, "chosen")["assumption"]["dtypes"] == {"logits": "float", "place": "int"}


def test_a_constant_that_is_nan_is_the_same_for_all_sizes(tmp_path):
    body = 'return F.kl_div(x, y, reduction="batchmean")'  # Of xlogy, which has a NaN in its decomposition.
    assert trace_text(tmp_path, body, "x: Tensor, y: Tensor")["assumption"]["rows"] == {"from": 0}


def test_a_weight_may_be_a_vector(tmp_path):
    assert trace(ROWS, "rms")["assumption"]["vectors"] == {"weight": "broadcast"}
    assert trace(ROWS, "layer")["assumption"]["kinds"] == {"x": "element", "weight": "column", "bias": "column"}


@pytest.mark.parametrize("error", ["AssertionError", "TypeError", "KeyError('x')", "NotImplementedError"])
def test_shapes_that_a_function_refuses_in_its_own_way_are_no_reason(tmp_path, error):
    """Of vectors in place of rows, and of both of them."""
    body = f"if x.shape != y.shape or x.shape != z.shape: raise {error}\n    return ((x - y).abs() * z).sum(-1)"
    facts = trace_text(tmp_path, body, "x: Tensor, y: Tensor, z: Tensor")
    assert facts["assumption"]["vectors"] == {}


def test_a_number_of_each_row_that_broadcasts_is_no_matrix(tmp_path):
    body = "return torch.where(y > 0, 1 - F.cosine_similarity(a, b, dim=-1), F.cosine_similarity(a, b, dim=-1))"
    kinds = trace_text(tmp_path, body, "a: Tensor, b: Tensor, y: Tensor")["assumption"]["kinds"]
    assert kinds == {"a": "element", "b": "element", "y": "row"}


def test_a_constant_that_is_made_of_an_argument_is_that_argument(tmp_path):
    body = "return torch.minimum(x, torch.tensor(a, dtype=x.dtype)) * x.new_tensor(0.3)"
    nodes = trace_text(tmp_path, body, "x: Tensor, a: float = 0.1")["paths"][0]["forward"]["nodes"]
    arguments = [argument for node in nodes for argument in node["arguments"]]
    assert [a["scalar"] for a in arguments if "scalar" in a] == ["a"]
    assert [a["constant"] for a in arguments if "constant" in a] == [0.3]


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        ("assert 0 <= p < 1; return x * (1 - p)", "x: Tensor, p: float = 0.1"),
        ("assert 0 <= p < 1, p; return s * x * (1 - p)", "x: Tensor, s: float = 2.0, p: float = 0.1"),
        ("assert 0 <= p < 0.2; return x * (1 - p)", "x: Tensor, p: float = 0.0"),
    ],
)
def test_scalars_are_drawn_where_the_function_takes_them(tmp_path, body, signature):
    path = trace_text(tmp_path, body, signature)["paths"][0]
    nodes = [*path["forward"]["nodes"], *path["backward"]["nodes"]]
    assert "p" in {argument.get("scalar") for node in nodes for argument in node["arguments"]}


def test_a_weight_may_say_which_dimensions_are_a_row(tmp_path):
    norm = "return F.layer_norm(x, weight.shape, weight)"
    assert trace_text(tmp_path, norm, "x: Tensor, weight: Tensor")["assumption"]["rows"] == {"like": "weight"}
    loss = "return ((x - y) ** 2).mean()"
    assert trace_text(tmp_path, loss, "x: Tensor, y: Tensor")["assumption"]["rows"] == {"from": 0}


@pytest.mark.parametrize(
    ("body", "signature", "kinds"),
    [
        ("return F.cross_entropy(x, y)", "x: Tensor, y: Tensor", ["total"]),
        ("return x.softmax(-1).square().sum(-1).mean(), x.sum(-1)", "x: Tensor", ["total", "row"]),
        ("return x.mean()", "x: Tensor", ["row"]),
    ],
)
def test_numbers_of_all_rows(tmp_path, body, signature, kinds):
    """A mean over rows of what is computed of each; a mean of all elements is that of one row."""
    facts = trace_text(tmp_path, body, signature, "Tensor" if len(kinds) == 1 else "tuple[Tensor, Tensor]")
    assert [output["kind"] for output in facts["paths"][0]["forward"]["outputs"]] == kinds
    assert facts["paths"][0]["backward"]


@pytest.mark.parametrize(
    ("body", "ops"),
    [
        ("return x.cumsum(-1)", ("running_sum", "running_sum_back")),
        ("return x.flip(1).cumsum(1).flip(1)", ("running_sum_back", "running_sum")),
        ("return (2 * x).prod(-1)", ("row_prod", "row_prod")),
    ],
)
def test_running_totals_and_products_of_rows(tmp_path, body, ops):
    path = trace_text(tmp_path, body)["paths"][0]
    for direction, op in zip(("forward", "backward"), ops, strict=True):
        assert op in [node["op"] for node in path[direction]["nodes"]]


@pytest.mark.parametrize(
    ("body", "op"),
    [
        ("return x.logcumsumexp(-1)", "running_log_sum"),
        ("return x.cummax(1)[0]", "running_max"),
        ("return x.flip(-1).cummin(-1).values.flip(-1)", "running_min_back"),
    ],
)
def test_running_maxima_and_log_sums_of_rows(tmp_path, body, op):
    path = trace_text(tmp_path, body)["paths"][0]
    assert [node["op"] for node in path["forward"]["nodes"]] == [op]


CHOSEN = "x.gather(-1, y.unsqueeze(-1)).squeeze(-1)"


@pytest.mark.parametrize(
    ("body", "of_forward", "of_backward"),
    [
        (f"return {CHOSEN}", 1, 1),
        ("return F.nll_loss(x, y, ignore_index=3)", 1, 1),
        ("return torch.zeros_like(x).scatter(-1, y.unsqueeze(-1), 1.0) + x", 1, 0),
        ("return x.gather(-1, x.argmax(-1, keepdim=True)).squeeze(-1) + y", 0, 0),
    ],
)
def test_a_place_is_checked_before_its_element_is_taken(tmp_path, body, of_forward, of_backward):
    """Not a place that was found in the row."""
    path = trace_text(tmp_path, body, "x: Tensor, y: Tensor")["paths"][0]
    counts = [[node["op"] for node in path[way]["nodes"]].count("checked_zero") for way in ("forward", "backward")]
    assert counts == [of_forward, of_backward]


@pytest.mark.parametrize(
    "body",
    [
        f"return ({CHOSEN} > 0.5).to(x.dtype)",
        f"return ({CHOSEN} > 0.5).to(x.dtype).mean()",
        f"return torch.where({CHOSEN} > x.amax(-1), 1.0, x.sum(-1))",
        f"return (x - {CHOSEN}.unsqueeze(-1)).relu().sum(-1)",
    ],
)
def test_a_place_outside_of_the_row_makes_the_result_nan_behind_a_comparison_too(tmp_path, body):
    facts = trace_text(tmp_path, body, "x: Tensor, y: Tensor")
    x = torch.randn(2, 3, 7, dtype=torch.float64)
    sample = Sample({}, {}, (2, 3, 7), (2,))
    for outside in (-1, 7):
        y = torch.tensor([[0, outside, 2], [4, 5, 6]])
        (result,) = evaluate(facts["paths"][0]["forward"], {"x": x, "y": y}, [], sample)
        expected = y == outside if result.ndim else torch.tensor(True)
        assert torch.equal(result.isnan().reshape(expected.shape), expected)


def test_a_gradient_that_is_not_traced_is_composed(tmp_path):
    facts = trace_text(tmp_path, "return x.cumprod(-1)")
    assert facts["assumption"]["composed"]
    assert facts["paths"][0]["backward"] is None


def test_a_gradient_that_is_another_one_of_longer_rows_is_composed(tmp_path):
    """Of two numbers the variance has no degree of freedom left, and an infinite gradient."""
    facts = trace_text(tmp_path, "return x.var(0, correction=2)")
    assert facts["paths"][0]["backward"] is None
    assert "another path" in facts["assumption"]["composed"]


def test_scalars_stay_symbols(tmp_path):
    facts = trace_text(tmp_path, "return x * (1 - p) + p / 2", "x: Tensor, p: float = 0.5")
    text = json.dumps(facts["paths"][0]["forward"])
    assert '"scalar": "p"' in text
    assert "0.37" not in text


def test_a_number_that_pytorch_rounds_to_float32_is_as_it_was_written(tmp_path):
    path = trace(ROWS, "residual_rms")["paths"][0]
    for graph in (path["forward"], path["backward"]):
        assert "eps" in {a.get("scalar") for node in graph["nodes"] for a in node["arguments"]}
    written = trace_text(tmp_path, "return F.rms_norm(x, x.shape[-1:], None, 1e-6)")["paths"][0]["forward"]
    assert 1e-6 in [a.get("constant") for node in written["nodes"] for a in node["arguments"]]


@pytest.mark.parametrize(("eps", "is_epsilon"), [("", True), (", eps=torch.finfo(torch.float32).eps", False)])
def test_the_epsilon_of_each_dtype_is_that_of_what_kernels_compute_in(tmp_path, eps, is_epsilon):
    facts = trace_text(tmp_path, f"return F.rms_norm(x, (x.shape[-1],){eps})")
    assert facts["takes_float64"]
    for graph in (facts["paths"][0]["forward"], facts["paths"][0]["backward"]):
        scalars = {argument.get("scalar") for node in graph["nodes"] for argument in node["arguments"]}
        assert (EPSILON in scalars) == is_epsilon


def test_what_pytorch_has_no_derivative_of_has_no_gradient():
    facts = trace(POINTWISE, "stepped")
    assert facts["paths"][0]["backward"] is None
    assert facts["assumption"]["composed"] is None
    assert facts["assumption"]["underived"] == "the operator aten.heaviside, which has no derivative in PyTorch"


def test_a_bool_argument_gives_a_path_each(tmp_path):
    facts = trace_text(tmp_path, "return x.exp() if fast else x.sin()", "x: Tensor, fast: bool = True")
    assert [(path["flags"], path["forward"]["nodes"][0]["op"]) for path in facts["paths"]] == [
        ({"fast": True}, "exp"),
        ({"fast": False}, "sin"),
    ]


def test_a_mask_is_a_bool_tensor(tmp_path):
    facts = trace_text(tmp_path, "return x.masked_fill(~mask, -1.0)", "x: Tensor, mask: Tensor")
    assert facts["assumption"]["dtypes"] == {"x": "float", "mask": "bool"}


def test_what_is_random_in_training_alone_is_no_random_number(tmp_path):
    assert trace_text(tmp_path, "return F.rrelu(x)")["paths"][0]["backward"]


def test_what_is_not_differentiable_has_no_backward(tmp_path):
    assert trace_text(tmp_path, "return x > 0.5")["paths"][0]["backward"] is None


@pytest.mark.parametrize(
    ("body", "between"),
    [
        ("return x.log()", ["x"]),
        ("return x.exp()", []),
        ("return x.sqrt() * y", ["x"]),
        ("return x / y", ["y"]),
        ("return x.square() / y.clamp(min=1e-6)", ["y"]),  # 16 bits do not hold a million.
    ],
)
def test_numbers_are_drawn_where_the_function_is_defined(tmp_path, body, between):
    signature = "x: Tensor, y: Tensor" if "y" in body else "x: Tensor"
    assert trace_text(tmp_path, body, signature)["assumption"]["between"] == between


def test_a_cast_to_float32_means_no_float64(tmp_path):
    assert not trace_text(tmp_path, "return x.float().exp().to(x.dtype)")["takes_float64"]


def test_a_constant_of_float32_in_a_kernel_of_pytorch_leaves_the_function_in_float64(tmp_path):
    """PyTorch's own kernel multiplies by a sixth of float32, whatever the dtype."""
    facts = trace_text(tmp_path, "return F.hardsigmoid(x)")
    assert facts["takes_float64"]
    assert not facts["assumption"]["twice"]  # PyTorch has no formula for that kernel's gradient.


def test_pytorch_may_refuse_to_broadcast(tmp_path):
    both = "x: Tensor, y: Tensor"
    loss = 'return F.binary_cross_entropy_with_logits(x, y, reduction="none")'
    assert not trace_text(tmp_path, loss, both)["assumption"]["broadcasts"]
    assert trace_text(tmp_path, "return x * y", both)["assumption"]["broadcasts"]


def test_shapes_broadcast_only_where_every_result_has_the_shape_of_all(tmp_path):
    """As the moments in an optimiser's step, which do not depend on the parameter."""
    tensors, both = "p: Tensor, g: Tensor, m: Tensor", "tuple[Tensor, Tensor]"
    assert not trace_text(tmp_path, "return p - g * m, g + m", tensors, both)["assumption"]["broadcasts"]
    assert trace_text(tmp_path, "return p - g * m, p + g + m", tensors, both)["assumption"]["broadcasts"]
    rows = trace_text(tmp_path, "return p.softmax(-1), p.softmax(-1) + g * m", tensors, both)["assumption"]
    assert rows["vectors"] == {"g": "broadcast", "m": "broadcast"}
    apart = trace_text(tmp_path, "return p.softmax(-1), g + m", tensors, both)["assumption"]
    assert apart["vectors"] == {}


@pytest.mark.parametrize(
    "body",
    [
        "h = 2 * x\n    for i in range(1, n):\n        h = 2 * x * h - 2 * i\n    return h",
        "return x.sum(n) if n >= 0 else x.mean(n)",
        "return x.sum(n) if n != 1 else x.mean(n)",
    ],
)
def test_a_number_that_decides_over_the_path_is_no_dimension(tmp_path, body):
    with pytest.raises(RefusedError, match="path"):
        trace_text(tmp_path, body, "x: Tensor, n: int")


@pytest.mark.parametrize(
    ("body", "signature", "taken"),
    [
        ("return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()", "x: Tensor, *, eps: float = 0.1", ["x", "eps"]),
        ("return x * y", "x: Tensor, *, y: Tensor", ["x", "y"]),
        ("return x.exp() if mode == 'exp' else x", "x: Tensor, mode: str = 'exp', *, y: float = 2.0", ["x", "y"]),
        ("return x if y is None else x * y", "x: Tensor, y: Tensor | None = None", ["x", "y"]),
        ("return x.exp() if high is None else x.clamp(max=high)", "x: Tensor, high: float | None = None", ["x"]),
        ("return x.sum(-1, keepdim=keep)", "x: Tensor, keep: bool = False", ["x"]),
        ("return x.exp() if a == 0 else x * a", "x: Tensor, a: float = 2.0", ["x"]),
        (
            "return x if p == 0 else torch.where(keep, x / (1 - p), 0)",
            "x: Tensor, keep: Tensor, p: float = 0.5",
            ["x", "keep"],
        ),
    ],
)
def test_kernels_take_what_they_can_and_are_for_the_defaults_of_the_rest(tmp_path, body, signature, taken):
    assert trace_text(tmp_path, body, signature)["arguments"] == taken


@pytest.mark.parametrize(
    ("body", "ranks"),
    [
        ("b, c, t = x.shape; return x.reshape(b, c, -1).sin()", [3, 3]),
        ("return x.view(x.shape[0], -1).exp().view(x.shape)", [1, None]),
        ("return x * 2 if x.ndim != 2 else x * 3", [3, None]),
    ],
)
def test_a_function_of_some_shapes_is_not_pointwise(tmp_path, body, ranks):
    """Whose kernels and suite take any; those of rows say how many dimensions they take."""
    assumption = trace_text(tmp_path, body)["assumption"]
    assert (assumption["recipe"], assumption["ranks"]) == ("row_wise", ranks)


def test_a_power_of_two_scalars_is_their_expression(tmp_path):
    """As in AdamW's bias correction."""
    body = "m = b * m + (1 - b) * g; return p - lr * m / (1 - b**step) - lr * wd * p"
    signature = "p: Tensor, g: Tensor, m: Tensor, lr: float = 1e-3, b: float = 0.9, wd: float = 0.1, step: int = 1"
    facts = trace_text(tmp_path, body, signature)
    assert "pow" in {node["op"] for node in facts["paths"][0]["forward"]["nodes"]}
    assert facts["assumption"]["recipe"] == "pointwise"


@pytest.mark.parametrize(
    ("body", "signature", "ops"),
    [
        ("return x * (1 - t**-0.8)", "x: Tensor, t: float = 9.0", {"pow", "sub"}),
        ("return x / math.sqrt(1 - b**n)", "x: Tensor, b: float = 0.9, n: int = 2", {"pow", "sqrt", "sub"}),
        ("return x.softmax(-1) / max(t, 1e-5)", "x: Tensor, t: float = 0.7", {"maximum"}),
        ("return x * (1 - min(d, (1 + n) / (10 + n)))", "x: Tensor, n: int = 2, d: float = 0.9", {"minimum", "add"}),
    ],
)
def test_what_is_computed_of_scalars_is_known_as_it_was_computed(tmp_path, body, signature, ops):
    path = trace_text(tmp_path, body, signature)["paths"][0]
    for graph in (path["forward"], path["backward"]):
        assert ops <= {node["op"] for node in graph["nodes"] if node["kind"] == "scalar"}


@pytest.mark.parametrize("branch", ("alpha > 3.7", "-2.25 < alpha < -1.75", "alpha == 12.5", "2 * alpha >= 41.0"))
def test_a_branch_on_an_unusual_number_is_seen(tmp_path, branch):
    """No sample has such a number by chance: those that stand in the source are tried."""
    with pytest.raises(RefusedError, match="another path that it takes where alpha is"):
        trace_text(tmp_path, f"return x.exp() if {branch} else x * alpha", "x: Tensor, alpha: float")


def test_more_scalars_than_samples_are_told_apart(tmp_path):
    scalars = ", ".join(f"{name}: float = 1.0" for name in "abcdef")
    facts = trace_text(tmp_path, "return x * a + b - c * x.exp() + d * (x * e) + f", f"x: Tensor, {scalars}")
    used = {a["scalar"] for n in facts["paths"][0]["forward"]["nodes"] for a in n["arguments"] if "scalar" in a}
    assert used == set("abcdef")


def test_decorators_of_helpers_are_part_of_the_function(tmp_path):
    file = tmp_path / "helpers.py"
    file.write_text(HELPERS)
    twice, held = (json.loads(new_trace(file, name))["paths"][0] for name in ("twice", "held"))
    assert [node["op"] for node in twice["forward"]["nodes"]] == ["sin", "mul"]
    assert [node["op"] for node in held["backward"]["nodes"]] == ["abs", "row_amax", "div"]


def test_a_whole_quotient_is_of_integers(tmp_path):
    assert trace_text(tmp_path, "return x // 3")["assumption"]["guessed"] == {"x": "int64"}
    assert trace_text(tmp_path, "return (x & 15) * 0.1")["paths"][0]["backward"] is None


def test_an_argument_may_be_called_as_what_cuts(tmp_path):
    file = tmp_path / "named.py"
    file.write_text("def f(x: 'Tensor', narrow: float, stack: float):\n    return x * narrow + stack\n")
    arguments = [{"name": "x"}, {"name": "narrow"}, {"name": "stack"}]
    assert not load(file.read_text(), "f", arguments).may_cut
