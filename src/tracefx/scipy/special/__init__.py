"""Special functions, with the names and arguments of `jax.scipy.special`.

Arguments broadcast together and are promoted as in `tracefx.numpy`; floats narrower than float32 are computed in
float32. Functions of real numbers raise TypeError for complex ones. Derivatives are computed from differential
equations and recurrences of the functions, so they are as accurate as the functions.
"""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
