"""Rotation and mirroring of arrays, and `rollaxis`."""

from __future__ import annotations

from tracefx.core import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.errors import AxisError
from tracefx.numpy.operand_promotion import as_operand
from tracefx.numpy.shapes import flip, moveaxis, swapaxes
from tracefx.ops.static_integers import canonicalize_axis, static_int, static_ints
from tracefx.transforms.eager_calls import eager_cached


@eager_cached
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """Moves an axis in front of axis `start`; `moveaxis` is the clearer way to do this.

    Args:
        a: The array.
        axis: The axis to move.
        start: The axis before which it is put; `ndim` means the end.

    Returns:
        An array with the elements of `a`.

    Raises:
        ValueError: If `start` is out of range.

    >>> import numpy as np
    >>> rollaxis(np.zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    x = as_operand(a, "rollaxis: a")
    ndim = x.aval.ndim
    source, target = canonicalize_axis("rollaxis", axis, ndim), static_int("rollaxis", start, "start")
    if not -ndim <= target <= ndim:
        raise AxisError(f"rollaxis: start {target} is out of bounds for an array with {ndim} axes")
    if target < 0:
        target += ndim
    return moveaxis(x, source, target - 1 if target > source else target)


@eager_cached
def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Rotates `m` by quarter turns in the plane of two axes.

    Args:
        m: An array with at least two axes.
        k: The number of quarter turns, from the first axis towards the second.
        axes: The two axes.

    Returns:
        An array with the elements of `m`.

    Raises:
        ValueError: If `m` has fewer than two axes, or `axes` names one twice.

    >>> import numpy as np
    >>> rot90(np.array([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """
    x = as_operand(m, "rot90: m")
    if x.aval.ndim < 2:
        raise ValueError(f"rot90: m must have two axes at least, got {x.aval}")
    first, second = [
        canonicalize_axis("rot90", axis, x.aval.ndim, "axes") for axis in static_ints("rot90", axes, "axes")
    ]
    if first == second:
        raise ValueError(f"rot90: axes must be two different ones, got {axes}")
    match static_int("rot90", k, "k") % 4:
        case 0:
            return as_array(x)
        case 1:
            return swapaxes(flip(x, second), first, second)
        case 2:
            return flip(x, (first, second))
        case _:
            return flip(swapaxes(x, first, second), second)


@eager_cached
def fliplr(m: ArrayLike) -> Array:
    """Reverses the second axis.

    Args:
        m: An array with at least two axes.

    Returns:
        An array of the shape and dtype of `m`.

    Raises:
        ValueError: If there are fewer than two axes.

    >>> import numpy as np
    >>> fliplr(np.array([[1, 2], [3, 4]])).tolist()
    [[2, 1], [4, 3]]
    """
    return flip(_require_ndim("fliplr", m, 2), 1)


@eager_cached
def flipud(m: ArrayLike) -> Array:
    """Reverses the first axis.

    Args:
        m: An array with at least one axis.

    Returns:
        An array of the shape and dtype of `m`.

    Raises:
        ValueError: If `m` is a scalar.

    >>> import numpy as np
    >>> flipud(np.array([[1, 2], [3, 4]])).tolist()
    [[3, 4], [1, 2]]
    """
    return flip(_require_ndim("flipud", m, 1), 0)


def _require_ndim(name: str, m: ArrayLike, least: int) -> Array:
    x = as_array(as_operand(m, f"{name}: m"))
    if x.ndim < least:
        raise AxisError(f"{name}: m must have {least} axes at least, got {x.aval}")
    return x
