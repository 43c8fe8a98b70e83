"""The pages are true: commands print what is shown, links lead somewhere, every option is described."""

from __future__ import annotations

import importlib
import re

import pytest
import yaml

from kernelgen.cli import VERBS
from kernelgen.cli.parser import Parser
from tests.docs.pages import PAGES, ROOT, Command, anchors, blocks, links, read
from tests.stamped.conftest import quickly


def steps(page: str) -> list[Command | tuple[str, str]]:
    """What a reader does, in order: files to write and commands to run."""
    actions: list[Command | tuple[str, str]] = []
    for block in blocks(page):
        if block.file:
            actions.append((block.file, block.text))
        elif block.language == "console" and block.reason_not_run is None:
            actions += block.commands()
    return actions


RUNNABLE = [page for page in PAGES if any(isinstance(step, Command) for step in steps(page))]


def prints(output: str, expected: list[str]) -> bool:
    """Whether the output is the expected lines; `…` stands for the rest of a line, or for any lines."""
    # A step of more than 10 s prints its progress in lines of "kernelgen: ", as on a busy machine; no page shows them.
    # Nor does one show what matplotlib says where it has no cache of fonts yet.
    shown = [_pattern(line) for line in expected if line.startswith("kernelgen: ")]
    other = "".join(f"(?!{line}$)" for line in shown)
    output = re.sub(rf"^{other}(kernelgen: |Matplotlib is building the font cache).*\n", "", output, flags=re.MULTILINE)
    pattern = ""
    for line in expected:
        pattern += r"(?:.*\n)*?" if line == "…" else _pattern(line) + r"\n"
    return re.fullmatch(pattern + r"\n*", output) is not None


def _pattern(line: str) -> str:
    return re.escape(line.rstrip()).replace("…", ".*") + " *"


def test_progress_may_be_printed_beside_what_a_page_shows():
    expected = ["kernelgen: compiling x for …, to say what it costs", "8 trials"]
    note, progress = "kernelgen: compiling x for this CPU, to say what it costs\n", "kernelgen: measuring\n"
    assert prints(f"{note}{progress}8 trials\n", expected)
    assert prints(f"{progress}8 trials\n", ["8 trials"])
    assert not prints(f"{progress}8 trials\n", expected)


# The op whose kernel a page holds.
KERNELS = {"docs/tutorial.md": "my_mean"}
BUILD = "kernelgen build"
# Compiles the op's CUDA sources, and no recipe's: other tests build those.
COMPILE_CUDA = (
    "USE_CUDA=1 python -m build_tools configure > configured.json && rm configured.json && "
    "ninja -f build/release/build.ninja "
    "$(ninja -f build/release/build.ninja -t targets all | grep -o '^build/release/{op}/.*cu.*[.]o')"
)


def with_cuda_of(op: str, actions: list[Command | tuple[str, str]]) -> list[Command | tuple[str, str]]:
    """The steps with one more, after the page's build of the op."""
    (build,) = (place for place, step in enumerate(actions) if isinstance(step, Command) and step.text == BUILD)
    command = Command(COMPILE_CUDA.format(op=op), ["…", f"[…] nvcc …/{op}/kernel.cu …", "…"], actions[build].line)
    return [*actions[: build + 1], command, *actions[build + 1 :]]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE)
def test_commands_do_what_the_page_says(page, shell):
    actions = with_cuda_of(KERNELS[page], steps(page)) if page in KERNELS else steps(page)
    commands = [step for step in actions if isinstance(step, Command)]
    results = shell(actions, USE_CUDA="0", **quickly("-O1"))
    for (command, code, output), after in zip(results, [*commands[1:], None], strict=False):
        place = f"{page}:{command.line}: $ {command.text}\n{output}"
        announced = after is not None and after.text == "echo $?"
        assert code == 0 or announced, f"exit code {code} of {place}"
        assert not command.expected or prints(output, command.expected), f"other output than shown of {place}"
    assert len(results) == len(commands), f"the shell of {page} ended before {commands[len(results)].text!r}"


@pytest.mark.parametrize("page", PAGES)
def test_marks_are_understood(page):
    for block in blocks(page):
        if block.mark:
            assert block.file or block.reason_not_run, f"{page}:{block.line}: <!-- {block.mark} -->"
        assert block.language, f"{page}:{block.line}: name the block's language"


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_compile(page):
    for block in blocks(page):
        if block.language == "python":
            compile(block.text, f"{page}:{block.line}", "exec")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in links(page):
        target, _, heading = link.partition("#")
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page} links to {link}"
        if heading:
            assert heading in anchors(path.resolve().relative_to(ROOT).as_posix()), f"{page} links to {link}"


def parser_of(verb: str, monkeypatch) -> Parser:
    """The parser that a verb builds, caught when it is about to parse."""

    class TakenError(Exception):
        pass

    def take(parser, *_):
        raise TakenError(parser)

    with monkeypatch.context() as patch:
        patch.setattr(Parser, "parse_args", take)
        patch.setattr(Parser, "parse_known_args", take)
        with pytest.raises(TakenError) as taken:
            importlib.import_module(VERBS[verb][1]).run([])
    return taken.value.args[0]


def sections(page: str) -> dict[str, str]:
    """The text below each `## kernelgen VERB …` heading, by verb."""
    parts = re.split(r"^## `kernelgen ([\w-]+)[^\n]*`$", read(page), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def table(section: str, heading: str) -> list[str]:
    """The first words of the first column of the table whose first heading this is."""
    rows = re.search(rf"^\| {heading} \|.*\n((?:\|.*\n)*)", section, re.M)[1]
    return re.findall(r"^\| `([^` ]+)", rows, re.M)


def test_the_reference_describes_every_verb():
    assert list(sections("docs/commands.md")) == list(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_the_reference_describes_every_option(verb, monkeypatch):
    actions = [action for action in parser_of(verb, monkeypatch)._actions if action.dest != "help"]
    names = [action.option_strings[-1] if action.option_strings else action.metavar for action in actions]
    assert table(sections("docs/commands.md")[verb], "takes") == names


def test_the_reference_names_the_verbs_with_a_dry_run(monkeypatch):
    (paragraph,) = re.findall(r"^\*\*Writing sources\*\*: .*?\n\n", read("docs/commands.md"), re.M | re.S)
    named = set(re.findall(r"`([\w-]+)(?: --dry-run)?`", paragraph)) & set(VERBS)
    assert named == {verb for verb in VERBS if "--dry-run" in parser_of(verb, monkeypatch)._option_string_actions}


def test_the_reference_describes_every_question():
    questions = yaml.safe_load((ROOT / "copier.yml").read_text())
    names = [
        name
        for name, question in questions.items()
        if not name.startswith("_") and question.get("when") is not False and question.get("ask") is not False
    ]
    assert table(sections("docs/commands.md")["new"], "name") == names
