"""`detrend`: removes linear or constant trends from signals."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import to_inexact
from tracefx.ops.static_integers import static_int


def detrend(
    data: ArrayLike | Sequence[float],
    axis: int = -1,
    type: str = "linear",
    bp: int | Sequence[int] | np.ndarray[tuple[int, ...], np.dtype[np.integer]] = 0,
    overwrite_data: None = None,
) -> Array:
    """Subtracts the least-squares line, or the mean, from data along an axis.

    Args:
        data: the data; integers are converted to floats.
        axis: the axis to detrend.
        type: `"linear"`, or `"constant"` to subtract the mean.
        bp: break points: the indices at which a new line begins.
        overwrite_data: must be None.

    Returns:
        The detrended data.

    Raises:
        NotImplementedError: if `overwrite_data` is given.
        ValueError: if `type` is unknown, or a break point is out of range.

    >>> detrend(fnp.array([1.0, 2.0, 3.0, 10.0]), type="constant").tolist()
    [-3.0, -2.0, -1.0, 6.0]
    >>> detrend(fnp.array([1.0, 2.0, 3.0])).tolist()
    [0.0, 0.0, 0.0]
    """
    if overwrite_data is not None:
        raise NotImplementedError("detrend: overwrite_data must be None, since arrays are immutable")
    if type not in ("constant", "linear"):
        raise ValueError(f"detrend: type must be 'linear' or 'constant', got {type!r}")
    x = as_array(to_inexact(fnp.asarray(data), "detrend: data"))
    if type == "constant":
        return x - fnp.mean(x, axis, keepdims=True)
    x = fnp.moveaxis(x, axis, -1)
    n = x.shape[-1]
    break_points = [0, n, *[static_int("detrend", b, "bp") for b in np.ravel(np.asarray(bp)).tolist()]]
    if min(break_points) < 0 or max(break_points) > n:
        raise ValueError(f"detrend: bp must be indices from 0 to {n}, got {bp!r}")
    segments = [_subtract_line(x[..., start:stop]) for start, stop in itertools.pairwise(sorted({*break_points}))]
    out = segments[0] if len(segments) == 1 else fnp.concatenate(segments, -1) if segments else x
    return fnp.moveaxis(out, -1, axis)


def _subtract_line(x: Array) -> Array:
    """Subtracts the least-squares line. Indices are centered, so that intercept and mean coincide."""
    n = x.shape[-1]
    centered = x - fnp.mean(x, -1, keepdims=True)
    if n < 2:
        return centered
    position = (fnp.arange(n, dtype=dtypes.real_dtype(x.dtype)) - (n - 1) / 2) / n
    slope = fnp.sum(centered * position, -1, keepdims=True) * (12 * n / (n * n - 1))
    return centered - slope * position
