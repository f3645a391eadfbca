"""Reductions that ignore NaN: sums, products, extremes, means, variances, cumulative sums.

Their arguments are those of the reductions without `nan` in their names. Arrays of integers and bools have no NaN, and
are reduced as by those.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tracefx.core import Array, ArrayLike, AxisLike, DType, DTypeLike, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy import moments, reductions
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.logic import isnan, logical_and, logical_not
from tracefx.numpy.operand_promotion import as_operand, broadcast_operand_shapes, reject_out
from tracefx.numpy.shapes import axes
from tracefx.numpy.ufuncs import broadcast_select, literal_like
from tracefx.ops import structural
from tracefx.ops.elementwise import transcendental
from tracefx.transforms.eager_calls import eager_cached

ReductionFunction = Callable[..., Array]


def _replace_nan(name: str, a: ArrayLike, fill: float) -> tuple[Value, Array | None]:
    """Returns `a` with NaN replaced by `fill`, and the mask of NaN; None for a dtype without NaN."""
    x = as_operand(a, f"{name}: a")
    if not dtypes.is_inexact(x.aval.dtype):
        return x, None
    nan_mask = isnan(x)
    return broadcast_select(nan_mask, literal_like(x, fill), x), nan_mask


@eager_cached
def nansum(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the sum over axes of the elements that are not NaN.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        dtype: The dtype of the result; None means that of `a`, and at least the default integer for integers and bools.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1.
        initial: A number that is added to the result.
        where: A mask of the elements to include, broadcast against `a`; None includes all.

    Returns:
        An array without the reduced axes; 0 where there are no elements.

    >>> import numpy as np
    >>> nansum(np.array([1.0, np.nan, 2.0]))
    Array(3., dtype=float32)
    """
    x, _ = _replace_nan("nansum", a, 0)
    return reductions.sum(x, axis, dtype, out, keepdims, initial, where)


