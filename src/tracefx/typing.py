"""Types for annotations, under the names of `jax.typing`.

>>> from tracefx import Array, numpy as fnp
>>> from tracefx.typing import ArrayLike
>>> def doubled(x: ArrayLike) -> Array:
...     return fnp.asarray(x) * 2
>>> doubled(1.5)
Array(3., dtype=float32, weak_type=True)
"""

from __future__ import annotations

from tracefx.core.array import ArrayLike
from tracefx.core.dtypes import DTypeLike

__all__ = ["ArrayLike", "DTypeLike"]
