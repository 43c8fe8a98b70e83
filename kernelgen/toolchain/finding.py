"""What a check reports: one sentence, how bad it is, and the command that cures it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Exit codes of `kernelgen doctor`, by what would build.
BOTH, NEITHER, CPU_ONLY = 0, 1, 3


@dataclass(frozen=True)
class Finding:
    """`stops` is the build that fails because of it: "cpu" (and then CUDA too), "cuda", or "" for none."""

    check: str
    state: str
    text: str
    cure: str = ""
    stops: str = ""
    # What `kernelgen doctor --fix` would install into the project's Python.
    packages: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"check": self.check, "state": self.state, "text": self.text, "cure": self.cure}


def ok(check: str, text: str) -> Finding:
    return Finding(check, "ok", text)


def warning(check: str, text: str, cure: str = "") -> Finding:
    return Finding(check, "warning", text, cure)


def error(check: str, text: str, cure: str, stops: str = "", packages: Iterable[str] = ()) -> Finding:
    return Finding(check, "error", text, cure, stops, tuple(packages))


def builds(findings: Iterable[Finding]) -> dict[str, bool]:
    """Whether a build of each library would succeed."""
    stopped = {finding.stops for finding in findings}
    return {"cpu": "cpu" not in stopped, "cuda": not stopped & {"cpu", "cuda"}}


def exit_code(findings: Iterable[Finding]) -> int:
    succeeds = builds(findings)
    return BOTH if succeeds["cuda"] else CPU_ONLY if succeeds["cpu"] else NEITHER


def table(findings: Iterable[Finding]) -> str:
    """The findings in columns, each with its cure below it."""
    findings = list(findings)
    width = max(len(finding.check) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:7}  {finding.check:{width}}  {finding.text}")
        if finding.cure:
            lines.append(f"{'':7}  {'':{width}}  -> {finding.cure}")
    return "\n".join(lines)
