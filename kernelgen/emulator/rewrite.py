"""Turns CUDA C++ that has been through the preprocessor into C++: launches, shared variables and inline assembly become
calls of the emulator (device/prelude.h). All else is ordinary C++ already, once CUDA's keywords are empty macros.

Every replacement keeps the number of lines, so that the compiler's line numbers hold.
"""

import itertools
import re
from collections.abc import Callable

CLOSING = {"(": ")", "[": "]", "{": "}"}
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
MARKER = re.compile(r'^# \d+ ".*"(.*)$', re.MULTILINE)


def rewrite(text: str) -> str:
    """The text with the project's parts rewritten: system headers stay as they are."""
    numbers = itertools.count()
    parts = []
    begin = 0
    is_system = False
    for marker in MARKER.finditer(text):
        parts.append((is_system, text[begin : marker.start()]))
        begin = marker.start()
        is_system = " 3" in marker[1]
    parts.append((is_system, text[begin:]))
    merged = [(kind, "".join(part for _, part in group)) for kind, group in itertools.groupby(parts, lambda p: p[0])]
    return "".join(part if kind else _rewrite_ours(part, numbers) for kind, part in merged)


def _rewrite_ours(text: str, numbers: "itertools.count[int]") -> str:
    text = _replace(text, re.compile(r"\b(?:asm|__asm__)\b\s*(?:volatile|__volatile__)?\s*\("), _assembly)
    text = _replace(text, re.compile(r"\bextern\s+__shared__\b"), _dynamic_shared)
    text = _replace(text, re.compile(r"\b__shared__\b"), lambda t, a, b: _shared(t, a, b, next(numbers)))
    text = _replace(text, re.compile(r"\b__launch_bounds__\b\s*\("), _bounds)
    return _replace(text, re.compile(r"<<<"), _launch)


# A replacement: from the text and a match's begin and end to what is replaced, and by what.
Rule = Callable[[str, int, int], tuple[int, int, str]]


def _replace(text: str, pattern: re.Pattern[str], rule: Rule) -> str:
    at = 0
    while match := pattern.search(text, at):
        begin, end, new = rule(text, match.start(), match.end())
        # Markers of lines inside what goes away are lost; the next one puts things right.
        new += "\n" * (MARKER.sub("", text[begin:end]).count("\n") - MARKER.sub("", new).count("\n"))
        text = text[:begin] + new + text[end:]
        at = begin + len(new)
    return text


def closing(text: str, opening: int) -> int:
    """Where the bracket at a place is closed."""
    stack: list[str] = []
    at = opening
    while True:
        if string := STRING.match(text, at):
            at = string.end()
            continue
        character = text[at]
        if character in CLOSING:
            stack.append(CLOSING[character])
        elif stack and character == stack[-1]:
            stack.pop()
            if not stack:
                return at
        at += 1


def split(text: str, separator: str) -> list[str]:
    """Splits at a character outside brackets and strings."""
    parts, begin, at = [], 0, 0
    while at < len(text):
        if string := STRING.match(text, at):
            at = string.end()
        elif text[at] in CLOSING:
            at = closing(text, at) + 1
        else:
            if text[at] == separator:
                parts.append(text[begin:at])
                begin = at + 1
            at += 1
    return [*parts, text[begin:]]


def one_line(text: str) -> str:
    return " ".join(MARKER.sub("", text).split())


