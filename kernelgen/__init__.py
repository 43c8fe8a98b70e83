"""kernelgen takes a PyTorch function to a fast, tested, shipped GPU operator."""

__version__ = "0.1.0"
