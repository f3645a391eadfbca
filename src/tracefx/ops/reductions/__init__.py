"""Reductions over axes, segments and windows, and cumulative ones."""
