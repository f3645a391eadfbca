"""Types for annotations, under the names of `jax.typing`.

>>> from tracefx import Array, numpy as fnp
>>> from tracefx.typing import ArrayLike
>>> def doubled(x: ArrayLike) -> Array:
...     return fnp.asarray(x) * 2
>>> doubled(1.5)
Array(3., dtype=float32, weak_type=True)
>>> isinstance(1.5, ArrayLike), isinstance("1.5", ArrayLike)
(True, False)
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from tracefx.core import Array, DTypeLike

ArrayLike: TypeAlias = Array | np.ndarray | np.number | np.bool_ | bool | int | float | complex
"""What functions of arrays accept. All members have arithmetic operators, and are classes that `isinstance` takes."""

__all__ = ["ArrayLike", "DTypeLike"]
