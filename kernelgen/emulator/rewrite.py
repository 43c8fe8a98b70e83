"""Turns preprocessed CUDA C++ into C++: launches, shared variables and inline assembly become calls of the emulator
(device/prelude.h). All else is ordinary C++ already, once CUDA's keywords are empty macros.

Every replacement keeps the number of lines, so that the compiler's line numbers hold. What cannot be rewritten becomes
a line at which the compiler says so.
"""

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kernelgen.emulator.assembly import assembly_call
from kernelgen.emulator.source_text import (
    CLOSING,
    LITERAL,
    MARKER,
    OPENING,
    closing_bracket,
    error_line,
    on_one_line,
    split,
)

RUNTIME_HEADER = re.compile(r'^# \d+ "(.*)/cuda_runtime_api\.h"', re.MULTILINE)
LINE_OF_PREPROCESSOR = re.compile(r"^#.*$", re.MULTILINE)
# What a toolkit's headers are called where they lie among the system's.
TOOLKIT_FILE = re.compile(r"/(?:cooperative_groups|cub|cuda|nv|thrust|crt)/|/(?:cuda_\w+|mma|cooperative_groups)\.hp*$")


def _word(name: str) -> str:
    """The pattern of a whole word. What comes before it is looked at last: `re` finds a fixed text twenty times as fast
    as a pattern that begins with `\\b`."""
    return rf"{name}(?<!\w{name})\b"


ASSEMBLY = re.compile(
    rf"(?:{_word('asm')}|{_word('__asm__')}|{_word('__asm')})\s*(?:volatile|__volatile__|__volatile)?\s*\("
)
SHARED = re.compile(_word("__shared__"))
# The keyword, and not an attribute's name.
NOT_INLINE = re.compile(rf"{_word('__noinline__')}(?<![(,]__noinline__)(?<![(,] __noinline__)")
BOUNDS = re.compile(rf"{_word('__launch_bounds__')}\s*\(")
CLUSTER = re.compile(rf"{_word('__cluster_dims__')}\s*\(")
BLOCK_SIZE = re.compile(rf"{_word('__block_size__')}\s*\(")
LAUNCH = re.compile(r"<<<")
KERNEL = re.compile(r"__attribute__\s*\(\(flatten\)\)")  # See __global__ in keywords.h.
# What may stand between a template's parameters and __global__, and what stands between that and a kernel's name.
SPECIFIERS = re.compile(r'(?:(?:static|inline|void|extern|"C"|__attribute__\s*\(\(\w+\)\))\s*)*$')
NAME_OR_END = re.compile(r"(\w+)\s*\(|[;{<]")
WITH_ARGUMENTS = ("__attribute__", "__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "alignas")
LAUNCH_FUNCTION = re.compile(rf"(?:{_word('emulator_launch_kernel')}|{_word('emulator_launch_cooperative')})\s*\(")
CAST = re.compile(
    r"\s*(?:\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*(?:const\s*)?\)"
    r"|(?:reinterpret|static)_cast<\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*>)"
)
ATTRIBUTE = re.compile(r"(?:alignas|__attribute__)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")


def toolkit_of(text: str) -> str | None:
    """The folder of the toolkit's headers, if the text has its runtime's."""
    header = RUNTIME_HEADER.search(text)
    return header and header[1]


def rewrite(text: str, toolkit: str | None = None) -> str:
    """The text, rewritten but for the headers of the system; `toolkit` is the folder of the toolkit's headers, which
    are not among those."""
    markers = list(MARKER.finditer(text))
    toolkit = toolkit or toolkit_of(text)
    # A macro of a system's header puts a marker of the system around what it stands for, in a file that is none.
    own_files = {marker[1] for marker in markers if " 3" not in marker[2]}
    parts = []
    begin = 0
    is_system = False
    for marker in markers:
        parts.append((is_system, text[begin : marker.start()]))
        begin = marker.start()
        is_system = marker[1] not in own_files and not _is_toolkit(marker[1], toolkit)
    parts.append((is_system, text[begin:]))
    merged = [
        (is_system, "".join(part for _, part in group))
        for is_system, group in itertools.groupby(parts, lambda part: part[0])
    ]
    own = "".join(part for is_system, part in merged if not is_system)
    state = _State(clusters=dict(_clusters(own)), kernels=_kernels(own))
    return "".join(part if is_system else _rewrite_part(part, state) for is_system, part in merged)


def _is_toolkit(path: str, toolkit: str | None) -> bool:
    if TOOLKIT_FILE.search(path):
        return True
    return toolkit is not None and toolkit != "/usr/include" and path.startswith(f"{toolkit}/")


@dataclass
class _State:
    """What the rules share."""

    clusters: dict[str, str]  # The sizes of clusters, by kernel.
    kernels: dict[str, set[tuple[str, str]]]  # The parameters of the template and of the function, by kernel.
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)


