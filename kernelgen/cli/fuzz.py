"""`kernelgen fuzz`."""

import argparse
import json
import random
import shlex
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from kernelgen.cli import lab
from kernelgen.cli.parser import Parser
from kernelgen.errors import UsageError

_CODES = """exit codes:
  0  every case passed
  1  a case failed: the result is wrong, or the kernel crashed or hung
  2  nothing could run, or wrong usage"""
# What glibc allocates then holds bytes that make huge numbers or NaN, so that an element nobody writes is seen.
ENVIRONMENT = {"MALLOC_PERTURB_": "1"}
# Failures with a command of their own in the text; the JSON has all.
_MOST_SHOWN = 5


def run(arguments: list[str]) -> int:
    options = _options(arguments)
    from kernelgen.errors import LabError
    from kernelgen.lab import process

    home = lab.find(options)
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    asked = {name: getattr(options, name) for name in ("device", "dtype", "count", "case")}
    deadline = None if options.seconds is None else time.time() + options.seconds
    reports = {name: _Report(name) for name in home.ops}
    device = options.device or "?"
    with lab.progress(not options.json) as show:

        def on_event(event: dict[str, Any]) -> None:
            nonlocal device
            if event["event"] == "device":
                device = event["device"]
            elif event["op"] in reports:
                reports[event["op"]].add(event)
                show(f"fuzzing {event['op']}", reports[event["op"]].cases, options.count)

        finished = process.run(
            home.python,
            home.request("fuzz", seed=seed, deadline=deadline, environment=ENVIRONMENT, **asked),
            on_event,
            options.limit,
        )
    report = {
        "seed": seed,
        "device": device,
        "interrupted": not finished,
        "ops": [found.as_dict(options, seed) for found in reports.values()],
    }
    print(json.dumps(report) if options.json else "\n".join(_text(report, options)))
    if not finished:
        print("kernelgen: Interrupted.", file=sys.stderr)
        return 130
    if any(found.failures for found in reports.values()):
        return 1
    unable = [found for found in reports.values() if found.problem]
    if len(unable) == len(reports) or any(found.name in options.ops for found in unable):
        return LabError.exit_code
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("fuzz", "Compare ops with their references in float64, on inputs that nobody writes by hand.")
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, _CODES
    lab.add_options(parser)
    parser.add_argument("--count", type=int, metavar="N", help="cases of each op (default: 60)")
    parser.add_argument("--seconds", type=float, metavar="S", help="go on drawing cases for so long, for all ops")
    parser.add_argument("--seed", type=int, metavar="N", help="draw the cases and values of an earlier run again")
    parser.add_argument("--dtype", metavar="D", help="one dtype of the op, such as float16 (default: all)")
    parser.add_argument("--case", metavar="JSON", help="run this one case, as a failure prints it")
    text = "how many seconds a case may take before it counts as hung (default: 60)"
    parser.add_argument("--limit", type=float, default=60.0, metavar="S", help=text)
    parser.add_json()
    options = parser.parse_args(arguments)
    for name in ("count", "seconds", "limit"):
        value = getattr(options, name)
        if value is not None and value <= 0:
            parser.error(f"--{name} {value} is too little")
    if options.case is not None:
        if len(options.ops) != 1:
            parser.error("--case goes with one op")
        options.case = _read_case(options.case)
    return options


def _read_case(text: str) -> dict[str, Any]:
    try:
        case = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--case is not JSON: {error}.") from None
    if not isinstance(case, dict):
        raise UsageError('--case is a JSON object, such as \'{"rows": 3, "dtype": "float16"}\'.')
    return case


@dataclass
class _Report:
    """What came of one op."""

    name: str
    passed: int = 0
    too_large: int = 0
    problem: str | None = None
    note: str | None = None
    failures: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        return self.passed + len(self.failures)

    def add(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "passed":
            self.passed += 1
        elif kind == "too large":
            self.too_large += 1
        elif kind in ("failure", "shrunk"):
            self.failures[event["case"]] = {
                "check": event["check"],
                "text": event["text"],
                "case": json.loads(event.get("shrunk", event["case"])),
                "shrunk": kind == "shrunk",
            }
        elif kind == "lost":
            facts = {"check": "crash", "text": f"it {event['reason']}", "case": json.loads(event["case"])}
            self.failures[event["case"]] = {**facts, "shrunk": False}
        elif kind == "skipped":
            self.problem = event["message"]
        elif kind == "given up":
            self.note = event["reason"]
        elif kind == "close" and self.too_large and not self.cases:
            self.problem = "every case was too large for this GPU's memory"

    def as_dict(self, options: argparse.Namespace, seed: int) -> dict[str, Any]:
        failures = [{**found, "command": _command(self.name, found, options, seed)} for found in self.failures.values()]
        facts = {"op": self.name, "cases": self.cases, "passed": self.passed, "too_large": self.too_large}
        return {**facts, "failures": failures, "skipped": self.problem, "note": self.note}


def _command(op: str, failure: dict[str, Any], options: argparse.Namespace, seed: int) -> str:
    words = ["kernelgen", "fuzz", op, "--seed", str(seed), "--case", json.dumps(failure["case"])]
    if options.device:
        words += ["--device", options.device]
    return shlex.join(words)


def _text(report: dict[str, Any], options: argparse.Namespace) -> list[str]:
    width = max(len(op["op"]) for op in report["ops"])
    lines = []
    for op in report["ops"]:
        failed = op["cases"] - op["passed"]
        if op["skipped"] and not failed:
            lines.append(f"{op['op']:{width}}  skipped: {op['skipped']}")
            continue
        verdict = f"{failed} of {op['cases']} cases FAILED" if failed else f"{op['cases']} cases passed"
        lines.append(f"{op['op']:{width}}  {verdict} on {report['device']} (seed {report['seed']})")
        if op["too_large"]:
            lines.append(f"  {op['too_large']} more did not run: too large for this GPU's memory")
        for failure in _shown(op["failures"]):
            lines += [f"  {failure['check']}: {failure['text']}", f"    {failure['command']}"]
        lines += [f"  {op['note']}"] if op["note"] else []
    return lines


def _shown(failures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The shrunk ones, and of those with other checks the first of each and every crash."""
    shown, seen = [], set()
    for failure in sorted(failures, key=lambda failure: not failure["shrunk"]):
        if failure["check"] == "crash" or failure["check"] not in seen:
            shown.append(failure)
            seen.add(failure["check"])
    return shown[:_MOST_SHOWN]
