"""Which versions of the peers are installed, for the results of kernels."""

from importlib import metadata

# As package indexes name them; cuDNN and Triton are behind some of PyTorch's own ways.
PACKAGES = ("flash-attn", "flash-attn-4", "quack-kernels", "liger-kernel", "nvidia-cudnn-cu13", "triton")


def versions() -> dict[str, str]:
    """By name, of those that are there."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
