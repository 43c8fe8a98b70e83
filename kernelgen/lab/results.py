"""The files of the lab. Results of `kernelgen bench` are one JSON object:

{"kind", "version", "created", "kernelgen", "environment": {…}, "ceilings": {…}, "cases": […], "failures": […]}. A case
holds every sample, in seconds, so that every figure can be computed again.
"""

import json
import math
import re
import statistics
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kernelgen import __version__
from kernelgen.errors import KernelgenError
from kernelgen.files import write_atomically
from kernelgen.protocol import OP

# The verb that wrote a file, and the version of its schema, which is raised whenever a reader of the older schema would
# misread the newer one.
KIND, VERSION = "kernelgen bench", 1
TUNING_KIND, TUNING_VERSION = "kernelgen tune", 2

Results = dict[str, Any]


def new(environment: dict[str, Any]) -> Results:
    return {**heading(KIND, VERSION), "environment": environment, "ceilings": {}, "cases": [], "failures": []}


def heading(kind: str, version: int) -> dict[str, Any]:
    """The first fields of every file of the lab."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"kind": kind, "version": version, "created": now, "kernelgen": __version__}


def read(path: Path) -> Results:
    """Results of `kernelgen bench` from a file.

    Raises:
        KernelgenError: there is no such file, it holds something else, or its schema has another version.
    """
    return read_as({KIND: VERSION}, path)


def read_as(versions: Mapping[str, int], path: Path) -> dict[str, Any]:
    """A file of one of these kinds, if it has the version that belongs to its kind.

    Raises:
        KernelgenError: as `read`.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KernelgenError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise KernelgenError(f"{path} is not JSON: {error}.") from error
    kind = content.get("kind") if isinstance(content, dict) else None
    if kind not in versions:
        raise KernelgenError(f"{path} does not hold results of `{'` or `'.join(versions)}`; name a file that does.")
    if content.get("version") != versions[kind]:
        raise KernelgenError(
            f"{path} has version {content.get('version')} of the results' schema, and this kernelgen reads version "
            f"{versions[kind]}; measure again with `{kind}`."
        )
    if kind == KIND and (problem := damage(content)):
        raise KernelgenError(f"{path} is damaged: {problem}; measure again with `{kind}`.")
    return content


# Fields of every file, of its environment and of every case, with their types; a case may lack those of the last.
_FIELDS = {"created": str, "environment": dict, "ceilings": dict, "cases": list, "failures": list}
_ENVIRONMENT = {"flags": dict}
_CASE = {"op": str, "case": str, "dtype": str, "functions": dict, "peers": dict, "faults": list}
_OF_SOME_CASES = {"sizes": dict, "state": dict, "warnings": list, "doubts": list, "left_out": dict}
# A median is kept with all its digits; another writer of JSON may round the last of them.
_ROUNDING = 1e-9
_LONGEST_S = 1e9


def damage(results: Any) -> str | None:
    """What is wrong with the results of a file, in a phrase; None if they are whole.

    Medians are computed again from the samples: a median that was edited by hand decides nothing.
    """
    if problem := _lacks(results, _FIELDS) or _damage_of_environment(results["environment"]):
        return problem
    for number, case in enumerate(results["cases"]):
        if problem := _damage_of_case(case):
            return f"case {number + 1}: {problem}"
    return None


def _damage_of_environment(environment: dict[str, Any]) -> str | None:
    gpu = environment.get("gpu")
    needed = {"gpu": dict} if gpu is not None else {"cpu": str, "cores": int}
    return _lacks(environment, {**_ENVIRONMENT, **needed}) or (_lacks(gpu, {"name": str}) if gpu is not None else None)


def _damage_of_case(case: Any) -> str | None:
    if problem := _lacks(case, _CASE) or _lacks(case, {n: of for n, of in _OF_SOME_CASES.items() if n in case}):
        return problem
    functions = case["functions"]
    if OP not in functions:
        return "it has no times of the op"
    for name, figures in functions.items():
        if problem := _damage_of_figures(figures):
            return f"{name}: {problem}"
    if len({len(figures["seconds"]) for figures in functions.values()}) > 1:
        return "the op and its peers have different numbers of samples"
    return None


def _damage_of_figures(figures: Any) -> str | None:
    if problem := _lacks(figures, {"seconds": list, "median": list}):
        return problem
    seconds, median = figures["seconds"], figures["median"]
    if not seconds or not median or not all(map(_is_time, [*seconds, *median])):
        return "every time should be a number of seconds above 0"
    computed = statistics.median(seconds)
    if not math.isclose(median[0], computed, rel_tol=_ROUNDING):
        return f"its median is given as {median[0]:g} s, and its samples have {computed:g} s"
    return None


def _lacks(content: Any, fields: Mapping[str, type]) -> str | None:
    """What is wrong with an object that should have these fields."""
    if not isinstance(content, dict):
        return "something else stands where an object should"
    for name, type_ in fields.items():
        if name not in content:
            return f"`{name}` is missing"
        if not isinstance(content[name], type_):
            return f"`{name}` should be a {type_.__name__}"
    return None


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _LONGEST_S


def write(results: Mapping[str, Any], path: Path) -> None:
    write_atomically(path, json.dumps(results, indent=1) + "\n")


def key(case: dict[str, Any]) -> str:
    """A case's name in tables, by which cases are matched: op, case, dtype, and whether it is the backward."""
    return " · ".join([case["op"], case["case"], case["dtype"], *["backward"] * bool(case.get("backward"))])


def flops_per_s(rate: float) -> str:
    """A rate with the unit that suits it."""
    return f"{rate / 1e12:.3g} TFLOP/s" if rate >= 1e12 else f"{rate / 1e9:.3g} GFLOP/s"


def seconds(value: float) -> str:
    """A time as text, in the unit that fits."""
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if value * scale >= 1:
            return f"{value * scale:.4g} {unit}"
    return f"{value * 1e9:.4g} ns"


def machine(environment: dict[str, Any]) -> str:
    """The name of the device that was measured; times of differently named devices cannot be compared."""
    if gpu := environment.get("gpu"):
        return gpu["name"]
    cores = environment["cores"]
    return f"{environment['cpu']}, {cores} core{'s' * (cores != 1)}"


def baseline(root: Path, environment: dict[str, Any], op: str) -> Path:
    """The file in which a project keeps the results of an op on a device."""
    folder = re.sub(r"[^a-z0-9]+", "-", machine(environment).lower()).strip("-")
    return root / "baselines" / folder / f"{op}.json"


def of_op(results: Results, op: str) -> Results:
    """The results with the cases and failures of one op alone."""
    return results | {name: [case for case in results[name] if case["op"] == op] for name in ("cases", "failures")}
