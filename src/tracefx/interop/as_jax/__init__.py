"""`import jax` gives tracefx: libraries written for JAX run on it unchanged."""

from __future__ import annotations

from tracefx.interop.as_jax.modules import install as install
from tracefx.interop.as_jax.unsupported import UnsupportedJaxError as UnsupportedJaxError
