"""Functions that split a dimension into groups and reduce each; pooling by weights that are reduced themselves."""

import pytest

torch = pytest.importorskip("torch")

from kernelgen.scaffold.formula.entry import kernels  # noqa: E402
from kernelgen.scaffold.formula.needs import lacking  # noqa: E402
from kernelgen.scaffold.schema.from_python import reference  # noqa: E402
from kernelgen.worker.trace.later_sums import later_sum  # noqa: E402
from kernelgen.worker.trace.refusals import RefusedError  # noqa: E402
from kernelgen.worker.trace.split import Split  # noqa: E402
from tests.stamped.conftest import REPOSITORY  # noqa: E402
from tests.worker.test_trace import ROWS, trace, trace_text  # noqa: E402


def split_of(facts: dict) -> tuple:
    split = facts["assumption"]["split"]
    return split["dim"], split["count"], split["of_group"]


@pytest.mark.parametrize(
    ("name", "split", "rank", "dims"),
    [
        ("group_norm", (1, "groups", False), 5, [-3, -2, -1]),
        ("head_norm", (-2, "heads", False), 4, [-1]),
        ("block_codes", (-2, 32, True), 2, [-1]),
    ],
)
def test_groups_are_a_dimension(name, split, rank, dims):
    facts = trace(ROWS, name)
    assert split_of(facts) == split
    assert facts["assumption"]["ranks"][0] == rank
    assert facts["assumption"]["rows"] == {"dims": dims}
    assert facts["paths"][0]["forward"]["outputs"][0]["joined"]


@pytest.mark.parametrize(
    ("body", "arguments", "split"),
    [
        ("return x.view(*x.shape[:-1], g, -1).softmax(-1).view(x.shape)", "x: Tensor, g: int = 4", (-2, "g", False)),
        ("return x.unflatten(-1, (-1, g)).softmax(-1).flatten(-2)", "x: Tensor, g: int = 4", (-2, "g", True)),
        ("return x.reshape(x.shape[0], x.shape[1], 8, -1).softmax(-1).reshape(x.shape)", "x: Tensor", (-2, 8, False)),
        ("return (x.unflatten(-1, (-1, w.numel())).pow(2).softmax(-1) * w).flatten(-2)", "x: Tensor, w: Tensor", None),
    ],
)
def test_the_size_that_is_known_is_an_argument_a_number_or_that_of_a_vector(tmp_path, body, arguments, split):
    facts = trace_text(tmp_path, body, arguments)
    assert split_of(facts) == (split or (-2, None, True))
    assert facts["assumption"]["split"]["like"] == (None if split else "w")


@pytest.mark.parametrize(
    "body",
    [
        "return (x.unflatten(-1, (-1, 32)) * scales.unsqueeze(-1)).flatten(-2)",
        "m, n = x.shape; return (x.view(m, -1, 32) / scales[..., None]).round().to(torch.int8).view(m, n)",
    ],
)
def test_scales_are_a_number_for_each_group(tmp_path, body):
    facts = trace_text(tmp_path, body, "x: Tensor, scales: Tensor")
    assert split_of(facts) == (-2, 32, True)
    assert facts["assumption"]["kinds"] == {"x": "element", "scales": "row"}
    assert not facts["assumption"]["composed"]
    schema = reference.read(tmp_path / "text.py", "f").schema.entry()
    drawn = kernels(schema, facts)["traced"]["groups"]  # There are as many scales as groups.
    assert (drawn["sizes"], drawn["growing"]) == ([-1, None], [-2, -1])


def test_weights_of_channels_have_the_groups_alone():
    facts = trace(ROWS, "group_norm")
    assert facts["assumption"]["spreads"] == {"weight": [-4, -3], "bias": [-4, -3]}
    (_, of_weight, _) = facts["paths"][0]["backward"]["outputs"]
    assert of_weight["summed"] == [0, 3, 4]


def test_a_view_that_splits_nothing_is_none(tmp_path):
    assert "split" not in trace_text(tmp_path, "return x.view(x.shape).softmax(-1)", "x: Tensor")["assumption"]


def test_a_number_of_groups_that_is_computed_with_is_refused(tmp_path):
    body = "return x.unflatten(-1, (g, -1)).softmax(-1).flatten(-2) * g**0.5"
    facts = trace_text(tmp_path, body, "x: Tensor, g: int = 4")
    entry = reference.read(ROWS, "block_codes").schema.entry()
    with pytest.raises(Exception, match="a number that is computed of g"):
        kernels({**entry, "arguments": [{**entry["arguments"][0], "name": "x"}]}, facts)


def test_the_function_splits_and_its_reference_joins():
    signature = kernels(reference.read(ROWS, "head_norm").schema.entry(), trace(ROWS, "head_norm"))["traced"][
        "signature"
    ]
    assert signature["split"] == [{"name": "q", "python": "q", "dim": -1, "how": "groups=heads"}]
    assert signature["joins"] == [".flatten(-2)"]
    assert signature["reference"] == [
        "def _reference(q: Any, weight: Any, eps: Any) -> Any:",
        '    """reference.py, with the arguments of the operator."""',
        "    return _function(in_one(q, -2), weight, q.shape[-2], eps).unflatten(-1, q.shape[-2:])",
    ]


def test_an_operator_has_no_argument_for_its_groups():
    schema = kernels(reference.read(ROWS, "head_norm").schema.entry(), trace(ROWS, "head_norm"))["schema"]
    assert schema["text"] == "(Tensor q, Tensor weight, float eps=1e-6) -> Tensor"


def test_sizes_of_samples_have_no_factor_in_common():
    split = Split(dim=-2, count=12)
    shape = split.sized((2, 3, 7, 5), 12, (2, 3, 7, 5, 11, 13))
    assert shape == (7, 5, 12, 11)
    assert split.joined_shape(shape, range(4)) == (7, 5, 132)
    assert split.dims_of_joined([2], 4) == (2, 3)


@pytest.mark.parametrize("name", ["masked_mean", "weighted_pool"])
def test_weights_of_a_pool_are_reduced_along_its_dimension(name):
    facts = trace(ROWS, name)
    other = facts["arguments"][1]
    assert facts["assumption"]["spreads"] == {other: [-3, -2]}
    assert facts["assumption"]["rows"] == {"dims": [-2]}
    (_, of_weights) = facts["paths"][0]["backward"]["outputs"]
    assert of_weights["summed"] == [2]


def test_a_choice_between_a_sum_and_nothing_is_a_sum():
    summed, zero = {"summed": (2,)}, {"constant": 0.0}
    assert later_sum("where", [{}, zero, summed]) == {"summed": (2,)}
    with pytest.raises(RefusedError):
        later_sum("where", [{}, {"constant": 1.0}, summed])


def test_targets_of_a_contrastive_loss_are_the_diagonal(tmp_path):
    facts = trace(ROWS, "contrastive")
    assert facts["assumption"]["square"]
    assert "row_sum" in [node["op"] for node in facts["paths"][0]["forward"]["nodes"]]
    with pytest.raises(RefusedError):
        trace_text(tmp_path, "return x.gather(-1, torch.arange(x.shape[0])[:, None] + 1)", "x: Tensor")


def test_an_older_template_has_no_groups(tmp_path):
    traced = kernels(reference.read(ROWS, "head_norm").schema.entry(), trace(ROWS, "head_norm"))["traced"]
    assert lacking(REPOSITORY, traced) is None
    assert lacking(tmp_path, traced) == "kernels of groups of a dimension"
