"""What times an op and says whether its results are right, without importing the project.

The judge makes the inputs, computes the expected values and holds the clock. The op runs in a process of its own
(worker/op_host.py), which is stopped whenever no clock runs.
"""
