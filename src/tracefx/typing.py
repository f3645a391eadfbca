"""Types for annotations, under the names of `jax.typing`.

>>> from tracefx import Array, numpy as fnp
>>> from tracefx.typing import ArrayLike
>>> def doubled(x: ArrayLike) -> Array:
...     return fnp.asarray(x) * 2
>>> doubled(1.5)
Array(3., dtype=float32, weak_type=True)
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tracefx.core.array import Array
from tracefx.core.dtypes import DTypeLike, NDArray

ArrayLike: TypeAlias = Array | NDArray | np.number[Any] | np.bool_ | bool | int | float | complex
"""What functions of arrays accept. All members have arithmetic operators."""

__all__ = ["ArrayLike", "DTypeLike"]
