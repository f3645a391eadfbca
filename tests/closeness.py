"""Compares results within the tolerances of `tracefx.testing.tolerances`, which the laws use too.

The default is the tolerance of a sum of a few terms. Tests name looser tolerances, such as `DERIVATIVE`, explicitly.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracefx.core import dtypes
from tracefx.core.dtypes import DType
from tracefx.testing.tolerances import SUMMED, Ulps, ulp_distance

JAX_TOLERANCE: Final = Ulps(16, 16, 1, least=1.0)
"""For array functions compared with JAX, on numbers of magnitude 1 or more."""

JAX_TRANSFORM_TOLERANCE: Final = Ulps(32, 32, 2, least=1.0, relative_to_max=True)
"""For derivatives and batching of small programs compared with JAX, which uses other formulas."""


def assert_near(got: Any, want: Any, tolerance: Ulps = SUMMED, what: str = "") -> None:
    """Asserts that two arrays have equal shapes and close values, compared in the narrower of their dtypes.

    An array that is not of a float dtype, such as a list of integers, is converted to the dtype of the other.
    """
    x, y = np.asarray(got), np.asarray(want)
    assert x.shape == y.shape, f"{what}: shape {x.shape} in place of {y.shape}"
    dtype = _common(x.dtype, y.dtype)
    x, y = x.astype(dtype), y.astype(dtype)
    allowed = tolerance.for_array(y)
    distance = ulp_distance(x, y, allowed.least)
    limit = allowed.of(dtype) if dtypes.is_inexact(dtype) else 0.0
    if distance.size and distance.max() > limit:
        worst = np.unravel_index(int(np.argmax(distance)), distance.shape)
        place = f" at {tuple(map(int, worst))}" if x.ndim else ""
        raise AssertionError(
            f"{what}: {x[worst]} in place of {y[worst]}{place}: {distance[worst]:.4g} ulps, allowed {limit:.4g}"
        )


def _common(one: DType, other: DType) -> DType:
    if not dtypes.is_inexact(one) or not dtypes.is_inexact(other):
        return other if dtypes.is_inexact(other) else one
    bits = min(dtypes.itemsize_bits(dtypes.real_dtype(d)) for d in (one, other))
    narrower = one if dtypes.itemsize_bits(dtypes.real_dtype(one)) == bits else other
    if dtypes.is_complex(one) == dtypes.is_complex(other):
        return narrower
    return dtypes.complex64 if bits <= 32 else dtypes.complex128
