"""Brings a project's record of ops together with the folders that are there."""

import posixpath

from kernelgen.scaffold import ops
from kernelgen.scaffold.plan import Plan
from kernelgen.scaffold.project import Project
from kernelgen.scaffold.template import ANSWERS_FILE


def mend(project: Project) -> tuple[Plan, list[str]]:
    """Plan a record without ops that have no files, and what it changes, in sentences.

    An op whose files lie in a folder that is not recorded was renamed by hand: then so is its entry. Any other folder
    that is not recorded is its owner's own.

    Raises:
        KernelgenError: this machine does not hold the project's template.
    """
    states = {status.name: status.state for status in ops.statuses(project)}
    unrecorded = [name for name, state in states.items() if state == "unrecorded"]
    entries, sentences = [], []
    for op in project.ops:
        if states[op["name"]] != "missing":
            entries.append(op)
            continue
        likely = [name for name in unrecorded if _is_like(project, op["name"], name)]
        if len(likely) == 1:
            unrecorded.remove(likely[0])
            entries.append(op | {"name": likely[0]})
            sentences.append(f"The record of {op['name']} is of {likely[0]} now: its folder has that name.")
        else:
            sentences.append(f"{op['name']} is no longer recorded: it has no files.")
    plan = Plan(project.root)
    if sentences:
        renderer = project.renderer(sorted(entries, key=lambda op: op["name"]))
        plan.set(ANSWERS_FILE, project.answers_file(renderer))
    return plan, sentences


def _is_like(project: Project, name: str, folder: str) -> bool:
    """Whether most of an op's files lie in another folder; the test's name holds the op's."""
    stamped = {posixpath.basename(path).replace(name, folder) for path in project.renderer().op(name)}
    present = {path.name.replace(name, folder) for path in project.op_folder(folder).rglob("*") if path.is_file()}
    return len(stamped & present) * 2 > len(stamped)
