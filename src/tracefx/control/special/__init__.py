"""Special functions that XLA has no instruction for; each is a primitive defined by a formula.

They are in this package and not in `ops`, since formulas are staged and most contain a loop: both belong to higher
layers.
"""
