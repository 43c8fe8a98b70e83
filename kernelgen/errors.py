"""The errors that kernelgen raises on purpose. Each class carries the exit code of the command that ends by it."""


class KernelgenError(Exception):
    """kernelgen cannot do what it was asked to."""

    exit_code = 1


class UsageError(KernelgenError):
    """The request itself is wrong: the message says what would be right."""

    exit_code = 2


class ConflictError(KernelgenError):
    """The request collides with what is already there."""

    exit_code = 3


class LabError(KernelgenError):
    """Nothing could be run, so there is no verdict; the message says what is missing."""

    exit_code = 2
