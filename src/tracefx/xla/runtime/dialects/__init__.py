"""Modules that MLIR's bindings load in place of jaxlib's generated Python modules of the same names."""
