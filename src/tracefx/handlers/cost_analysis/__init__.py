"""The parts of `tracefx.handlers.count`."""
