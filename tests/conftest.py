"""Settings of the whole test run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Hypothesis fails an example that takes longer than 200 ms; how long a compilation takes is no property of ours.
settings.register_profile("tracefx", deadline=None)
# `make laws`: as many examples as one has time for.
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tracefx")
