"""Matrix decompositions and linear solvers, with the names of `jax.lax.linalg`.

Leading axes are batch axes. Dtypes are float32, float64, complex64 and complex128; LAPACK computes the results.

>>> import numpy as np
>>> from tracefx.lax import linalg
>>> linalg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
Array([[2., 0.],
       [1., 2.]], dtype=float32)
"""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
