"""Shapes of an op's tensors: their language, what it says of arguments and results, and the glue that follows from it."""
