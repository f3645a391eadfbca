"""The parts of `tracefx.handlers.autocast`, and loss scales."""
