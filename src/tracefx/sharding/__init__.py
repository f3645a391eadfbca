"""Shardings of arrays over several devices, under the names of `jax.sharding`."""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
