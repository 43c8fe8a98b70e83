"""What a function returned is held against what its signature says."""

import pytest

from kernelgen.lab.new_op.returned import ReturnedError, check_count


def test_as_many_tensors_as_it_says():
    check_count("op", 2, 2)


@pytest.mark.parametrize(
    ("said", "returned", "sentence"),
    [
        (1, 2, "op returned 2 tensors, its signature says 1; annotate it by `-> tuple[Tensor, Tensor]`."),
        (2, 1, "op returned 1 tensor, its signature says 2; annotate it by `-> Tensor`."),
    ],
)
def test_another_number_of_tensors(said, returned, sentence):
    with pytest.raises(ReturnedError) as caught:
        check_count("op", said, returned)
    assert str(caught.value) == sentence
    assert caught.value.exit_code == 2
