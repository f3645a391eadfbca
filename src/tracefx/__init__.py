"""Tracing, differentiation, batching and compilation for NumPy-style Python, as typed effect handlers."""
