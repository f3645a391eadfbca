"""Taylor mode: derivatives of any order in one pass, by arithmetic on truncated power series."""
