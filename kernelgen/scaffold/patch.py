"""A change as `git diff` writes it, for `git apply` to take: text by lines, anything else as a binary patch."""

import base64
import hashlib
import zlib
from collections.abc import Iterator
from difflib import unified_diff

from kernelgen.scaffold.journal import LINK, Change


def patch(change: Change) -> str:
    """The change of one file."""
    if change.old is not None and change.new is not None and (change.old_mode == LINK) != (change.mode == LINK):
        # git knows no change from a file to a link; it deletes the one and creates the other.
        return _patch(change, change.old, None) + _patch(change, None, change.new)
    return _patch(change, change.old, change.new)


def _patch(change: Change, old: bytes | None, new: bytes | None) -> str:
    before, after = _quoted(f"a/{change.path}"), _quoted(f"b/{change.path}")
    head = f"diff --git {before} {after}\n{_modes(change, old, new)}"
    if old == new:
        return head
    if not (_is_text(old) and _is_text(new)):
        return f"{head}index {_object(old)}..{_object(new)}\nGIT binary patch\n{_literal(new)}{_literal(old)}"
    return head + "".join(_hunks(old, new, before, after))


def _modes(change: Change, old: bytes | None, new: bytes | None) -> str:
    if old is None:
        return f"new file mode {change.mode}\n"
    if new is None:
        return f"deleted file mode {change.old_mode}\n"
    return "" if change.old_mode == change.mode else f"old mode {change.old_mode}\nnew mode {change.mode}\n"


def _quoted(path: str) -> str:
    """A path as git spells it: in C's quotes where it has other than plain characters."""
    raw = path.encode("utf-8", "surrogateescape")
    if all(32 <= byte < 127 and byte not in b'"\\' for byte in raw):
        return path
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in raw) + '"'


def _is_text(content: bytes | None) -> bool:
    try:
        return b"\0" not in (content or b"") and (content or b"").decode() is not None
    except UnicodeDecodeError:
        return False


def _object(content: bytes | None) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() if content is not None else "0" * 40


def _literal(content: bytes | None) -> str:
    """Content in full: compressed, then lines of 52 bytes, each with its length as a letter and in base 85."""
    packed = zlib.compress(content or b"")
    lines = [packed[start : start + 52] for start in range(0, len(packed), 52)]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    coded = [f"{letters[len(line) - 1]}{base64.b85encode(line, pad=True).decode()}\n" for line in lines]
    return f"literal {len(content or b'')}\n{''.join(coded)}\n"


def _hunks(old: bytes | None, new: bytes | None, before: str, after: str) -> Iterator[str]:
    # A tab ends a name that holds a space.
    names = [f"{name}\t" if " " in name else name for name in (before, after)]
    names = [names[0] if old is not None else "/dev/null", names[1] if new is not None else "/dev/null"]
    for number, line in enumerate(unified_diff(_lines(old), _lines(new), *names)):
        ended = line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        yield ended.rstrip("\n").rstrip(" ") + "\n" if number < 2 else ended


def _lines(content: bytes | None) -> list[str]:
    # Not `splitlines`: in a diff, a form feed or a lone carriage return ends no line.
    lines = (content or b"").decode().split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
