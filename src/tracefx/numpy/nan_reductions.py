"""Reductions that leave out NaN: sums, products, extremes, means, variances, sums so far.

Their arguments are those of the reductions without `nan` in their names. Arrays of integers and bools have no NaN, and
are reduced as by those.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, AxisLike
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.core.handler import as_array
from tracefx.core.values import Value
from tracefx.numpy import reductions
from tracefx.numpy.evaluated import by_numpy
from tracefx.numpy.kernels import averaging, extremes, spreading
from tracefx.numpy.logic import isnan, logical_and, logical_not
from tracefx.numpy.operand_promotion import as_operand, broadcast_operand_shapes, reject_out
from tracefx.numpy.ufuncs import broadcast_select, literal_like
from tracefx.ops import structural
from tracefx.ops.elementwise import transcendental
from tracefx.ops.reductions.reduction import ReduceMax, ReduceMin
from tracefx.transforms.at_once import at_once

ReductionFunction = Callable[..., Array]


def _replace_nan(name: str, a: ArrayLike, fill: float) -> tuple[Value, Array | None]:
    """`a` with `fill` in the place of NaN, and where that is; None where there can be none."""
    x = as_operand(a, f"{name}: a")
    if not dtypes.is_inexact(x.aval.dtype):
        return x, None
    strange = isnan(x)
    return broadcast_select(strange, literal_like(x, fill), x), strange


@by_numpy()
def nansum(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The sum over `axis` of what is not NaN.

    >>> nansum(np.array([1.0, np.nan, 2.0]))
    Array(3., dtype=float32)
    """
    x, _ = _replace_nan("nansum", a, 0)
    return reductions.sum(x, axis, dtype, out, keepdims, initial, where)


