"""Example programs: `make demo` and `make parallel`."""
