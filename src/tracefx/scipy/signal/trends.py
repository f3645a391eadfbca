"""Signals without their trends."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
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
    """`data` less the straight line that is nearest to it along an axis, or less its mean if `type` is "constant".

    `bp` are places where a new line begins. Raises ValueError for another `type` and for places that there aren't,
    NotImplementedError for `overwrite_data`: arrays never change.

    >>> detrend(fnp.array([1.0, 2.0, 3.0, 10.0]), type="constant").tolist()
    [-3.0, -2.0, -1.0, 6.0]
    >>> detrend(fnp.array([1.0, 2.0, 3.0])).tolist()
    [0.0, 0.0, 0.0]
    """
    if overwrite_data is not None:
        raise NotImplementedError("detrend: overwrite_data must be None, since arrays never change")
    if type not in ("constant", "linear"):
        raise ValueError(f"detrend: type must be 'linear' or 'constant', got {type!r}")
    x = as_array(to_inexact(fnp.asarray(data), "detrend: data"))
    if type == "constant":
        return x - fnp.mean(x, axis, keepdims=True)
    x = fnp.moveaxis(x, axis, -1)
    n = x.shape[-1]
    places = [0, n, *[static_int("detrend", b, "bp") for b in np.ravel(np.asarray(bp)).tolist()]]
    if min(places) < 0 or max(places) > n:
        raise ValueError(f"detrend: bp must be places from 0 to {n}, got {bp!r}")
    lines = [_subtract_line(x[..., start:stop]) for start, stop in itertools.pairwise(sorted({*places}))]
    out = lines[0] if len(lines) == 1 else fnp.concatenate(lines, -1) if lines else x
    return fnp.moveaxis(out, -1, axis)


def _subtract_line(x: Array) -> Array:
    """By least squares. Places are counted from the middle: then the line's mean is the mean."""
    n = x.shape[-1]
    level = x - fnp.mean(x, -1, keepdims=True)
    if n < 2:
        return level
    place = (fnp.arange(n, dtype=dtypes.real_dtype(x.dtype)) - (n - 1) / 2) / n
    slope = fnp.sum(level * place, -1, keepdims=True) * (12 * n / (n * n - 1))
    return level - slope * place
