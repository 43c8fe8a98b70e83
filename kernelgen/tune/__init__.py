"""Tunes an op: searches the values of its tunables for a faster configuration, and keeps one only with evidence.

space.py       which values there are, and what an op's lab.py says of a configuration
chips.py       what each kind of GPU allows
gates.py       what no compiler has to be asked: whether a configuration fits a GPU at all
candidates.py  compiles configurations into libraries, in processes that never touch a GPU
study.py       the record of all trials, which several workers may share and which outlives them
bench.py       in the project's Python: loads one library after another, proves and times it
lane.py        one GPU, or the CPU, with the two processes that take turns on it
search.py      asks for configurations, has them compiled and measured at once, and records what came of them
confirm.py     the best against the default, through the gate of `kernelgen compare`
tuned_file.py  the outcome in the op's folder, which the build reads
tuning.py      one tuning from its request to its outcome, through all of the above
"""

# What the record of a tuning says of itself.
KIND, VERSION = "kernelgen tune", 2
