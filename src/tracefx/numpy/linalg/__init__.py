"""Linear algebra, with the names of `jax.numpy.linalg`: the array API's extension and other functions of NumPy.

Matrices are the last two axes; the others are batch axes. Integers become floats. Where a decomposition does not exist
the result is NaN, and no error is raised.

>>> import tracefx.numpy as fnp
>>> fnp.linalg.solve(fnp.array([[2.0, 0.0], [1.0, 1.0]]), fnp.array([4.0, 3.0]))
Array([2., 1.], dtype=float32)
"""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
