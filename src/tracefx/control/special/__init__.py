"""Special functions that XLA has no instruction for, each an operation that is defined by a formula.

They stand here and not in `ops`, since formulas are staged and most hold a loop: both belong to layers above it.
"""
