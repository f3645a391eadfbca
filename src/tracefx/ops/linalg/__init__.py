"""Linear algebra: operations on matrices, of which all leading axes are a batch."""
