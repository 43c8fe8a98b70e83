"""All families of cases."""

from . import Family, asynchronous, atomics, functions, matrices, scalars, warps

FAMILIES: list[Family] = [
    family for module in (scalars, functions, warps, atomics, matrices, asynchronous) for family in module.FAMILIES
]
