"""Primitives for PRNG keys and random bits."""
