"""Takes the place of jaxlib's Python classes for StableHLO's operations, which take 40 ms to import.

tracefx creates operations by name (`mlir.create`) and does not need these classes. jax imports them itself; MLIR's
bindings then use them, whichever library is loaded first.
"""
