"""NumPy's functions over tracefx arrays, with the names and the dtype rules of `jax.numpy`."""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
