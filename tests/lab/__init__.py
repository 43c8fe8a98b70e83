"""Tests of kernelgen.lab."""