@eager_cached
def nanprod(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the product over axes of the elements that are not NaN.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        dtype: The dtype of the result; None means that of `a`, and at least the default integer for integers and bools.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1.
        initial: A number that multiplies the result.
        where: A mask of the elements to include, broadcast against `a`; None includes all.

    Returns:
        An array without the reduced axes; 1 where there are no elements.

    >>> import numpy as np
    >>> nanprod(np.array([3.0, np.nan, 2.0]))
    Array(6., dtype=float32)
    """
    x, _ = _replace_nan("nanprod", a, 1)
    return reductions.prod(x, axis, dtype, out, keepdims, initial, where)


# ------------------------------------------------------------------ extremes


@eager_cached(kernel=KERNELS["nanmax"])
def nanmax(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the maximum over axes of the elements that are not NaN; NaN if all are and there is no `initial`.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1.
        initial: One more element that takes part; the result where there is no other.
        where: A mask of the elements to include, broadcast against `a`; it needs `initial`.

    Returns:
        An array of the dtype of `a`, without the reduced axes.

    Raises:
        ValueError: If there are no elements and no `initial`, or `where` is given without `initial`.

    >>> import numpy as np
    >>> nanmax(np.array([1.0, np.nan, 2.0]))
    Array(2., dtype=float32)
    """
    return _nan_max_or_min("nanmax", reductions.max, -math.inf, a, axis, out, keepdims, initial, where)


@eager_cached(kernel=KERNELS["nanmin"])
def nanmin(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the minimum over axes of the elements that are not NaN; NaN if all are and there is no `initial`.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1.
        initial: One more element that takes part; the result where there is no other.
        where: A mask of the elements to include, broadcast against `a`; it needs `initial`.

    Returns:
        An array of the dtype of `a`, without the reduced axes.

    Raises:
        ValueError: If there are no elements and no `initial`, or `where` is given without `initial`.

    >>> import numpy as np
    >>> nanmin(np.array([1.0, np.nan, 2.0]))
    Array(1., dtype=float32)
    """
    return _nan_max_or_min("nanmin", reductions.min, math.inf, a, axis, out, keepdims, initial, where)


def _nan_max_or_min(
    name: str,
    reduce: ReductionFunction,
    fill: float,
    a: ArrayLike,
    axis: AxisLike,
    out: None,
    keepdims: bool,
    initial: ArrayLike | None,
    where: ArrayLike | None,
) -> Array:
    x, nan_mask = _replace_nan(name, a, fill)
    extreme = reduce(x, axis, out, keepdims, initial, where)
    if nan_mask is None or initial is not None:
        return extreme
    all_nan = reductions.all(nan_mask, axis, keepdims=keepdims)
    return broadcast_select(all_nan, literal_like(extreme, math.nan), extreme)


@eager_cached
def nanargmax(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Returns the index of the maximum along an axis, ignoring NaN, the first of several; -1 if all elements are NaN.

    Args:
        a: The array.
        axis: The axis to reduce; None means the flattened array.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1; None means False.

    Returns:
        An array of integers without the reduced axis.

    Raises:
        ValueError: If there are no elements.

    >>> import numpy as np
    >>> nanargmax(np.array([1.0, np.nan, 2.0]))
    Array(2, dtype=int32)
    """
    return _nan_arg_reduce("nanargmax", reductions.argmax, -math.inf, a, axis, out, keepdims)


@eager_cached
def nanargmin(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Returns the index of the minimum along an axis, ignoring NaN, the first of several; -1 if all elements are NaN.

    Args:
        a: The array.
        axis: The axis to reduce; None means the flattened array.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1; None means False.

    Returns:
        An array of integers without the reduced axis.

    Raises:
        ValueError: If there are no elements.

    >>> import numpy as np
    >>> nanargmin(np.array([1.0, np.nan, 2.0]))
    Array(0, dtype=int32)
    """
    return _nan_arg_reduce("nanargmin", reductions.argmin, math.inf, a, axis, out, keepdims)


def _nan_arg_reduce(
    name: str, find: ReductionFunction, fill: float, a: ArrayLike, axis: int | None, out: None, keepdims: bool | None
) -> Array:
    reject_out(name, out)
    x, nan_mask = _replace_nan(name, a, fill)
    index = find(x, axis, keepdims=keepdims)
    if nan_mask is None:
        return index
    all_nan = reductions.all(nan_mask, axis, keepdims=bool(keepdims))
    return broadcast_select(all_nan, literal_like(index, -1), index)


# ------------------------------------------------------------------ means and variances


@eager_cached(compiled=True)
def nanmean(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the mean over axes of the elements that are not NaN; NaN if there are none.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        dtype: The dtype of the result; None means that of `a`, and the default float for integers and bools.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1.
        where: A mask of the elements to include, broadcast against `a`; None includes all.

    Returns:
        An array without the reduced axes.

    >>> import numpy as np
    >>> nanmean(np.array([1.0, np.nan, 2.0]))
    Array(1.5, dtype=float32)
    """
    reject_out("nanmean", out)
    x, over, mask, result = _check_arguments("nanmean", a, axis, where, dtype)
    return _mean(x, mask, over=over, dtype=result, keepdims=bool(keepdims))


@eager_cached(compiled=True)
def _mean(x: Array, where: Array | None, *, over: tuple[int, ...], dtype: DType | None, keepdims: bool) -> Array:
    value, included = _replace_nan_with_mask("nanmean", x, where)
    summed = x if where is None else value  # the sum replaces what the mask excludes
    return moments.mean_of("nanmean", summed, over, dtype, keepdims, included)


def _check_arguments(
    name: str, a: ArrayLike, axis: AxisLike, where: ArrayLike | None, dtype: DTypeLike | None
) -> tuple[Array, tuple[int, ...], Array | None, DType | None]:
    """Validates the arguments of means and variances; returns the array, axes, mask and dtype."""
    x = as_array(as_operand(a, f"{name}: a"))
    mask = None if where is None else as_array(as_operand(where, f"{name}: where"))
    if mask is not None and mask.aval.dtype != dtypes.bool_:
        raise TypeError(f"{name}: where must be an array of bools, got {mask.aval}")
    result = None if dtype is None else dtypes.as_dtype(dtype, f"{name}: dtype")
    return x, axes(name, axis, x.aval.ndim), mask, result


def _replace_nan_with_mask(name: str, a: Array, where: Array | None) -> tuple[Value, Array | None]:
    """Returns `a` with NaN replaced by 0, and the mask of the elements to include."""
    x, nan_mask = _replace_nan(name, a, 0)
    if nan_mask is None:
        return x, where
    not_nan = logical_not(nan_mask)
    if where is None:
        return x, not_nan
    return structural.broadcast_to(x, broadcast_operand_shapes(name, a.shape, where.shape)), logical_and(not_nan, where)


@eager_cached(compiled=True)
def nanvar(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """Returns the variance over axes of the elements that are not NaN.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        dtype: The dtype in which to compute; None means that of `a`, and the default float for integers and bools.
        out: Not supported; must be None.
        ddof: The number subtracted from the number of elements in the divisor.
        keepdims: Whether to keep the reduced axes with size 1.
        where: A mask of the elements to include, broadcast against `a`; None includes all.
        mean: The mean, broadcast against `a`, if it is known; None computes it.

    Returns:
        An array of floats without the reduced axes; NaN where at most `ddof` elements are numbers.

    >>> import numpy as np
    >>> nanvar(np.array([1.0, np.nan, 3.0]))
    Array(1., dtype=float32)
    """
    reject_out("nanvar", out)
    return _nan_var_or_std("nanvar", a, axis, dtype, ddof, keepdims, where, mean)


def _nan_var_or_std(
    name: str,
    a: ArrayLike,
    axis: AxisLike,
    dtype: DTypeLike | None,
    ddof: int,
    keepdims: bool,
    where: ArrayLike | None,
    mean: ArrayLike | None,
) -> Array:
    x, over, mask, result = _check_arguments(name, a, axis, where, dtype)
    mean_ = None if mean is None else as_array(as_operand(mean, f"{name}: mean"))
    return _var(x, mask, mean_, over=over, dtype=result, ddof=ddof, keepdims=bool(keepdims), name=name)


@eager_cached(compiled=True)
def _var(
    x: Array,
    where: Array | None,
    mean: Array | None,
    *,
    over: tuple[int, ...],
    dtype: DType | None,
    ddof: int,
    keepdims: bool,
    name: str,
) -> Array:
    value, included = _replace_nan_with_mask(name, x, where)
    out = moments.variance_of(name, value, over, dtype, None, ddof, keepdims, included, mean, None)
    return transcendental.sqrt(out) if name == "nanstd" else out


@eager_cached(compiled=True)
def nanstd(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """Returns the standard deviation over axes of the elements that are not NaN: the square root of `nanvar`.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        dtype: The dtype in which to compute; None means that of `a`, and the default float for integers and bools.
        out: Not supported; must be None.
        ddof: The number subtracted from the number of elements in the divisor of the variance.
        keepdims: Whether to keep the reduced axes with size 1.
        where: A mask of the elements to include, broadcast against `a`; None includes all.
        mean: The mean, broadcast against `a`, if it is known; None computes it.

    Returns:
        An array of floats without the reduced axes; NaN where at most `ddof` elements are numbers.

    >>> import numpy as np
    >>> nanstd(np.array([1.0, np.nan, 3.0]))
    Array(1., dtype=float32)
    """
    reject_out("nanstd", out)
    return _nan_var_or_std("nanstd", a, axis, dtype, ddof, keepdims, where, mean)


# ------------------------------------------------------------------ cumulative sums and products


@eager_cached
def nancumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    """Returns the cumulative sum along an axis with NaN taken as 0.

    Args:
        a: The array.
        axis: The axis; None means the flattened array.
        dtype: The dtype of the result; None means that of `a`, and the default integer for bools.
        out: Not supported; must be None.

    Returns:
        An array of the shape of `a`; a vector without `axis`.

    >>> import numpy as np
    >>> nancumsum(np.array([1.0, np.nan, 2.0])).tolist()
    [1.0, 1.0, 3.0]
    """
    return reductions.cumsum(as_array(_replace_nan("nancumsum", a, 0)[0]), axis, dtype, out)


@eager_cached
def nancumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    """Returns the cumulative product along an axis with NaN taken as 1.

    Args:
        a: The array.
        axis: The axis; None means the flattened array.
        dtype: The dtype of the result; None means that of `a`, and the default integer for bools.
        out: Not supported; must be None.

    Returns:
        An array of the shape of `a`; a vector without `axis`.

    >>> import numpy as np
    >>> nancumprod(np.array([3.0, np.nan, 2.0])).tolist()
    [3.0, 3.0, 6.0]
    """
    return reductions.cumprod(as_array(_replace_nan("nancumprod", a, 1)[0]), axis, dtype, out)
