"""Tunes an op: searches the values of its tunables for a faster configuration, and keeps one only with evidence.

Of an op and a GPU:
    space.py          the search space: the values that an op's lab.py lists
    lab_file.py       the space by shape class, and the points that its gates let pass
    device_limits.py  what each compute capability allows a kernel
    gates.py          which configurations cannot run well on a GPU, before and after compiling

One tuning:
    request.py        what was asked for, and where progress is reported
    task.py           what that means here: the space on one chip, behind its gates, by shape class
    tuning.py         from the request to the result, through all modules below
    cost.py           what it would take, for a dry run
    record.py         its record, as JSON
    tuned_file.py     the result in the op's folder, which the build reads
    text.py, display.py   the result and the progress, for a person

Candidates:
    default_build.py  the op's build with its default values, and how that is repeated with others
    candidates.py     compiles configurations into libraries, many at once
    commands.py       runs compilers, and ends them

The search:
    search.py         asks for trials, compiles and measures many at once, records how each ends
    devices.py, slot.py   each device with its two workers, which prove and time one candidate after another
    confirm.py        the best candidates beside the default, by the rule of `kernelgen compare`

The trials:
    study.py          all trials, shared by several workers
    sampler.py, surrogate.py   which point to try next
    storages.py, journal.py    where trials are kept
    workers.py        names of workers, and whether they live
"""

from kernelgen.lab.results import TUNING_KIND as KIND  # noqa: F401
from kernelgen.lab.results import TUNING_VERSION as VERSION  # noqa: F401
