"""Sparse arrays, functions of them, and the handler `sparsify`, with the names of `jax.experimental.sparse`."""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
