"""Image resizing for arrays of any rank, with the names of `jax.image`."""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
