"""The tuned file, which people review: which entries a run replaces, and which stay."""

import json

import pytest

from kernelgen.errors import KernelgenError
from kernelgen.tune import tuned_file


@pytest.fixture
def path(tmp_path):
    return tmp_path / tuned_file.NAME


def read(path) -> dict:
    return json.loads(path.read_text())


def test_a_run_replaces_its_own_chip_and_no_other(path):
    tuned_file.write(path, "9.0", None, {"b": 1, "a": True}, {"on": "H200"})
    tuned_file.write(path, "8.0", None, {"a": False}, {"on": "A100"})
    tuned_file.write(path, "9.0", None, {"a": False}, {"on": "another H200"})
    assert read(path) == {
        "9.0": {"values": {"a": False}, "measured": {"on": "another H200"}},
        "8.0": {"values": {"a": False}, "measured": {"on": "A100"}},
    }


def test_each_class_of_shapes_has_values_of_its_own(path):
    tuned_file.write(path, "9.0", "short rows", {"a": 1}, {"on": "1"})
    tuned_file.write(path, "9.0", "long rows", {"a": 2}, {"on": "2"})
    tuned_file.write(path, "9.0", "short rows", {"a": 3}, {"on": "3"})
    assert read(path)["9.0"] == {
        "shapes": {"short rows": {"a": 3}, "long rows": {"a": 2}},
        "measured": {"short rows": {"on": "3"}, "long rows": {"on": "2"}},
    }


@pytest.mark.parametrize("shapes", [None, "heads of 64"])
def test_what_is_tuned_apart_stays_with_its_evidence(path, shapes):
    forward, backward = {"forward_warps": 8}, {"keys_warps": 4}
    tuned_file.write(path, "9.0", shapes, {"forward_warps": 2, "gone": 1}, {"on": "0"}, apart=list(backward))
    tuned_file.write(path, "9.0", shapes, backward, {"on": "1"}, backward=True, apart=list(forward))
    tuned_file.write(path, "9.0", shapes, forward, {"on": "2"}, apart=list(backward))
    entry = read(path)["9.0"]
    # A tunable that the op no longer has is dropped.
    assert (entry["shapes"][shapes] if shapes else entry["values"]) == {**forward, **backward}
    part = f"{shapes} · " if shapes else ""
    assert entry["measured"] == {f"{part}forward": {"on": "2"}, f"{part}backward": {"on": "1"}}


@pytest.mark.parametrize("text", ["{", "[]", '{"9.0": 1}'])
def test_a_file_that_is_not_a_tuned_file_is_left_alone(path, text):
    path.write_text(text)
    with pytest.raises(KernelgenError, match="delete it to have the defaults"):
        tuned_file.write(path, "9.0", None, {"a": 1}, {})
    assert path.read_text() == text
