"""Spaces: what a lab.py may list."""

import pytest

from kernelgen.errors import LabError
from kernelgen.tune import space

TUNABLES = {"cpu": {"grain": (1, 2, 4), "fast": (False, True)}}


def test_every_combination_is_a_point():
    op_space = space.read("op", TUNABLES, "cpu")
    points = list(op_space.points())
    assert op_space.size == len(points) == 6
    assert points[0] == {"grain": 1, "fast": False}
    assert all(op_space.values(op_space.indices(values)) == values for values in points)
    assert op_space.indices({"grain": 3, "fast": True}) is None
    assert op_space.indices({"grain": 1}) is None


@pytest.mark.parametrize(
    ("capability", "backward", "part"),
    [
        (None, False, "cuda"),
        ("8.0", False, "cuda"),
        ("9.0a", False, "cuda 9.0"),
        ("9.0", True, "cuda backward"),
        ("10.0", True, "cuda 10.0 backward"),
    ],
)
def test_a_chip_and_the_gradient_may_have_a_part_of_their_own(capability, backward, part):
    parts = ("cuda", "cuda 9.0", "cuda backward", "cuda 10.0 backward")
    tunables = {name: {name.replace(" ", "_").replace(".", "_"): (1, 2)} for name in parts}
    assert space.part(tunables, "cuda", capability, backward) == part
    assert list(space.read("op", tunables, "cuda", capability, backward).tunables) == list(tunables[part])


def test_without_a_part_of_its_own_the_gradient_has_the_forwards():
    assert space.part(TUNABLES, "cpu", None, True) == "cpu"


def test_a_chip_may_have_nothing_to_tune():
    with pytest.raises(LabError, match=r"op has nothing to tune for cuda 7\.5"):
        space.read("op", {"cuda": {"n": (1, 2)}, "cuda 7.5": {}}, "cuda", "7.5")


def test_the_version_is_that_of_the_values():
    versions = {space.read("op", {"cpu": {"n": values}}, "cpu").version for values in ((1, 2), (1, 2), (1, 3), (2, 1))}
    assert len(versions) == 3


@pytest.mark.parametrize(
    ("tunables", "sentence"),
    [
        ({}, "op has no tunables; list them in its lab.py"),
        ({"cuda": {"threads": (1, 2)}}, "op has no tunables for cpu, only for cuda"),
        ({"threads": (1, 2)}, "TUNABLES should hold the tunables of cpu and of cuda"),
        ({"cuda 9": {"n": (1, 2)}}, "TUNABLES should hold the tunables of cpu and of cuda"),
        ({"cuda forward": {"n": (1, 2)}}, "TUNABLES should hold the tunables of cpu and of cuda"),
        ([1], "TUNABLES should hold the tunables of cpu and of cuda"),
        ({"cpu": {"a-b": (1,)}}, "'a-b' cannot name one"),
        ({"cpu": {"n": ()}}, "should list different values"),
        ({"cpu": {"n": (1, 1)}}, "should list different values"),
        ({"cpu": {"n": 3}}, "should list different values"),
        ({"cpu": {"n": (1.5,)}}, "should hold whole numbers or bools"),
        ({"cpu": {"n": ("a",)}}, "should hold whole numbers or bools"),
    ],
)
def test_tunables_that_make_no_space_are_refused(tunables, sentence):
    with pytest.raises(LabError, match=sentence):
        space.read("op", tunables, "cpu")
