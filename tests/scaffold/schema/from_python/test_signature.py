"""Schemas of Python signatures: `torch.library.infer_schema` says what they are."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from kernelgen.scaffold.schema.from_python.reference import read
from kernelgen.scaffold.schema.from_python.source_file import FunctionError
from tests.scaffold.schema.from_python.python_files import load, run, write

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("default", "value"),
    [
        ("1 / 8", 0.125),
        ("-(1 / 8)", -0.125),
        ("-(LOW - 1)", 0.75),
        ("math.sqrt(0.5) * 2**-3", 0.5**0.5 / 8),
        ("2 * math.pi", 6.283185307179586),
        ("LOW", 0.25),
        ("1 - LOW", 0.75),
    ],
)
def test_a_default_may_be_computed_of_constants(tmp_path: Path, default: str, value: float):
    head = "import math\nfrom torch import Tensor\n\nLOW = 1 / 4\n\n\n"
    function = read(write(tmp_path, f"{head}def op(x: Tensor, a: float = {default}) -> Tensor: ...\n"), "op")
    assert float(function.schema.arguments[1].default.text) == value
    assert run(function.source)["op"].__defaults__ == (value,)


def meaning(text: str) -> str:
    return str(torch._C.parse_schema("ns::op" + text))


HEADERS = {
    "plain": """
        import torch
        import typing
        from collections.abc import Sequence
        from torch import Tensor
        from typing import List, Optional, Union
        """,
    "aliased": """
        import torch as t
        import typing as ty
        import collections.abc as abc
        from torch import Tensor as T, dtype as DT
        from typing import Optional as Maybe, Sequence as Seq
        Rows = t.Tensor
        Either = ty.Optional[T]
        """,
    "future": """
        from __future__ import annotations
        import torch
        from torch import Tensor
        """,
}
SIGNATURES = [
    ("plain", "x: Tensor, y: torch.Tensor", "Tensor"),
    ("plain", "x: Optional[Tensor], y: Tensor | None, z: Union[Tensor, None], w: Union[None, int]", "None"),
    (
        "plain",
        "x: Sequence[Tensor], y: List[Tensor], z: list[Tensor], w: typing.Sequence[int]",
        "List[Tensor]",
    ),
    ("plain", "x: list[Optional[Tensor]], y: Sequence[Tensor | None]", "list[Tensor]"),
    ("plain", "n: int, a: list[int], b: Optional[List[int]], c: Sequence[int] | None", "int"),
    ("plain", "p: float, q: Optional[float], r: list[float], s: Sequence[float] | None = None", "float"),
    ("plain", "b: bool, c: Optional[bool], d: list[bool], s: str, t: Optional[str]", "bool"),
    ("plain", "d: torch.dtype, e: Optional[torch.dtype], f: torch.device, g: torch.device | None", "Tensor"),
    (
        "plain",
        "x: Tensor, eps: float = 1e-6, n: int = -1, b: bool = True, s: str = 'a', k: float = -0.5",
        "Tensor",
    ),
    (
        "plain",
        "x: Tensor, *, d: torch.dtype = torch.float32, v: torch.device = torch.device('cuda:1')",
        "Tensor",
    ),
    ("plain", "x: Tensor, n: Optional[int] = None, d: Optional[torch.dtype] = torch.bfloat16", "Tensor"),
    ("plain", "x: Tensor, *, p: float = 1, q: float = 1_000.5, n: int = 0x10", "tuple[Tensor, Tensor]"),
    ("plain", "x: 'Tensor', y: 'Optional[Tensor]', z: list['Tensor']", "'Tensor'"),
    ("plain", "x: Tensor", "typing.Tuple[Tensor, int, List[Tensor]]"),
    ("aliased", "x: T, y: t.Tensor, z: Rows, w: Either, d: DT, e: t.dtype = t.float16", "ty.Tuple[T, T]"),
    ("aliased", "x: Maybe[T], y: Seq[T], z: abc.Sequence[int], w: ty.List[float], v: t.device", "T"),
    ("future", "x: Tensor, y: Tensor | None, *, n: int = 3, z: list[Tensor]", "tuple[Tensor, Tensor]"),
]


@pytest.mark.parametrize(("header", "parameters", "result"), SIGNATURES)
def test_schema_is_the_one_pytorch_infers(tmp_path: Path, header: str, parameters: str, result: str):
    path = write(tmp_path, dedent(HEADERS[header]) + f"\ndef op({parameters}) -> {result}: ...\n")
    expected = torch.library.infer_schema(load(path).op, mutates_args=())
    function = read(path, "op")
    assert meaning(function.schema.text) == meaning(expected)
    assert meaning(torch.library.infer_schema(run(function.source)["op"], mutates_args=())) == meaning(expected)


def test_mutated_arguments(tmp_path: Path):
    path = write(
        tmp_path,
        """
        from torch import Tensor
        def op(x: Tensor, out: Tensor, more: list[Tensor]) -> None:
            out.copy_(x)
        """,
    )
    expected = torch.library.infer_schema(load(path).op, mutates_args=("out", "more"))
    assert read(path, "op", mutates=("out", "more")).schema.text == expected
    with pytest.raises(FunctionError, match=r"op has no argument uot to mutate; did you mean out\?"):
        read(path, "op", mutates=("uot",))


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("tuple[Tensor, Tensor]", "Tensor[]"),
        ("tuple[Tensor, ...]", "Tensor[]"),
        ("tuple[int, int] | None", "SymInt[]?"),
        ("tuple[float, float, float]", "float[]"),
    ],
)
def test_a_tuple_of_one_type_is_a_list(tmp_path: Path, annotation: str, expected: str):
    path = write(tmp_path, f"from torch import Tensor\ndef op(x: Tensor, s: {annotation}) -> Tensor: ...\n")
    assert read(path, "op").schema.text == f"(Tensor x, {expected} s) -> Tensor"


@pytest.mark.parametrize(
    ("signature", "body", "expected", "unsaid"),
    [
        ("(x)", "return x", "(Tensor x) -> Tensor", ("x", "its result")),
        (
            "(x, eps=EPS)",
            "return x, (x, x)",
            "(Tensor x, float eps=1e-6) -> (Tensor, Tensor)",
            ("x", "eps", "its result"),
        ),
        (
            "(x, k=-2, p=True, mode='a', w=None) -> Tensor",
            "return x",
            '(Tensor x, SymInt k=-2, bool p=True, str mode="a", Tensor? w=None) -> Tensor',
            ("x", "k", "p", "mode", "w"),
        ),
        ("(x: Tensor, *, s=1.0)", "def inner():\n        return 1, 2\n    x.add_(s)", None, ("s", "its result")),
        ("(x: Tensor)", "return (x if x.dim() else -x)", "(Tensor x) -> Tensor", ("its result",)),
    ],
)
def test_what_annotations_leave_unsaid_is_assumed(tmp_path: Path, signature, body, expected, unsaid):
    path = write(tmp_path, f"from torch import Tensor\nEPS = 1e-6\ndef op{signature}:\n    {body}\n")
    function = read(path, "op")
    assert function.schema.text == (expected or "(Tensor x, *, float s=1.0) -> ()")
    assert function.unsaid == unsaid


def test_what_a_schema_has_beyond_infer_schema(tmp_path: Path):
    path = write(
        tmp_path,
        """
        import math
        import torch
        from torch import Tensor
        from typing import Optional
        EPS = 1e-5
        def op(x: Tensor, pad: list[int] = (0, 1), eps: float = EPS, p: float | None = 2,
               *, z: Optional['Tensor'], names: list[str],
               m: torch.memory_format = torch.channels_last) -> Tensor:
            return x
        """,
    )
    assert read(path, "op").schema.text == (
        "(Tensor x, SymInt[] pad=[0, 1], float eps=1e-5, float? p=2.0, *, Tensor? z, str[] names, "
        "MemoryFormat m=2) -> Tensor"
    )
