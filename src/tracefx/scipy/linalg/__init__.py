"""Linear algebra, with the names and arguments of `jax.scipy.linalg`. Leading axes are batch axes."""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