def _rewrite_part(text: str, state: _State) -> str:
    text = NOT_INLINE.sub("", text)
    text = _replace(text, ASSEMBLY, assembly_call)
    text = _replace(text, SHARED, lambda t, a, b: _shared(t, a, b, state))
    text = _replace(text, CLUSTER, lambda t, a, b: _without_arguments(t, a, b))
    text = _replace(text, BLOCK_SIZE, lambda t, a, b: _refused(t, a, b, "__block_size__"))
    text = _replace(text, BOUNDS, _bounds)
    text = _replace(text, LAUNCH_FUNCTION, _launch_function)
    return _replace(text, LAUNCH, lambda t, a, b: _launch(t, a, b, state))


# Takes the text and the bounds of a match; returns the bounds of what is to be replaced, and the replacement; or None
# to leave the match as it is.
Rule = Callable[[str, int, int], tuple[int, int, str] | None]


def _replace(text: str, pattern: re.Pattern[str], rule: Rule) -> str:
    parts: list[str] = []
    position = 0
    search = 0
    literals = _Literals(text)
    while match := pattern.search(text, search):
        if literals.contains(match.start()):
            search = match.end()
            continue
        replaced = rule(text, match.start(), match.end())
        if replaced is None or replaced[0] < position:
            search = match.end()
            continue
        begin, end, new = replaced
        # Line markers in the replaced text are lost; the next marker after it sets the line number again.
        new += "\n" * (MARKER.sub("", text[begin:end]).count("\n") - MARKER.sub("", new).count("\n"))
        parts += [text[position:begin], new]
        position = search = end
    return "".join([*parts, text[position:]])


