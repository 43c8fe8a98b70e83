"""What the owner of a project changed of the files that the template stamped."""

from kernelgen.scaffold import journal
from kernelgen.scaffold.journal import LINK, Change
from kernelgen.scaffold.plan import Plan
from kernelgen.scaffold.project import Project
from kernelgen.scaffold.update import versions
from kernelgen.scaffold.update.stamps import old_stamp


def since_stamping(project: Project) -> Plan:
    """The owner's changes of stamped files, line ends aside; a plan to look at, not to apply.

    Raises:
        KernelgenError: this machine does not hold the project's template.
    """
    plan = Plan(project.root)
    for path, file in old_stamp(project, versions.current(project.answers)).items():
        mode = "100755" if file.executable else "100644"
        present = journal.look(project.root / path)
        content = present.content if present else None
        if present and present.mode != LINK and b"\r" not in file.content:
            content = content.replace(b"\r\n", b"\n")
        if content != file.content or (present and present.mode != mode):
            plan.changes.append(Change(path, file.content, content, mode, present.mode if present else mode))
    return plan
