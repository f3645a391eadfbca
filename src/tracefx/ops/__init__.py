"""First-order operations, a file a family, and the typed functions that bind them."""
