"""Settings of the whole test run."""

from __future__ import annotations

from hypothesis import settings

# Hypothesis fails an example that takes longer than 200 ms; how long a compilation takes is no property of ours.
settings.register_profile("tracefx", deadline=None)
settings.load_profile("tracefx")
