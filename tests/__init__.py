"""The tests of tracefx."""
