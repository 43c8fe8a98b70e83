"""The versions of the installed peers."""

from importlib import metadata

# Their names in package indexes. PyTorch itself calls cuDNN and Triton.
PACKAGES = (
    *("flash-attn", "flash-attn-4", "flashinfer-python", "quack-kernels", "liger-kernel"),
    *("nvidia-cudnn-cu13", "nvidia-cudnn-frontend", "triton"),
)


def versions() -> dict[str, str]:
    """Each installed peer's version, by name."""
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed
