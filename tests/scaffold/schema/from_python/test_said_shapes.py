"""The shapes that a function says of its tensors, and classes of results."""

from __future__ import annotations

import pytest

from kernelgen.scaffold.schema.from_python import reference
from kernelgen.scaffold.schema.from_python.source_file import FunctionError
from kernelgen.scaffold.shapes.parser import parse

HEAD = """
import dataclasses
import torch
import jaxtyping
from beartype import beartype
from dataclasses import dataclass
from jaxtyping import Bool, Float, Float32, Int, Int64, UInt8, jaxtyped
from torch import Tensor
from typing import NamedTuple, Optional
"""


def read(tmp_path, source: str) -> reference.Reference:
    path = tmp_path / "functions.py"
    path.write_text(HEAD + source, encoding="utf-8")
    return reference.read(path, "f")


@pytest.mark.parametrize(
    ("signature", "shapes"),
    (
        ('(x: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]', "x: b d -> b d"),
        ('(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch 2*d"]', "x: ... d -> ... 2*d"),
        ('(x: Float[Tensor, "... d"]) -> Bool[Tensor, "..."]', "x: ... d -> ... bool"),
        ('(x: Float[Tensor, ""]) -> Float[Tensor, ""]', "x: () -> ()"),
        ('(x: Float[Tensor, "d=3 _ _"]) -> Float[Tensor, "3"]', "x: 3 any1 any2 -> 3"),
        (
            '(q: Float[torch.Tensor, "s d"], t: jaxtyping.Float32[Tensor, "s d//2"]) -> Float[Tensor, "s d"]',
            "q: s d; t: s d//2 float32 -> s d",
        ),
        ("(x: \"Float[Tensor, 'b d']\", n: int = 2) -> \"Float[Tensor, 'b n']\"", "x: b d -> b n"),
        (
            '(x: Float[Tensor, "b d"], i: Optional[Int[Tensor, "b"]] = None) -> tuple[UInt8[Tensor, "b"], Tensor]',
            "",
        ),
        (
            '(x: Float[Tensor, "b d"], i: Int[Tensor, "b"]) -> tuple[UInt8[Tensor, "b"], Int64[Tensor, "b"]]',
            "x: b d; i: b int64 -> b uint8, b int64",
        ),
        # What --shapes cannot say.
        ('(x: Float[Tensor, "#b d"]) -> Float[Tensor, "b d"]', ""),
        ('(x: Float[Tensor, "b *rest"]) -> Float[Tensor, "b"]', ""),
        ('(x: Float[Tensor, "*a d"], y: Float[Tensor, "*b d"]) -> Float[Tensor, "d"]', ""),
        ('(x: Float[Tensor, "b d"], y: Tensor) -> Float[Tensor, "b d"]', ""),
    ),
)
def test_annotations_of_jaxtyping_give_the_shapes_and_the_reference_has_none(tmp_path, signature, shapes):
    function = read(tmp_path, f"@jaxtyped(typechecker=beartype)\ndef f{signature}:\n    raise ValueError\n")
    assert function.shapes == shapes
    assert "jaxtyp" not in function.source
    assert "Float" not in function.source
    assert function.packages == ()
    compile(function.source, "reference.py", "exec")
    if shapes:
        parse(shapes, function.schema)


def test_a_multi_line_annotation_is_replaced_where_it_stands(tmp_path):
    function = read(
        tmp_path, 'é = 1\ndef f(\n    x: Float[\n        Tensor, "b d"\n    ],  # é\n) -> Tensor:\n    return x + é\n'
    )
    assert "    x: Tensor,  # é\n" in function.source


GOOGLE = '''
    """Adds.

    Args:
        x: queries of shape (B, S, D)
        y (torch.Tensor): a table in float32,
            of shape [S, D].

    Returns:
        Tensor: of shape (B, S, D)

    Raises:
        ValueError: shape (Z, Z).
    """
'''
NUMPY = '''
    """Adds.

    Parameters
    ----------
    x : Tensor, shape (*, D)
        Queries.
    y : Tensor of shape (D,)

    Returns
    -------
    out : Tensor, shape (*, D)
    """
'''
SPHINX = '''
    """
    :param x: (B, 2*D) queries
    :param Tensor y: () a number
    :returns: (B, D)
    """
'''
AS_SHAPES = '''
    """Adds x -> y.

    `x: B S D; y: S D float32 -> B S D`
    """
'''
PARTIAL = '''
    """Args:
        x: of shape (B, D)
        y: the table
    Returns:
        of shape (B, D)
    """
'''


@pytest.mark.parametrize(
    ("docstring", "shapes"),
    (
        (GOOGLE, "x: B S D; y: S D float32 -> B S D"),
        (NUMPY, "x: ... D; y: D -> ... D"),
        (SPHINX, "x: B 2*D; y: () -> B D"),
        (AS_SHAPES, "x: B S D; y: S D float32 -> B S D"),
        (PARTIAL, ""),
        ('\n    """Of shape (B, D)."""\n', ""),
    ),
    ids=["google", "numpy", "sphinx", "as_shapes", "partial", "none"],
)
def test_docstrings_give_the_shapes(tmp_path, docstring, shapes):
    function = read(tmp_path, f"def f(x: Tensor, y: Tensor) -> Tensor:{docstring}    return x + y\n")
    assert function.shapes == shapes
    if shapes:
        parse(shapes, function.schema)


# ---- Classes of results


def test_a_class_of_results_is_kept_and_its_fields_name_the_results(tmp_path):
    for head in ("class C(NamedTuple):", "@dataclass(frozen=True)\nclass C:", "@dataclasses.dataclass\nclass C:"):
        fields = '    mean: Float[Tensor, "b"]\n    n: int\n'
        source = f'{head}\n{fields}\ndef f(x: Float[Tensor, "b d"]) -> "C":\n    return C(x, 1)\n'
        function = read(tmp_path, source)
        assert function.schema.text == "(Tensor x) -> (Tensor mean, SymInt n)"
        entry = function.schema.entry()
        expected = {"name": "C", "fields": ["mean", "n"], "is_dataclass": "dataclass" in head}
        assert (entry["container"], entry["python_return"]) == (expected, "C")
        assert f"{head}\n    mean: Tensor\n" in function.source


@pytest.mark.parametrize(
    ("definition", "sentence"),
    (
        ("class C:\n    x: Tensor", "C is no NamedTuple and no dataclass"),
        ("class B: pass\n@dataclass\nclass C(B):\n    x: Tensor", "no dataclass without bases"),
        ("@dataclass\nclass C:\n    pass", "C has no fields"),
        ("@dataclass\nclass C:\n    x: Tensor = dataclasses.field(init=False)", "no plain result"),
        ("@dataclass\nclass C:\n    x: complex", "complex is not carried"),
        ("@dataclass\nclass C:\n    x: dict", "Dict is not carried"),
    ),
)
def test_another_class_is_refused_with_a_sentence(tmp_path, definition, sentence):
    with pytest.raises(FunctionError, match=sentence):
        read(tmp_path, f"{definition}\n\ndef f(x: Tensor) -> C:\n    return C(x)\n")