@by_numpy()
def nanprod(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The product over `axis` of what is not NaN.

    >>> nanprod(np.array([3.0, np.nan, 2.0]))
    Array(6., dtype=float32)
    """
    x, _ = _replace_nan("nanprod", a, 1)
    return reductions.prod(x, axis, dtype, out, keepdims, initial, where)


# ------------------------------------------------------------------ extremes


@by_numpy(extremes(ReduceMax, np.fmax.reduce))
def nanmax(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The greatest element along `axis` that is not NaN; NaN if there is none but NaN and no `initial`.

    >>> nanmax(np.array([1.0, np.nan, 2.0]))
    Array(2., dtype=float32)
    """
    return _nan_max_or_min("nanmax", reductions.max, -math.inf, a, axis, out, keepdims, initial, where)


@by_numpy(extremes(ReduceMin, np.fmin.reduce))
def nanmin(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The least element along `axis` that is not NaN; NaN if there is none but NaN and no `initial`.

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
    x, strange = _replace_nan(name, a, fill)
    found = reduce(x, axis, out, keepdims, initial, where)
    if strange is None or initial is not None:
        return found
    nothing = reductions.all(strange, axis, keepdims=keepdims)
    return broadcast_select(nothing, literal_like(found, math.nan), found)


@by_numpy()
def nanargmax(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Where the greatest element along `axis` is that is not NaN, the first of several; -1 if all are NaN.

    >>> nanargmax(np.array([1.0, np.nan, 2.0]))
    Array(2, dtype=int32)
    """
    return _nan_arg_reduce("nanargmax", reductions.argmax, -math.inf, a, axis, out, keepdims)


@by_numpy()
def nanargmin(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Where the least element along `axis` is that is not NaN, the first of several; -1 if all are NaN.

    >>> nanargmin(np.array([1.0, np.nan, 2.0]))
    Array(0, dtype=int32)
    """
    return _nan_arg_reduce("nanargmin", reductions.argmin, math.inf, a, axis, out, keepdims)


def _nan_arg_reduce(
    name: str, find: ReductionFunction, fill: float, a: ArrayLike, axis: int | None, out: None, keepdims: bool | None
) -> Array:
    reject_out(name, out)
    x, strange = _replace_nan(name, a, fill)
    found = find(x, axis, keepdims=keepdims)
    if strange is None:
        return found
    nothing = reductions.all(strange, axis, keepdims=bool(keepdims))
    return broadcast_select(nothing, literal_like(found, -1), found)


# ------------------------------------------------------------------ means and variances


@by_numpy(averaging, replays=False, patient=False)
@at_once(arrays=1)
def nanmean(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """The mean over `axis` of what is not NaN; NaN of nothing.

    >>> nanmean(np.array([1.0, np.nan, 2.0]))
    Array(1.5, dtype=float32)
    """
    reject_out("nanmean", out)
    x, over, mask, result = _check_arguments("nanmean", a, axis, where, dtype)
    return _mean(x, mask, over=over, dtype=result, keepdims=bool(keepdims))


@at_once
def _mean(x: Array, where: Array | None, *, over: tuple[int, ...], dtype: DType | None, keepdims: bool) -> Array:
    value, taking = _replace_nan_with_mask("nanmean", x, where)
    return reductions.mean(value, over, dtype, keepdims=keepdims, where=taking)


def _check_arguments(
    name: str, a: ArrayLike, axis: AxisLike, where: ArrayLike | None, dtype: DTypeLike | None
) -> tuple[Array, tuple[int, ...], Array | None, DType | None]:
    x = as_array(as_operand(a, f"{name}: a"))
    mask = None if where is None else as_array(as_operand(where, f"{name}: where"))
    if mask is not None and mask.aval.dtype != dtypes.bool_:
        raise TypeError(f"{name}: where must be an array of bools, got {mask.aval}")
    result = None if dtype is None else dtypes.as_dtype(dtype, f"{name}: dtype")
    return x, reductions.axes(name, axis, x.aval.ndim), mask, result


def _replace_nan_with_mask(name: str, a: Array, where: Array | None) -> tuple[Value, Array | None]:
    """`a` without NaN, and which of its elements count."""
    x, strange = _replace_nan(name, a, 0)
    if strange is None:
        return x, where
    number = logical_not(strange)
    if where is None:
        return x, number
    return structural.broadcast_to(x, broadcast_operand_shapes(name, a.shape, where.shape)), logical_and(number, where)


@by_numpy(spreading(root=False), replays=False, patient=False)
@at_once(arrays=1)
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
    """The variance over `axis` of what is not NaN: as `var` of those elements.

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
    middle = None if mean is None else as_array(as_operand(mean, f"{name}: mean"))
    root = name == "nanstd"
    return _var(x, mask, middle, over=over, dtype=result, ddof=ddof, keepdims=bool(keepdims), root=root)


@at_once
def _var(
    x: Array,
    where: Array | None,
    mean: Array | None,
    *,
    over: tuple[int, ...],
    dtype: DType | None,
    ddof: int,
    keepdims: bool,
    root: bool,
) -> Array:
    value, taking = _replace_nan_with_mask("nanvar", x, where)
    out = reductions.var(value, over, dtype, None, ddof, keepdims, where=taking, mean=mean)
    return transcendental.sqrt(out) if root else out


@by_numpy(spreading(root=True), replays=False, patient=False)
@at_once(arrays=1)
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
    """The standard deviation over `axis` of what is not NaN: the square root of `nanvar`.

    >>> nanstd(np.array([1.0, np.nan, 3.0]))
    Array(1., dtype=float32)
    """
    reject_out("nanstd", out)
    return _nan_var_or_std("nanstd", a, axis, dtype, ddof, keepdims, where, mean)


# ------------------------------------------------------------------ sums so far


@by_numpy()
def nancumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    """The sums of the elements up to each one along `axis`, NaN counting as 0; without `axis`, of the flattened array.

    >>> nancumsum(np.array([1.0, np.nan, 2.0])).tolist()
    [1.0, 1.0, 3.0]
    """
    return reductions.cumsum(as_array(_replace_nan("nancumsum", a, 0)[0]), axis, dtype, out)


@by_numpy()
def nancumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    """The products of the elements up to each one along `axis`, NaN counting as 1; without `axis`, of the flattened
    array.

    >>> nancumprod(np.array([3.0, np.nan, 2.0])).tolist()
    [3.0, 3.0, 6.0]
    """
    return reductions.cumprod(as_array(_replace_nan("nancumprod", a, 1)[0]), axis, dtype, out)
