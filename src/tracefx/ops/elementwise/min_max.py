"""XLA's elementwise maximum and minimum, as NumPy kernels and in StableHLO.

NaN propagates, and 0.0 is larger than -0.0. Complex numbers are ordered by their real parts, then by their imaginary
parts; a NaN among them compares as neither larger nor smaller, and then the second operand is returned.
"""

from __future__ import annotations

import numpy as np

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo


def maximum(x: NDArray, y: NDArray) -> NDArray:
    """Returns the elementwise maximum, with XLA's results for zeros, NaNs and complex numbers."""
    if dtypes.is_complex(x.dtype):
        return np.where(_larger(x, y), x, y)
    out: NDArray = np.maximum(x, y)
    if np.count_nonzero(out) != out.size and dtypes.is_float(out.dtype):
        return np.where((x == 0) & (y == 0), x + y, out)  # of two zeros, NumPy may return either
    return out


def minimum(x: NDArray, y: NDArray) -> NDArray:
    """Returns the elementwise minimum, with XLA's results for zeros, NaNs and complex numbers."""
    if dtypes.is_complex(x.dtype):
        return np.where(_larger(y, x), x, y)
    out: NDArray = np.minimum(x, y)
    if np.count_nonzero(out) != out.size and dtypes.is_float(out.dtype):
        return np.where((x == 0) & (y == 0), -(-x + -y), out)
    return out


def _larger(x: NDArray, y: NDArray) -> NDArray:
    """Returns where `x > y` in the lexicographic order of complex numbers."""
    return np.where(x.real == y.real, x.imag > y.imag, x.real > y.real)


def emit_min_max(builder: Builder, direction: str, out: ShapedArray, x: IrValue, y: IrValue) -> IrValue:
    """Emits `x` where it compares with `y` in `direction` (GT for the maximum, LT for the minimum), else `y`."""
    if not dtypes.is_complex(out.dtype):
        name = "stablehlo.maximum" if direction == "GT" else "stablehlo.minimum"
        return builder.emit(name, [x, y], [out])[0]
    part = ShapedArray(out.shape, dtypes.real_dtype(out.dtype))
    (x_re,), (y_re,) = [builder.emit("stablehlo.real", [z], [part]) for z in (x, y)]
    (x_im,), (y_im,) = [builder.emit("stablehlo.imag", [z], [part]) for z in (x, y)]
    mask = ShapedArray(out.shape, dtypes.bool_)
    same = stablehlo.emit_compare(builder, "EQ", x_re, y_re)
    by_real = stablehlo.emit_compare(builder, direction, x_re, y_re)
    by_imag = stablehlo.emit_compare(builder, direction, x_im, y_im)
    (first,) = builder.emit("stablehlo.select", [same, by_imag, by_real], [mask])
    return builder.emit("stablehlo.select", [first, x, y], [out])[0]
