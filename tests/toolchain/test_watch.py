"""What `kernelgen build --watch` takes for a source, and which op's tests a change runs."""

from pathlib import Path

import pytest

from kernelgen.toolchain import watch

OP = Path("src/demo/ops/attention")


@pytest.mark.parametrize("source", ["kernel.cu", "sm80/forward.cu", "sm90/common.cuh"])
def test_a_source_in_any_folder_of_an_op_is_watched(tmp_path, source):
    path = tmp_path / OP / source
    path.parent.mkdir(parents=True)
    path.touch()
    assert list(watch._sources(tmp_path)) == [path]
    assert watch._op_folder(tmp_path, path) == OP


def test_a_source_that_ops_share_is_of_no_op(tmp_path):
    assert watch._op_folder(tmp_path, tmp_path / "src/demo/include/cuda/vector.cuh") is None
    assert watch._op_folder(tmp_path, tmp_path / "src/demo/ops/__init__.py") is None
