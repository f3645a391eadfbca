"""XLA's elementwise maximum and minimum, as NumPy kernels and in StableHLO.

NaN propagates, and 0.0 is larger than -0.0. Complex numbers are ordered by their real parts, then by their imaginary
parts; a NaN among them compares as neither larger nor smaller, and then the second operand is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, final

import numpy as np
from attrs import frozen

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, NDArray, Scalar
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo


def maximum(x: NDArray, y: NDArray) -> NDArray:
    """Returns the elementwise maximum, with XLA's results for zeros, NaNs and complex numbers."""
    if dtypes.is_complex(x.dtype):
        return np.where(_larger(x, y), x, y)
    out: NDArray = np.maximum(x, y)
    if dtypes.is_float(out.dtype) and np.count_nonzero(out) != out.size:
        return np.where((x == 0) & (y == 0), x + y, out)  # of two zeros, NumPy may return either
    return out


def minimum(x: NDArray, y: NDArray) -> NDArray:
    """Returns the elementwise minimum, with XLA's results for zeros, NaNs and complex numbers."""
    if dtypes.is_complex(x.dtype):
        return np.where(_larger(y, x), x, y)
    out: NDArray = np.minimum(x, y)
    if dtypes.is_float(out.dtype) and np.count_nonzero(out) != out.size:
        return np.where((x == 0) & (y == 0), -(-x + -y), out)
    return out


def _larger(x: NDArray, y: NDArray) -> NDArray:
    """Returns where `x > y` in the lexicographic order of complex numbers."""
    return np.where(x.real == y.real, x.imag > y.imag, x.real > y.real)


@final
@frozen(eq=False)
class Extremum:
    """The maximum or the minimum: XLA's results in NumPy and in StableHLO."""

    direction: str
    """The comparison that holds if its first operand is the result: `"GT"` or `"LT"`."""
    ufunc: np.ufunc
    pick: Callable[[NDArray, NDArray], NDArray]
    """The function of two arrays, elementwise."""
    find: Callable[[NDArray, int], object]
    """NumPy's function that returns indices along an axis."""

    def identity(self, dtype: DType) -> Scalar:
        """Returns the identity element: the least or the greatest value of a dtype, infinities included."""
        is_max = self.direction == "GT"
        if dtypes.is_bool(dtype):
            return not is_max
        if dtypes.is_integer(dtype):
            info = dtypes.iinfo(dtype)
            return int(info.min if is_max else info.max)
        bound = -math.inf if is_max else math.inf
        part = dtypes.real_dtype(dtype)
        if not np.isinf(np.asarray(bound, part)):  # the dtype has no infinities
            limits = dtypes.finfo(part)
            bound = float(limits.min if is_max else limits.max)
        return complex(bound, 0.0) if dtypes.is_complex(dtype) else bound

    def preferred_zeros(self, x: NDArray) -> NDArray:
        """Returns where `x` is the zero that wins against the other one: 0.0 is greater than -0.0."""
        mask: NDArray = (x == 0) & (np.signbit(x) != (self.direction == "GT"))
        return mask

    def with_zero_signs(self, out: NDArray, has_preferred: NDArray) -> NDArray:
        """Corrects the signs of zeros, of which NumPy may return either: the preferred one where one was reduced."""
        return np.where(out == 0, np.where(has_preferred == (self.direction == "GT"), 0.0, -0.0), out)

    def emit(self, builder: Builder, out: ShapedArray, x: IrValue, y: IrValue) -> IrValue:
        """Emits the extremum of two elements."""
        if not dtypes.is_complex(out.dtype):
            name = "stablehlo.maximum" if self.direction == "GT" else "stablehlo.minimum"
            return builder.emit(name, [x, y], [out])[0]
        part = ShapedArray(out.shape, dtypes.real_dtype(out.dtype))
        (x_re,), (y_re,) = [builder.emit("stablehlo.real", [z], [part]) for z in (x, y)]
        (x_im,), (y_im,) = [builder.emit("stablehlo.imag", [z], [part]) for z in (x, y)]
        mask = ShapedArray(out.shape, dtypes.bool_)
        same = stablehlo.emit_compare(builder, "EQ", x_re, y_re)
        by_real = stablehlo.emit_compare(builder, self.direction, x_re, y_re)
        by_imag = stablehlo.emit_compare(builder, self.direction, x_im, y_im)
        (first,) = builder.emit("stablehlo.select", [same, by_imag, by_real], [mask])
        return builder.emit("stablehlo.select", [first, x, y], [out])[0]


MAXIMUM: Final = Extremum("GT", np.maximum, maximum, np.argmax)
MINIMUM: Final = Extremum("LT", np.minimum, minimum, np.argmin)
