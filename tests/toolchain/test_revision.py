"""An earlier revision of a project, checked out aside: which of its ops are built."""

import pytest

from kernelgen.toolchain.revision import keep_only


@pytest.fixture
def project(tmp_path):
    ops = {"first": "", "second": "from ..first import first", "third": "", "flagged": "", "last": "import torch"}
    for name, text in ops.items():
        folder = tmp_path / "src/demo/ops" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f'"""{name}"""\n{text}\n')
        (folder / "kernel.cu").write_text("")
    (tmp_path / "setup.py").write_text('NVCC_FLAGS = {"flagged": ["--use_fast_math"]}\n')
    (tmp_path / "src/demo/__init__.py").write_text("from .ops import *\n")
    return tmp_path


def left(project):
    return sorted(folder.name for folder in (project / "src/demo/ops").iterdir())


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        (["third"], ["flagged", "third"]),
        (["second"], ["first", "flagged", "second"]),
        (["third", "last"], ["flagged", "last", "third"]),
    ],
)
def test_ops_that_nothing_names_are_left_out(project, ops, expected):
    keep_only(project, "demo", ops)
    assert left(project) == expected


def test_an_op_that_the_package_names_stays(project):
    (project / "src/demo/fused.py").write_text("from .ops.last import last\n")
    keep_only(project, "demo", ["third"])
    assert left(project) == ["flagged", "last", "third"]
