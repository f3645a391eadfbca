"""Primitives that return their operands and pass information to the compiler or to a transformation."""
