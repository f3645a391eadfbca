"""Values, first derivatives and Laplacians of programs, in one pass."""
