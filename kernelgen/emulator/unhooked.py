"""Reads of memory that no hook sees: g++'s thread sanitizer leaves out the structs that a call takes by value.

They are calls in the dump of its pass `tsan`, such as `_8 = widen<__half> (*_85);`.
"""

import re
from collections.abc import Iterator

DUMP = "-fdump-tree-tsan1"
FUNCTION = re.compile(r"^;; Function (.+) \(\w+, funcdef_no.*$", re.MULTILINE)
CALL = re.compile(r"^ +(?:[^=\"(\n]+ = )?([^=\"( \n][^=\"(\n]*) \((.+)\);(?: \[[\w ]+\])*$", re.MULTILINE)
# The host copies a kernel's arguments to launch it; these do so, and what calls them.
LAUNCHES = "emulator::run", "emulator::launch<"
# Hooks, internal functions of g++, and functions of the emulator, whose arguments no kernel writes to.
HOOKED = re.compile(r"__builtin|\.|emulator::|cuda[A-Z]|if$|switch$")
# Values in registers, numbers, strings, addresses.
IN_REGISTER = re.compile(r"[\w.]*_\d+(?:\(D\))?|[\d.-].*|\"\"|[&{].*|true|false")
# Such as `tile`, `D.17` of the compiler, or its `iftmp.416`; a member follows after another point.
VARIABLE = r"(?:[A-Za-z_]\w*\.\d+|\w*)"
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
OWN = re.compile(r"^  [\w:<>,&* \[\]()-]*?([\w.]+)(?:\[\w+\])*;$", re.MULTILINE)


def unhooked_calls(dump: str) -> list[str]:
    """The functions of a dump that pass memory by value other than their own variables and parameters."""
    parts = FUNCTION.split(dump)
    if len(parts) == 1 and dump.strip():
        return ["a function"]  # Another g++ writes its dumps otherwise: nothing is known.
    bodies = list(zip(parts[1::2], parts[2::2], strict=True))
    # As an address of a function is spelt: without the arguments of a template.
    functions = {re.sub(r"<.*", "", name).rpartition("::")[2] for name, _ in bodies}
    host = _host_functions(bodies)
    return [name for name, body in bodies if name not in host and _reads_unhooked(body, functions)]


def _host_functions(bodies: list[tuple[str, str]]) -> set[str]:
    """The functions that launch kernels, by themselves or by what they call."""
    new = {name for name, body in bodies if name.startswith(LAUNCHES) or f"{LAUNCHES[0]} (" in body}
    host: set[str] = set()
    while new:
        host |= new
        calls = [f" {name} (" for name in new]
        new = {name for name, body in bodies if name not in host and any(call in body for call in calls)}
    return host


def _reads_unhooked(body: str, functions: set[str]) -> bool:
    passed = set(_passed(body)) - functions
    return bool(passed) and not passed <= _own(body)


def _passed(body: str) -> Iterator[str]:
    """The variables of which a call takes a part by value; "" where it follows a pointer."""
    for callee, arguments in CALL.findall(body):
        if HOOKED.match(callee):
            continue
        for word in _split(STRING.sub('""', arguments)):
            if not IN_REGISTER.fullmatch(word):
                is_pointed_to = word.startswith(("*", "MEM")) or "->" in word
                yield "" if is_pointed_to else re.match(VARIABLE, word)[0]


def _own(body: str) -> set[str]:
    """The names of the function's parameters and variables, which are its thread's alone."""
    head, _, rest = body.partition("\n{\n")
    signature = head.rpartition(" (")[2].rstrip(")")
    parameters = (re.search(r"\w*$", word)[0] for word in _split(signature))
    return {*parameters, *OWN.findall(rest.partition("<bb ")[0])}


def _split(text: str) -> list[str]:
    """The words between the commas that no bracket encloses."""
    words, depth, begin = [], 0, 0
    for match in re.finditer(r"[\[({<>})\],]", text):
        if match[0] == "," and depth == 0:
            words.append(text[begin : match.start()].strip())
            begin = match.end()
        elif match[0] != ",":
            depth += 1 if match[0] in "[({<" else -1
    return [*words, text[begin:].strip()]
