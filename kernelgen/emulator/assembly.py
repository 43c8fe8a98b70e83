"""Inline assembly becomes a call of the emulator: see device/language/assembly.h."""

import re

from kernelgen.emulator.source_text import closing_bracket, error_line, on_one_line, split

STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def assembly_call(text: str, begin: int, end: int) -> tuple[int, int, str]:
    """asm("add %0, %1" : "=r"(a) : "r"(b)) becomes a program, parsed once, and its operands."""
    close = closing_bracket(text, end - 1)
    template, *sections = split(on_one_line(text[end:close]), ":")
    operands, values = [], []
    for is_output, section in zip((True, False), sections, strict=False):
        for operand in filter(str.strip, split(section, ",")):
            parts = re.fullmatch(r'\s*(?:\[\w+\]\s*)?((?:"[^"]*"\s*)+)\((.*)\)\s*', operand, re.DOTALL)
            if parts is None:
                return begin, close + 1, error_line("an operand of this asm statement cannot be read")
            constraint = "".join(re.findall(r'"([^"]*)"', parts[1]))
            kind = "output<" if is_output else f"input<'{constraint}', "
            operands.append(f"::emulator::{kind}decltype(({parts[2]}))>()")
            values.append(f"::emulator::out({parts[2]})" if is_output else _input(constraint, parts[2]))
    if not "".join(STRING.findall(template)).replace('"', "").strip():
        return begin, close + 1, "(void)0"  # Empty assembly only keeps the compiler from optimising.
    new = (
        # The operands' expressions see these names, so they are none that a kernel uses.
        f"[&] {{ static constexpr ::emulator::Operand emulator_operands[] = {{{', '.join([*operands, '{}'])}}}; "
        f"static ::emulator::Assembly emulator_assembly{{{template.strip()}, emulator_operands}}; "
        f"const uint64_t emulator_values[] = {{{', '.join([*values, '0'])}}}; "
        "::emulator::execute(emulator_assembly, emulator_values); }()"
    )
    return begin, close + 1, new


def _input(constraint: str, expression: str) -> str:
    return f"::emulator::in<'{constraint}'>({expression})"
