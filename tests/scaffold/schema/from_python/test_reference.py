"""Reading a function as a reference: running the function is the oracle."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from kernelgen.errors import UsageError
from kernelgen.scaffold.schema.from_python.reference import read, split_spec
from kernelgen.scaffold.schema.from_python.source_file import FunctionError
from tests.scaffold.schema.from_python.python_files import load, run, write

torch = pytest.importorskip("torch")


def test_source_takes_along_what_the_function_needs_and_nothing_else(tmp_path: Path):
    path = write(
        tmp_path,
        '''
        """A module."""
        from __future__ import annotations

        import math, os
        import numpy as np
        import torch
        import torch.nn.functional as F
        from torch import Tensor, nn

        raise_if_run = 1 / 0
        # The scale of a gate.
        SCALE = math.sqrt(0.5)
        LIMIT, UNUSED = 3.0, 4.0


        def helper(x: Tensor) -> Tensor:
            return deeper(x) * SCALE


        def deeper(x):
            return F.relu(x).clamp(max=LIMIT)


        def unused(x):
            return os.sep + np.pi


        @torch.compile(dynamic=True)
        def op(x: Tensor, eps: float = 1e-6) -> Tensor:
            """Add, and keep below the limit.

            More."""
            half = [v / 2 for v in (1.0, 2.0)]
            return helper(x) + eps * half[0]  # the end
        ''',
    )
    function = read(path, "op")
    assert function.source == dedent(
        '''\
        from __future__ import annotations

        import math

        import torch.nn.functional as F
        from torch import Tensor

        # The scale of a gate.
        SCALE = math.sqrt(0.5)

        LIMIT, UNUSED = 3.0, 4.0


        def helper(x: Tensor) -> Tensor:
            return deeper(x) * SCALE


        def deeper(x):
            return F.relu(x).clamp(max=LIMIT)


        def op(x: Tensor, eps: float = 1e-6) -> Tensor:
            """Add, and keep below the limit.

            More."""
            half = [v / 2 for v in (1.0, 2.0)]
            return helper(x) + eps * half[0]  # the end
        '''
    )
    assert function.docstring == "Add, and keep below the limit.\n\nMore."
    assert function.packages == ()
    x = torch.tensor([-1.0, 2.0, 8.0])
    renamed = run(function.source_as("gate"))
    assert "op" not in renamed
    assert torch.equal(renamed["gate"](x), run(function.source)["op"](x))


def test_every_kind_of_binding_comes_along(tmp_path: Path):
    path = write(
        tmp_path,
        """
        import torch; from torch import Tensor; K = 2
        from typing import TYPE_CHECKING
        try:
            import numpy as np
        except ImportError:
            np = None
        if K:
            W = 3
        else:
            W = 4
        W += 1
        class Box:
            scale = K
        def wrap(f):
            return f
        @wrap
        def helper(x):
            return x * Box.scale * W
        def op(x: Tensor) -> Tensor:
            from math import pi
            def inner(y):
                return helper(y) if np is None or y is not None else op(y)
            return inner(x) + (lambda z: z * pi)(x) + sum(i for i in range(K))
        """,
    )
    function = read(path, "op")
    x = torch.ones(2)
    expected = load(path).op(x)
    assert torch.equal(run(function.source)["op"](x), expected)
    assert function.packages == ("numpy",)
    renamed = run(function.source_as("other"))
    assert torch.equal(renamed["other"](x), expected)
    assert renamed["op"] is renamed["other"]  # it calls itself by its old name
    for taken in ("helper", "sum", "K", "no good", "class"):
        with pytest.raises(UsageError, match="cannot be renamed"):
            function.source_as(taken)


def test_a_function_whose_name_is_part_of_def(tmp_path: Path):
    path = write(tmp_path, "from torch import Tensor\ndef e(e: Tensor) -> Tensor:\n    return e\n")
    assert "\n\n\ndef gate(e: Tensor) -> Tensor:\n    return e\n" in read(path, "e").source_as("gate")


def test_nothing_is_run(tmp_path: Path):
    path = write(
        tmp_path,
        """
        raise SystemExit("ran")
        from torch import Tensor
        def op(x: Tensor) -> Tensor:
            return x
        """,
    )
    assert read(path, "op").source.startswith("from torch import Tensor\n\n\ndef op")


# --- what is refused ------------------------------------------------------------------------------

_IMPORTS = "import functools, torch\nfrom torch import Tensor, types\n"

REFUSED = [  # a file, and the sentence with the line and the caret under it
    ("def op(x, k=[1]): ...", "op.py:3: k has no annotation; write one, such as `k: Tensor`.", "          ^"),
    (
        "def op(x): return (x, x) if x.dim() else x",
        "op.py:3: op returns now one number of results, now another; write it so that all are alike.",
        "^",
    ),
    (
        "def op(*xs: Tensor) -> Tensor: ...",
        "op.py:3: An operator takes a fixed number of arguments; take a list in place of *xs, such as list[Tensor].",
        "        ^",
    ),
    (
        "def op(**kw: int) -> Tensor: ...",
        "op.py:3: An operator takes a fixed number of arguments; name those of **kw.",
        "         ^",
    ),
    (
        "def op(x: Tensor, /) -> Tensor: ...",
        "op.py:3: An operator's arguments have names to call them by; leave out the '/'.",
        "       ^",
    ),
    (
        "def op(p: types.Number) -> Tensor: ...",
        "op.py:3: The type Scalar is not carried by PyTorch's stable ABI; use float (or int), or two operators.",
        "       ^",
    ),
    (
        "def op(g: torch.Generator | None) -> Tensor: ...",
        "op.py:3: The type Generator is not carried by PyTorch's stable ABI; "
        "pass an int seed, and an int offset if needed.",
        "       ^",
    ),
    (
        "def op(s: tuple[int, float]) -> Tensor: ...",
        "op.py:3: A tuple is no type of a schema; write a list for s, such as list[int], or an argument for each item.",
        "          ^",
    ),
    (
        "def op(s: tuple) -> Tensor: ...",
        "op.py:3: A tuple is no type of a schema; write a list for s, such as list[int].",
        "          ^",
    ),
    (
        "def op(x: Tensor) -> tuple[Tensor, ...]: ...",
        "op.py:3: A tuple of any length cannot be returned; write list[Tensor].",
        "                     ^",
    ),
    (
        "def op(x: Tensor) -> tuple[Tensor]: ...",
        "op.py:3: An operator that returns one value returns it bare; leave out the tuple.",
        "                     ^",
    ),
    (
        "def op(x: Tensor) -> dict[str, Tensor]: ...",
        "op.py:3: An operator returns no dict; return a tuple, or a NamedTuple or a dataclass that names the results.",
        "                     ^",
    ),
    (
        "def op(n: int = 1.5) -> Tensor: ...",
        "op.py:3: The default 1.5 does not fit the type SymInt.",
        "       ^",
    ),
    (
        "def op(p: float = float('inf')) -> Tensor: ...",
        "op.py:3: PyTorch's schema parser cannot write inf; take float? with default None instead.",
        "       ^",
    ),
    (
        "def op(n: int = len('ab')) -> Tensor: ...",
        "op.py:3: The default of n is not a literal, nor a dtype such as torch.float32.",
        "                ^",
    ),
    (
        "def op(x: 'Ten sor') -> Tensor: ...",
        "op.py:3: The annotation 'Ten sor' is not Python.",
        "          ^",
    ),
    (
        "async def op(x: Tensor) -> Tensor: ...",
        "op.py:3: op is async; an operator returns its results at once.",
        "^",
    ),
    (
        "def op(x: Tensor) -> Tensor:\n    yield x",
        "op.py:3: op is a generator; an operator returns its results at once.",
        "^",
    ),
    ("op = lambda x: x", "op.py:3: op is a lambda, which has no annotations; write it with def.", "^"),
    ("class A:\n    def op(self): ...", "op.py:4: op is a method of A; write it as a function.", "    ^"),
    (
        "def f():\n    def op(): ...",
        "op.py:4: op is defined inside something else; move it to the top of the file.",
        "    ^",
    ),
    ("from torch import relu as op", "op.py:3: op is imported here; name the file that defines it.", "^"),
    (
        "def op(x: Tensor) -> Tensor: ...\nop = torch.vmap(op)",
        "op.py:4: op is not defined by a plain def at the top of the file.",
        "^",
    ),
    (
        "@functools.cache\ndef op(x: Tensor) -> Tensor: ...",
        "op.py:3: What @functools.cache does to op is not known here; remove the decorator.",
        " ^",
    ),
    (
        "def op(x: Tensor) -> Tensor:\n    é = x; return é + missing",
        "op.py:4: missing is not defined in this file.",
        "                      ^",
    ),
    (
        "from math import *\ndef op(x: Tensor) -> Tensor:\n    return x * pi",
        "op.py:5: pi is not defined in this file; if it comes from `from math import *`, import it by name.",
        "               ^",
    ),
    (
        "from .a import b\ndef op(x: Tensor) -> Tensor:\n    return b(x)",
        "op.py:3: A relative import would fail in the op's folder; import by the full name, or copy the code here.",
        "^",
    ),
    (
        "def op(x: Tensor) -> Tensor:\n    from . import b\n    return b(x)",
        "op.py:4: A relative import would fail in the op's folder; import by the full name, or copy the code here.",
        "    ^",
    ),
    (
        "import beside\ndef op(x: Tensor) -> Tensor:\n    return beside.f(x)",
        "op.py:3: beside is beside this file and would not be beside the op; copy its code here.",
        "^",
    ),
    (
        "N = 0\ndef op(x: Tensor) -> Tensor:\n    global N\n    N = 1\n    return x",
        "op.py:5: N is written as a global; an operator has no state between calls.",
        "    ^",
    ),
    ("op = = 1", "op.py:3: This is not Python: invalid syntax.", "     ^"),
]


@pytest.mark.parametrize(("text", "sentence", "caret"), REFUSED, ids=[text.split("\n")[0] for text, _, _ in REFUSED])
def test_refuses_with_a_place_and_a_caret(tmp_path, monkeypatch, text: str, sentence: str, caret: str):
    monkeypatch.chdir(tmp_path)
    Path("beside.py").touch()
    Path("op.py").write_text(_IMPORTS + text, encoding="utf-8")
    with pytest.raises(FunctionError) as caught:
        read(Path("op.py"), "op")
    line = (_IMPORTS + text).split("\n")[int(sentence.split(":")[1]) - 1]
    assert str(caught.value) == f"{sentence}\n  {line}\n  {caret}"
    assert caught.value.exit_code == 2


def test_unused_imports_that_cannot_come_along_do_not_matter(tmp_path: Path):
    path = write(
        tmp_path,
        """
        from . import sibling
        import ops, math
        from torch import Tensor
        def op(x: Tensor) -> Tensor:
            sibling = x
            return sibling * math.pi
        """,
    )
    assert read(path, "op").source.startswith("import math\n\nfrom torch import Tensor\n\n\n")


def test_no_such_file_or_function(tmp_path: Path):
    with pytest.raises(FunctionError, match=r"^There is no file .*none\.py\.$"):
        read(tmp_path / "none.py", "op")
    path = write(tmp_path, "def soft_cap(): ...\ndef other(): ...\n")
    with pytest.raises(FunctionError, match=r"has no function softcap; did you mean soft_cap\?$"):
        read(path, "softcap")
    with pytest.raises(FunctionError, match=r"has no function zzz; it has soft_cap, other\.$"):
        read(path, "zzz")
    path.write_bytes(b"x = '\xff'\n")
    with pytest.raises(FunctionError, match="not text in the encoding"):
        read(path, "x")
    with pytest.raises(FunctionError, match="cannot be read"):
        read(tmp_path, "x")


@pytest.mark.parametrize(
    ("spec", "expected"),
    (
        ("ops.py:relu", ("ops.py", "relu")),
        ("a b/ops.py:relu", ("a b/ops.py", "relu")),
        (r"C:\work\ops.py:relu", (r"C:\work\ops.py", "relu")),
    ),
)
def test_split_spec(spec: str, expected: tuple[str, str]):
    path, name = split_spec(spec)
    assert (str(path), name) == expected


@pytest.mark.parametrize("spec", ("ops.py", "ops.py:", ":relu", "ops:relu", r"C:\work\ops.py", "ops.py:a.b"))
def test_split_spec_refuses(spec: str):
    with pytest.raises(UsageError, match=r"^Write the function as FILE\.py:FUNCTION, not "):
        split_spec(spec)
