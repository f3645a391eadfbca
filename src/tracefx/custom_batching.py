"""Functions with a user-defined batching rule, under the names of `jax.custom_batching`."""

from __future__ import annotations

from tracefx.transforms.custom_batching import custom_vmap as custom_vmap
from tracefx.transforms.custom_batching import sequential_vmap as sequential_vmap
