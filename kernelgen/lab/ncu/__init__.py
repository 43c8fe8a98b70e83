"""Nsight Compute: its command line, its counters as figures against their ceilings, and advice drawn from them."""
