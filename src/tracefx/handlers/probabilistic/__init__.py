"""Probabilistic programs: random values under names, drawn, recorded, or given from outside."""
