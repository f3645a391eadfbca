"""Programs that show tracefx at work: `make demo`."""
