"""The record of an op that `add-op` makes from a schema or a PyTorch function: its element of the answers' `ops`.

A schema is text alone. A function is traced and called in the project's Python, where torch is: its operators become
the kernels, or else its calls show the shapes of its tensors.
"""

# The recipes of which the kernels are written too, by what the function decomposes to.
DERIVED = ("pointwise", "row_wise")
# The recipe of an op whose shapes are known, and the kernels not.
SHAPED = "shaped"
