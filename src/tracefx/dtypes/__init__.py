"""Dtypes and functions of dtypes, under the names of `jax.dtypes`.

>>> from tracefx import dtypes
>>> dtypes.result_type("bfloat16", 2), dtypes.canonicalize_dtype("float64")
(dtype(bfloat16), dtype('float32'))
"""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
