"""No argument of an op has a name in C++ that the stamped sources of `pointwise` and `row_wise` use themselves."""

import re
from pathlib import Path

import pytest

from kernelgen.scaffold.formula.values import TAKEN
from kernelgen.scaffold.schema.identifiers import CPP_WORDS, PYTHON_WORDS

TEMPLATE = Path(__file__).resolve().parents[3] / "template"
EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
MACROS = ("formula.jinja", "row_formula.jinja")


def bare_names(code: str) -> set[str]:
    """The identifiers of C++ that are no members, nor in a namespace."""
    code = re.sub(r"//[^\n]*|^\s*#[^\n]*", "", code, flags=re.MULTILINE)
    code = re.sub(r'"[^"\n]*"', '""', code)
    return set(re.findall(r"(?<![\w.:>])[A-Za-z]\w*", code))


def names_of(template: str) -> set[str]:
    """Those of a template: of its text, and of the lines that its expressions hold. A name that has something filled in
    is that of an argument, too."""
    template = re.sub(r"\{#.*?#\}", "", template, flags=re.DOTALL)
    quoted = [text for part in EXPRESSION.findall(template) for text in re.findall(r"'([^']*)'", part)]
    lines = [text for text in quoted if re.search(r"[;(){}=<>]|const |auto ", text)]
    whole = [line if line[:1].isspace() else re.sub(r"^\w+", "", line) for line in lines]
    plain = EXPRESSION.sub("", re.sub(r"\w*\{\{.*?\}\}\w*", " ", template, flags=re.DOTALL))
    return bare_names(plain).union(*map(bare_names, whole))


def sources(recipe: str) -> list[Path]:
    folders = TEMPLATE.glob(f"src/*/ops/*ops_by_recipe.{recipe} *")
    return [path for folder in folders for stem in ("cpu", "cuda", "kernel") for path in folder.glob(f"{stem}.*")]


@pytest.mark.parametrize("recipe", ["pointwise", "row_wise"])
def test_names_of_the_stamped_sources_are_taken(recipe):
    read = [*sources(recipe), *(TEMPLATE / "_macros" / name for name in MACROS)]
    assert len(read) > len(MACROS) + 3
    used = set().union(*(names_of(path.read_text(encoding="utf-8")) for path in read))
    assert {"check_arguments", "CudaContext", "int64_t"} <= used
    assert sorted(used - TAKEN - CPP_WORDS - PYTHON_WORDS) == []
