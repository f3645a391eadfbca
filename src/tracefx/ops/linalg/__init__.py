"""Linear algebra primitives. All leading axes of matrices are batch axes."""
