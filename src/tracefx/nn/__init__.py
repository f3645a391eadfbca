"""Neural network functions, with the names and arguments of `jax.nn`."""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
