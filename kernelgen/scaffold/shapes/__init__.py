"""Shapes of an op's tensors: their language, and the glue, tests and cases that follow from what it says."""