class _Literals:
    """Where a text has strings and characters; looked for only where something is to be replaced."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._spans: tuple[list[int], list[int]] | None = None

    def contains(self, index: int) -> bool:
        if self._spans is None:
            spans = [match.span() for match in LITERAL.finditer(self._text)]
            self._spans = ([begin for begin, _ in spans], [end for _, end in spans])
        begins, ends = self._spans
        place = bisect_right(begins, index) - 1
        return place >= 0 and index < ends[place]


def _end_of(text: str, begin: int, wanted: str) -> int:
    """The index of a text outside brackets and literals."""
    index = begin
    while not text.startswith(wanted, index):
        if text[index] in "\"'RuUL" and (literal := LITERAL.match(text, index)):
            index = literal.end()
        elif text[index] in CLOSING:
            index = closing_bracket(text, index) + 1
        else:
            index += 1
    return index


def _refused(text: str, begin: int, end: int, name: str) -> tuple[int, int, str]:
    return begin, closing_bracket(text, end - 1) + 1, error_line(f"{name} is not known")


def _without_arguments(text: str, begin: int, end: int) -> tuple[int, int, str]:
    return begin, closing_bracket(text, end - 1) + 1, ""


# ---- Shared variables -------------------------------------------------------------------------------------------


def _shared(text: str, begin: int, end: int, state: _State) -> tuple[int, int, str]:
    """__shared__ T a[2], b; becomes a struct of them and references to its members."""
    stop = _end_of(text, end, ";")
    start = _declaration_begin(text, begin)
    declaration = on_one_line(LINE_OF_PREPROCESSOR.sub("", f"{text[start:begin]} {text[end:stop]}"))
    words = declaration.split()
    is_extern = "extern" in words
    declaration = " ".join(word for word in words if word not in ("extern", "static", "inline"))
    is_local = _is_in_function(text, start)
    if is_extern:
        return start, stop, _dynamic_shared(declaration, is_local)
    declarators = _declarators(declaration)
    if is_local:
        struct = f"Shared{next(state.numbers)}"
        names = ", ".join(_declared_name(declarator) for declarator in declarators)
        first = _declared_name(declarators[0])
        element = f"sizeof(::std::remove_all_extents_t<decltype({struct}::{first})>)" if len(declarators) == 1 else "0"
        return (
            start,
            stop,
            f"struct {struct} {{ {declaration}; }}; auto& [{names}] = "
            f'::emulator::shared<{struct}>("{names}", {element})',
        )
    if len(declarators) > 1:
        return start, stop, error_line("declare shared variables outside of functions in statements of their own")
    name = _declared_name(declaration)
    struct = f"Shared{next(state.numbers)}"
    return (
        start,
        stop,
        f"struct {struct} {{ {declaration}; }}; "
        f'static const ::emulator::NamespaceShared<{struct}, decltype({struct}::{name})> {name}{{"{name}"}}',
    )


def _declaration_begin(text: str, index: int) -> int:
    """Where the declaration begins that a keyword at an index is part of."""
    begin = max(text.rfind(character, 0, index) for character in ";{}") + 1
    begin = max(begin, *(match.end() for match in LINE_OF_PREPROCESSOR.finditer(text, begin, index)), 0)
    while begin < index and text[begin].isspace():
        begin += 1
    return begin


def _is_in_function(text: str, index: int) -> bool:
    """Whether a brace around the index opens something other than a namespace."""
    depth = 0
    for match in reversed(list(re.finditer(r"[{}]", text[:index]))):
        depth += 1 if match[0] == "}" else -1
        if depth < 0:
            depth = 0
            before = text[max(match.start() - 200, 0) : match.start()]
            if not re.search(r'(?:\bnamespace(?:\s+[\w:]+)?|\bextern\s*"C")\s*$', before):
                return True
    return False


def _dynamic_shared(declaration: str, is_local: bool) -> str:
    """The declaration of dynamic shared memory becomes a pointer to it."""
    alignments = [match[0] for match in ATTRIBUTE.finditer(declaration)]
    plain = ATTRIBUTE.sub(" ", declaration).strip()
    parts = re.fullmatch(r"(.*?[\s*&>])(\w+)\s*(?:\[\s*\]((?:\s*\[[^\]]*\])*))?", plain)
    if parts is None:
        return error_line("this declaration of dynamic shared memory cannot be read")
    kind, name, dimensions = parts[1].strip(), parts[2], parts[3]
    values = [re.search(r"\((.*)\)", alignment, re.DOTALL) for alignment in alignments]
    numbers = [re.sub(r"^\(?\s*(?:__)?aligned(?:__)?\s*\((.*?)\)\s*\)?$", r"\1", value[1]) for value in values if value]
    alignment = numbers[0] if numbers else "16"
    if dimensions is None:  # A single variable.
        return f"{kind}& {name} = *::emulator::dynamic_array<{kind}, {alignment}>()"
    element = f"::emulator::Element<{kind}{dimensions}>" if dimensions else kind
    array = f"::emulator::dynamic_array<{element}, {alignment}>"
    if is_local:
        return f"{element}* const {name} = {array}()"
    return f"static const ::emulator::DynamicArray<{element}, {alignment}> {name}"


def _declared_name(declarator: str) -> str:
    plain = ATTRIBUTE.sub(" ", declarator).split("=")[0]
    return re.search(r"(\w+)\s*$", plain[: _first_dimension(plain)])[1]  # type: ignore[index]


def _first_dimension(declarator: str) -> int:
    """The index of the first bracket that follows the declared name."""
    end = len(declarator.rstrip())
    while end and declarator[end - 1] == "]":
        end = _opening_bracket(declarator, end - 1)
        end = len(declarator[:end].rstrip())
    return end


def _opening_bracket(text: str, closing: int) -> int:
    depth = 0
    for index in range(closing, -1, -1):
        depth += (text[index] in OPENING) - (text[index] in CLOSING)
        if depth == 0:
            return index
    raise ValueError(f"no bracket opens what {text[closing]!r} closes")


def _declarators(declaration: str) -> list[str]:
    """Splits at the commas outside template arguments and brackets."""
    parts, depth = [""], 0
    for character in declaration:
        depth += (character in "<([{") - (character in ">)]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


# ---- Kernels ----------------------------------------------------------------------------------------------------


def _bounds(text: str, begin: int, end: int) -> tuple[int, int, str]:
    """__launch_bounds__(256) kernel(...) { becomes a check at the start of the kernel."""
    close = closing_bracket(text, end - 1)
    body = closing_bracket(text, text.index("(", close + 1)) + 1
    check = f" ::emulator::check_bounds({on_one_line(text[end:close])});" if text[body:].lstrip()[0] == "{" else ""
    opening = text.index("{", body) + 1 if check else body
    return begin, opening, text[close + 1 : opening] + check


def _clusters(text: str) -> Iterator[tuple[str, str]]:
    """The kernels that have __cluster_dims__, and its arguments."""
    for match in CLUSTER.finditer(text):
        close = closing_bracket(text, match.end() - 1)
        rest = BOUNDS.sub(lambda bounds: " " * len(bounds[0]), text[close + 1 : close + 2000])
        if name := re.search(r"(\w+)\s*\((?!\s*\()", re.sub(r"\s{3,}[^()]*\)", " ", rest, count=1)):
            yield name[1], on_one_line(text[match.end() : close])


# ---- Launches ---------------------------------------------------------------------------------------------------


def _launch(text: str, begin: int, end: int, state: _State) -> tuple[int, int, str] | None:
    """kernel<<<blocks, threads>>>(arguments) becomes a call of launch with a lambda."""
    start = _kernel_before(text, begin)
    stop = _end_of(text, end, ">>>")
    opening = stop + 3
    while opening < len(text) and text[opening].isspace():
        opening += 1
    if start is None or text[opening : opening + 1] != "(":
        return None
    close = closing_bracket(text, opening)
    kernel, configuration, arguments = (
        on_one_line(part) for part in (text[start:begin], text[end:stop], text[opening + 1 : close])
    )
    is_variable = re.search(rf"\bauto\s*\*?\s*{kernel} =", text[:start]) if kernel.isidentifier() else None
    has_address = is_variable or _has_address(kernel, state)
    pointer = f"reinterpret_cast<const void*>({kernel})" if has_address else "nullptr"
    name = re.sub(r"<.*", "", kernel).split("::")[-1].strip()
    cluster = f".with_cluster({state.clusters[name]})" if name in state.clusters else ""
    captures, passed = _arguments(arguments)
    label = kernel.replace("\\", "\\\\").replace('"', '\\"')
    new = (
        f'::emulator::launch("{label}", {pointer}, ::emulator::Configuration({configuration}){cluster}, '
        f"[{', '.join(['&', *captures])}] {{ {kernel}({', '.join(passed)}); }})"
    )
    return start, close + 1, new


def _kernels(text: str) -> dict[str, set[tuple[str, str]]]:
    """The parameters of each kernel's template ("" if it is none) and of its function, by the kernel's name."""
    kernels: dict[str, set[tuple[str, str]]] = {}
    for match in KERNEL.finditer(text):
        position = match.end()
        while (name := NAME_OR_END.search(text, position)) and name[1] in WITH_ARGUMENTS:
            position = closing_bracket(text, name.end() - 1)
        if name and name[1]:
            parameters = on_one_line(text[name.end() : closing_bracket(text, name.end() - 1)])
            kernels.setdefault(name[1], set()).add((_template_before(text, match.start()), parameters))
    return kernels


def _template_before(text: str, end: int) -> str:
    """The parameters of the template whose declaration goes on at `end`; "" if it is none, "..." if that is unclear."""
    head = text[max(end - 2000, 0) : end]
    head = SPECIFIERS.sub("", LINE_OF_PREPROCESSOR.sub("", head)).rstrip()
    if not head.endswith(">"):
        return "" if head[-1:] in ("", ";", "{", "}") else "..."
    begin = _template_begin(head, len(head))
    return on_one_line(head[begin + 1 : -1]) if head[:begin].rstrip().endswith("template") else "..."


def _has_address(kernel: str, state: _State) -> bool:
    """Whether an expression names one function. A template that deduces arguments, or an overload, does not."""
    match = re.fullmatch(r"(?:::)?(?:\w+::)*(\w+)\s*(?:<(.*)>)?", kernel)
    declarations = state.kernels.get(match[1], set()) if match else set()
    if match is None or len(declarations) != 1:
        return False
    ((parameters, _),) = declarations
    needed = [part for part in _template_aware_split(parameters) if "=" not in part]
    return "..." not in parameters and len(_template_aware_split(match[2] or "")) >= len(needed)


def _arguments(text: str) -> tuple[list[str], list[str]]:
    """What a kernel's lambda captures, and what it passes: calls and changes happen once, not in every thread."""
    captures: list[str] = []
    passed: list[str] = []
    for index, argument in enumerate(_template_aware_split(text)):
        has_effect = re.search(r"\(|\+\+|--|[^=!<>]=[^=]", argument) and not argument.startswith("{")
        if has_effect and not argument.endswith("..."):
            captures.append(f"argument{index} = {argument}")
            passed.append(f"argument{index}")
        else:
            passed.append(argument)
    return captures, passed


def _template_aware_split(text: str) -> list[str]:
    """Splits a list of arguments at its commas. A comma between < and > counts as a template's where no comparison can
    be meant; then the arguments stay together."""
    parts = [part.strip() for part in split(text, ",")]
    merged: list[str] = []
    for part in parts:
        if merged and merged[-1].count("<") > merged[-1].count(">") - 2 * merged[-1].count("->"):
            merged[-1] += f", {part}"
        else:
            merged.append(part)
    return [part for part in merged if part]


def _kernel_before(text: str, end: int) -> int | None:
    """The index where the expression of the kernel that ends at `end` begins: names, '::', members, template arguments,
    calls, subscripts, or an expression in parentheses."""
    begin = index = _trimmed(text, end)
    while True:
        while index and (text[index - 1] in ")]" or (text[index - 1] == ">" and text[index - 2] != "-")):
            is_template = text[index - 1] == ">"
            begin = _template_begin(text, index) if is_template else _opening_bracket(text, index - 1)
            index = _trimmed(text, begin)
        name = re.search(r"\w+$", text[max(index - 200, 0) : index])
        if name and name[0] not in ("return", "else", "do", "template"):
            begin = index = index - len(name[0])
        index = _trimmed(text, index)
        if re.search(r"(?:::|\.|->)\s*template$", text[max(index - 20, 0) : index]):
            index = _trimmed(text, index - len("template"))
        if text.endswith("::", 0, index):
            begin = index = index - 2
            if not re.search(r"[\w>]$", text[_trimmed(text, index) - 1 : _trimmed(text, index)]):
                return begin
        elif text.endswith("->", 0, index):
            index -= 2
        elif text.endswith(".", 0, index):
            index -= 1
        else:
            return begin if begin < end else None
        index = _trimmed(text, index)


def _trimmed(text: str, end: int) -> int:
    """The end of what comes before the spaces before an index."""
    while end and text[end - 1].isspace():
        end -= 1
    return end


def _template_begin(text: str, end: int) -> int:
    """The index of the '<' that the '>' before `end` closes."""
    depth = 0
    index = end
    while index:
        index -= 1
        if text[index] in OPENING:
            index = _opening_bracket(text, index)
        elif text[index] == ">" and text[index - 1] != "-":
            depth += 1
        elif text[index] == "<":
            depth -= 1
            if depth == 0:
                return index
    return 0


def _launch_function(text: str, begin: int, end: int) -> tuple[int, int, str] | None:
    """cudaLaunchCooperativeKernel((void*)kernel, …): the cast goes, since it hides the kernel's parameters."""
    close = closing_bracket(text, end - 1)
    first = split(text[end:close], ",")[0]
    cast = CAST.match(first)
    if cast is None:
        return None
    return end, end + cast.end(), ""
