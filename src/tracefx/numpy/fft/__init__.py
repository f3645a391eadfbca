"""Discrete Fourier transforms, with the names of `jax.numpy.fft`.

Transforms take any dtype (`rfft` and its relatives any but complex) and return complex64, or complex128 for 64-bit
operands. `n` or `s` crops an axis or pads it with zeros. `norm` says which direction divides by the number of elements:
`"backward"` (the default) the inverse, `"forward"` the forward transform, `"ortho"` both by its square root.
"""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
