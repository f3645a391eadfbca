"""The parts of `tracefx.handlers.checkify`."""
