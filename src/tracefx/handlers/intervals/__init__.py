"""Guaranteed bounds: programs on intervals."""
