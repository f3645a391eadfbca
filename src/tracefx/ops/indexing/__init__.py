"""Gather, scatter, dynamic slices, sorting and top_k."""
