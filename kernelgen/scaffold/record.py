"""The record of a project, `.copier-answers.yml`, as text: people edit it, and git merges it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_KEY = re.compile(r"([\w.]+):")
_OP = re.compile(r"\s*(?:-\s+)?\{?\s*[\"']?name[\"']?:\s*[\"']?(\w+)")
_RECIPE = re.compile(r"ops_by_recipe\.(\w+)")


@dataclass
class _Part:
    """A top-level key, or an op, with its lines and the comments above them."""

    key: str
    comments: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def recipe_of(source: str) -> str | None:
    """The recipe that a file of the template belongs to."""
    match = _RECIPE.search(source)
    return match[1] if match else None


def twice(text: str) -> str | None:
    """A top-level key that a record has twice, as after a merge that kept both sides: YAML would take the last."""
    keys = [match[1] for line in text.splitlines() if (match := _KEY.match(line))]
    return next((key for key in keys if keys.count(key) > 1), None)


def merged(now: bytes, rendered: bytes, keep_ops: bool, former: bytes = b"") -> bytes:
    """The rendered record with the comments that its owner wrote into the present one.

    With `keep_ops`, the lines of the ops that both hold stay as they are. The comments of `former`, what an older
    version of the template rendered, are not the owner's.
    """
    line_end = b"\r\n" if b"\r\n" in now else b"\n"
    before, after = list(_parts(now.replace(b"\r\n", b"\n").decode())), list(_parts(rendered.decode()))
    stamped = {line for part in [*after, *_parts(former.decode())] for line in part.comments}
    lines = {part.key: part.lines for part in before}
    own: dict[str, list[str]] = {}
    waiting: list[str] = []
    for part in before:
        waiting += [line for line in part.comments if line not in stamped]
        if any(part.key == other.key for other in after):
            # The comment above something that is gone goes to what follows it.
            own[part.key], waiting = waiting, []
    text = []
    for part in after:
        stays = keep_ops and part.key.startswith("ops/") and part.key in lines
        body = lines[part.key] if stays else _with_remark(part.lines, lines.get(part.key, []))
        text += [*part.comments, *own.get(part.key, []), *body]
    return "".join([*text, *waiting]).encode().replace(b"\n", line_end)


def _with_remark(lines: list[str], before: list[str]) -> list[str]:
    """A line with the comment that stood at its end."""
    if len(lines) != 1 or len(before) != 1 or "#" in lines[0]:
        return lines
    remark = re.search(r"\s+#.*", before[0].rstrip("\n"))
    return [lines[0].rstrip("\n") + remark[0] + "\n"] if remark else lines


def _parts(text: str) -> Iterator[_Part]:
    part, pending, in_ops = _Part(""), [], False
    for line in text.splitlines(keepends=True):
        key, op = _KEY.match(line), _OP.match(line) if in_ops else None
        if not line.strip() or line.lstrip().startswith("#"):
            pending.append(line)
        elif key or op or line.startswith("]"):
            yield part
            in_ops = key[1] == "ops" if key else in_ops and not line.startswith("]")
            part, pending = _Part(key[1] if key else f"ops/{op[1]}" if op else "]", pending, [line]), []
        else:
            part.lines += [*pending, line]
            pending = []
    yield part
    yield _Part("the end", pending)
