"""Ratios of tracefx to JAX, measured in one process: `make bench`."""
