"""Turns preprocessed CUDA C++ into C++: launches, shared variables and inline assembly become calls of the emulator
(device/prelude.h). All else is ordinary C++ already, once CUDA's keywords are empty macros.

Every replacement keeps the number of lines, so that the compiler's line numbers hold.
"""

import itertools
import re
from collections.abc import Callable

CLOSING = {"(": ")", "[": "]", "{": "}"}
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
MARKER = re.compile(r'^# \d+ ".*"(.*)$', re.MULTILINE)


def rewrite(text: str) -> str:
    """The text, rewritten but for its system headers."""
    numbers = itertools.count()
    parts = []
    begin = 0
    is_system = False
    for marker in MARKER.finditer(text):
        parts.append((is_system, text[begin : marker.start()]))
        begin = marker.start()
        is_system = " 3" in marker[1]
    parts.append((is_system, text[begin:]))
    merged = [
        (is_system, "".join(part for _, part in group))
        for is_system, group in itertools.groupby(parts, lambda part: part[0])
    ]
    return "".join(part if is_system else _rewrite_part(part, numbers) for is_system, part in merged)


def _rewrite_part(text: str, numbers: "itertools.count[int]") -> str:
    text = _replace(text, re.compile(r"\b(?:asm|__asm__)\b\s*(?:volatile|__volatile__)?\s*\("), _assembly)
    text = _replace(text, re.compile(r"\bextern\s+__shared__\b"), _dynamic_shared)
    text = _replace(text, re.compile(r"\b__shared__\b"), lambda t, a, b: _shared(t, a, b, next(numbers)))
    text = _replace(text, re.compile(r"\b__launch_bounds__\b\s*\("), _bounds)
    return _replace(text, re.compile(r"<<<"), _launch)


# Takes the text and the bounds of a match; returns the bounds of what is to be replaced, and the replacement.
Rule = Callable[[str, int, int], tuple[int, int, str]]


def _replace(text: str, pattern: re.Pattern[str], rule: Rule) -> str:
    position = 0
    while match := pattern.search(text, position):
        begin, end, new = rule(text, match.start(), match.end())
        # Line markers in the replaced text are lost; the next marker after it sets the line number again.
        new += "\n" * (MARKER.sub("", text[begin:end]).count("\n") - MARKER.sub("", new).count("\n"))
        text = text[:begin] + new + text[end:]
        position = begin + len(new)
    return text


def closing_bracket(text: str, opening: int) -> int:
    """The index of the bracket that closes the one at index `opening`."""
    stack: list[str] = []
    index = opening
    while True:
        if string := STRING.match(text, index):
            index = string.end()
            continue
        character = text[index]
        if character in CLOSING:
            stack.append(CLOSING[character])
        elif stack and character == stack[-1]:
            stack.pop()
            if not stack:
                return index
        index += 1


def split(text: str, separator: str) -> list[str]:
    """Splits at a character outside brackets and strings."""
    parts, begin, index = [], 0, 0
    while index < len(text):
        if string := STRING.match(text, index):
            index = string.end()
        elif text[index] in CLOSING:
            index = closing_bracket(text, index) + 1
        else:
            if text[index] == separator:
                parts.append(text[begin:index])
                begin = index + 1
            index += 1
    return [*parts, text[begin:]]


def on_one_line(text: str) -> str:
    return " ".join(MARKER.sub("", text).split())


def _assembly(text: str, begin: int, end: int) -> tuple[int, int, str]:
    """asm("add %0, %1" : "=r"(a) : "r"(b)) becomes a program, parsed once, and its operands."""
    close = closing_bracket(text, end - 1)
    template, *sections = split(on_one_line(text[end:close]), ":")
    operands = []
    for is_output, section in zip((True, False), sections, strict=False):
        for operand in filter(str.strip, split(section, ",")):
            constraint, expression = re.fullmatch(r'\s*"([^"]*)"\s*\((.*)\)\s*', operand).groups()
            operands.append(f"::emulator::out({expression})" if is_output else _input(constraint, expression))
    if not "".join(STRING.findall(template)).replace('"', "").strip():
        return begin, close + 1, "(void)0"  # Empty assembly only keeps the compiler from optimising.
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
    declared = re.fullmatch(
        r"\s*(?:alignas\((.+?)\)\s*)?([\w:<>\s]+?)\s*(\w+)\s*\[\s*\]\s*", on_one_line(text[end:stop])
    )
    alignment, kind, name = declared.groups()
    pointer = f"::emulator::dynamic_shared({alignment or 16})"
    return begin, stop, f"{kind}* const {name} = static_cast<{kind}*>({pointer})"


def _shared(text: str, begin: int, end: int, number: int) -> tuple[int, int, str]:
    """__shared__ T a[2], b; becomes a struct of them and references to its members."""
    stop = text.index(";", end)
    declaration = on_one_line(text[end:stop])
    names = [re.search(r"(\w+)\s*$", declarator.split("[")[0])[1] for declarator in _declarators(declaration)]
    struct = f"Shared{number}"
    return (
        begin,
        stop,
        f"struct {struct} {{ {declaration}; }}; auto& [{', '.join(names)}] = ::emulator::shared<{struct}>()",
    )


def _declarators(declaration: str) -> list[str]:
    """Splits at the commas outside template arguments and parentheses."""
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
    close = closing_bracket(text, end - 1)
    body = closing_bracket(text, text.index("(", close)) + 1
    check = f" ::emulator::check_bounds({on_one_line(text[end:close])});" if text[body:].lstrip()[0] == "{" else ""
    opening = text.index("{", body) + 1 if check else body
    return begin, opening, text[close + 1 : opening] + check


def _launch(text: str, begin: int, end: int) -> tuple[int, int, str]:
    """kernel<<<blocks, threads>>>(arguments) becomes a call of launch with a lambda."""
    start = _kernel_before(text, begin)
    stop = text.index(">>>", end)
    opening = text.index("(", stop)
    close = closing_bracket(text, opening)
    kernel, configuration, arguments = (
        on_one_line(part) for part in (text[start:begin], text[end:stop], text[opening + 1 : close])
    )
    # A function template cannot be cast to a pointer where its arguments are deduced; a variable can.
    is_variable = re.search(rf"\bauto {kernel} =", text[:start]) if kernel.isidentifier() else None
    pointer = f"reinterpret_cast<const void*>({kernel})" if is_variable else "nullptr"
    new = (
        f'::emulator::launch("{kernel}", {pointer}, ::emulator::Configuration({configuration}), '
        f"[&] {{ {kernel}({arguments}); }})"
    )
    return start, close + 1, new


def _kernel_before(text: str, end: int) -> int:
    """The index where the kernel's name that ends at `end` begins: identifiers, '::', and template arguments."""
    index = end
    if text[:index].rstrip().endswith(">"):
        depth = 0
        while True:
            index -= 1
            depth += (text[index] == ">") - (text[index] == "<")
            if depth == 0 and text[index] == "<":
                break
    return re.search(r"[\w:]+\s*$", text[:index]).start()
