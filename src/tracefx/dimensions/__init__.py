"""Symbolic sizes of axes: polynomials of dimension variables, their bounds, and their values at a call."""
