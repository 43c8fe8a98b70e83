"""Operator schemas: read from PyTorch's schema language or from a Python function, and spelt out for templates."""
