"""The parts of `tracefx.handlers.progress`."""
