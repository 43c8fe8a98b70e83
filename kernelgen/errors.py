"""The errors kernelgen raises on purpose; each carries the exit code of the command that meets it."""


class KernelgenError(Exception):
    """Something that kernelgen was asked for and cannot do."""

    exit_code = 1


class UsageError(KernelgenError):
    """The request itself is wrong, so asking differently would help."""

    exit_code = 2


class ConflictError(KernelgenError):
    """What was asked for collides with what is already there."""

    exit_code = 3


class LabError(KernelgenError):
    """Nothing could be run, so there is no verdict; the message says what is missing."""

    exit_code = 2
