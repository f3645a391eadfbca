"""Mutable references to arrays, under the names of `jax.ref`."""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
