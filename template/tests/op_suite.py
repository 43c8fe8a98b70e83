"""`OpSuite` under its old name: ops that were stamped before tests/suite/ import it from here."""

from suite import LAYOUTS, OPTIONAL, REFUSED, Make, OpSuite, cuda_devices

__all__ = ["LAYOUTS", "OPTIONAL", "REFUSED", "Make", "OpSuite", "cuda_devices"]