def _assembly(text: str, begin: int, end: int) -> tuple[int, int, str]:
    """asm("add %0, %1" : "=r"(a) : "r"(b)) becomes a program, parsed once, and its operands."""
    close = closing(text, end - 1)
    template, *sections = split(one_line(text[end:close]), ":")
    operands = []
    for is_output, section in zip((True, False), sections, strict=False):
        for operand in filter(str.strip, split(section, ",")):
            constraint, expression = re.fullmatch(r'\s*"([^"]*)"\s*\((.*)\)\s*', operand).groups()
            operands.append(f"::emulator::out({expression})" if is_output else _input(constraint, expression))
    if not "".join(STRING.findall(template)).replace('"', "").strip():
        return begin, close + 1, "(void)0"  # An empty one only holds back the compiler.
    new = (
        f"[&] {{ static const ::emulator::Program* const program = ::emulator::parse({template.strip()}); "
        f"const ::emulator::Operand operands[] = {{{', '.join([*operands, '{}'])}}}; "
        "::emulator::execute(*program, operands); }()"
    )
    return begin, close + 1, new


def _input(constraint: str, expression: str) -> str:
    return f"::emulator::in<'{constraint}'>({expression})"


def _dynamic_shared(text: str, begin: int, end: int) -> tuple[int, int, str]:
    """extern __shared__ char memory[]; becomes a pointer."""
    stop = text.index(";", end)
    declared = re.fullmatch(r"\s*(?:alignas\((.+?)\)\s*)?([\w:<>\s]+?)\s*(\w+)\s*\[\s*\]\s*", one_line(text[end:stop]))
    alignment, kind, name = declared.groups()
    pointer = f"::emulator::dynamic_shared({alignment or 16})"
    return begin, stop, f"{kind}* const {name} = static_cast<{kind}*>({pointer})"


def _shared(text: str, begin: int, end: int, number: int) -> tuple[int, int, str]:
    """__shared__ T a[2], b; becomes a struct of them and references to its members."""
    stop = text.index(";", end)
    declaration = one_line(text[end:stop])
    names = [re.search(r"(\w+)\s*$", declarator.split("[")[0])[1] for declarator in _declarators(declaration)]
    struct = f"Shared{number}"
    return (
        begin,
        stop,
        f"struct {struct} {{ {declaration}; }}; auto& [{', '.join(names)}] = ::emulator::shared<{struct}>()",
    )


def _declarators(declaration: str) -> list[str]:
    """The parts between commas, those of template arguments aside."""
    parts, depth = [""], 0
    for character in declaration:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _bounds(text: str, begin: int, end: int) -> tuple[int, int, str]:
    """__launch_bounds__(256) kernel(...) { becomes a check at the start of the kernel."""
    close = closing(text, end - 1)
    body = closing(text, text.index("(", close)) + 1
    check = f" ::emulator::check_bounds({one_line(text[end:close])});" if text[body:].lstrip()[0] == "{" else ""
    opening = text.index("{", body) + 1 if check else body
    return begin, opening, text[close + 1 : opening] + check


def _launch(text: str, begin: int, end: int) -> tuple[int, int, str]:
    """kernel<<<blocks, threads>>>(arguments) becomes a call of launch with a lambda."""
    start = _kernel_before(text, begin)
    stop = text.index(">>>", end)
    opening = text.index("(", stop)
    close = closing(text, opening)
    kernel, configuration, arguments = (
        one_line(part) for part in (text[start:begin], text[end:stop], text[opening + 1 : close])
    )
    # A function's template arguments may yet have to be deduced: only a variable is a pointer for sure.
    is_variable = re.search(rf"\bauto {kernel} =", text[:start]) if kernel.isidentifier() else None
    pointer = f"reinterpret_cast<const void*>({kernel})" if is_variable else "nullptr"
    new = (
        f'::emulator::launch("{kernel}", {pointer}, ::emulator::Configuration({configuration}), '
        f"[&] {{ {kernel}({arguments}); }})"
    )
    return start, close + 1, new


def _kernel_before(text: str, end: int) -> int:
    """Where the name that ends at a place begins: identifiers, '::', and template arguments."""
    at = end
    if text[:at].rstrip().endswith(">"):
        depth = 0
        while True:
            at -= 1
            depth += (text[at] == ">") - (text[at] == "<")
            if depth == 0 and text[at] == "<":
                break
    return re.search(r"[\w:]+\s*$", text[:at]).start()
