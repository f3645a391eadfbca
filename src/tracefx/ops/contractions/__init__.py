"""dot_general, its variants, and convolutions."""
