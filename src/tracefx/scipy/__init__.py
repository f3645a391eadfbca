"""Scientific functions, with the names of `jax.scipy`. Submodules are imported lazily."""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
