"""Primitives as functions, with the names of `jax.lax`.

These functions promote no dtypes: the operands of one operation have one dtype, and a Python number takes the dtype of
the array next to it. Elementwise operations broadcast scalars and, between operands of equal rank, axes of size 1.
`tracefx.numpy` is built on them.

>>> from tracefx import lax
>>> lax.add(lax.iota("float32", 3), 1.0)
Array([1., 2., 3.], dtype=float32)
"""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
