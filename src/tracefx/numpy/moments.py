"""Means, variances and standard deviations over axes. Those of 16-bit floats are computed in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal as Exactly
from typing import overload

from tracefx.core import Array, ArrayLike, AxisLike, DType, DTypeLike, Value, as_value, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.complex_parts import conjugate
from tracefx.numpy.operand_promotion import (
    as_operand,
    broadcast_operand_shapes,
    convert_dtype,
    convert_operand,
    inexact_dtype,
    promote_dtypes,
    reject_out,
)
from tracefx.numpy.reductions import computation_dtype, mask_operand, sum
from tracefx.numpy.shapes import axes
from tracefx.numpy.ufuncs import broadcast_select, literal_like
from tracefx.ops.elementwise import arithmetic, comparison, powers, transcendental
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.structural import broadcast_in_dim, broadcast_to, transpose
from tracefx.transforms.eager_calls import eager_cached


def _mean_dtype(name: str, x: Value, dtype: DTypeLike | None) -> DType:
    if dtype is not None:
        return dtypes.as_dtype(dtype, f"{name}: dtype")
    own = x.aval.dtype
    return inexact_dtype(own)


def _count_elements(name: str, x: Value, over: Sequence[int], where: ArrayLike | None, keepdims: bool) -> Value:
    """Returns the number of elements that each result reduces, in the dtype of `x`."""
    if where is None:
        count = math.prod(x.aval.shape[i] for i in over)
        return convert_operand(count, x.aval.dtype)
    mask = broadcast_to(
        mask_operand(name, where), broadcast_operand_shapes(name, x.aval.shape, as_value(where).aval.shape)
    )
    return sum(mask, tuple(over), x.aval.dtype, keepdims=keepdims)


@eager_cached
def mean(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the mean over axes, NaN if there are no elements.

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
    >>> mean(np.arange(4))
    Array(1.5, dtype=float32)
    """
    reject_out("mean", out)
    return mean_of("mean", a, axis, dtype, keepdims, where)


def mean_of(
    name: str, a: ArrayLike, axis: AxisLike, dtype: DTypeLike | None, keepdims: bool, where: ArrayLike | None
) -> Array:
    """Returns the mean, for the function with this name in errors."""
    x = as_operand(a, f"{name}: a")
    over = axes(name, axis, x.aval.ndim)
    result = _mean_dtype(name, x, dtype)
    x = convert_dtype(x, computation_dtype(result))
    count = _count_elements(name, x, over, where, keepdims)
    total = sum(x, over, x.aval.dtype, keepdims=keepdims, where=where)  # in the requested dtype, even int8
    return as_array(convert_dtype(arithmetic.div(total, count), result))


@eager_cached(fused="at the first call")
def var(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: int | float | None = None,
) -> Array:
    """Returns the variance over axes: the sum of `abs(a - mean) ** 2` over `n - ddof`, NaN unless that is positive.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        dtype: The dtype in which to compute; None means that of `a`, and the default float for integers and bools. The
            variance of complex numbers is real.
        out: Not supported; must be None.
        ddof: The number subtracted from the number of elements in the divisor.
        keepdims: Whether to keep the reduced axes with size 1.
        where: A mask of the elements to include, broadcast against `a`; None includes all.
        mean: The mean, broadcast against `a`, if it is known; None computes it.
        correction: Another name of `ddof`; None means 0.

    Returns:
        An array of floats without the reduced axes.

    Raises:
        ValueError: If `ddof` and `correction` are both given, or `dtype` is not of floats or complex numbers, or it is
            real for complex `a`.

    >>> import numpy as np
    >>> var(np.arange(4))
    Array(1.25, dtype=float32)
    """
    return variance_of("var", a, axis, dtype, out, ddof, keepdims, where, mean, correction)


def variance_of(
    name: str,
    a: ArrayLike,
    axis: AxisLike,
    dtype: DTypeLike | None,
    out: None,
    ddof: int,
    keepdims: bool,
    where: ArrayLike | None,
    mean: ArrayLike | None,
    correction: int | float | None,
) -> Array:
    """Returns the variance, for the function with this name in errors."""
    reject_out(name, out)
    if correction is not None and ddof:
        raise ValueError(f"{name}: ddof {ddof} and correction {correction} mean the same; pass one of them")
    x = as_operand(a, f"{name}: a")
    over = axes(name, axis, x.aval.ndim)
    ddof_ = float(ddof if correction is None else correction)
    computed = _mean_dtype(name, x, dtype)
    if not dtypes.is_inexact(computed):
        raise ValueError(f"{name}: dtype must be of floats or complex numbers, got {dtypes.name(computed)}")
    if dtypes.is_complex(x.aval.dtype) and not dtypes.is_complex(computed):
        raise ValueError(f"{name}: dtype={dtype!r} is real, but a is {x.aval}; pass a complex dtype or None")
    result = dtypes.real_dtype(computed) if dtype is None else computed
    x = convert_dtype(x, computation_dtype(computed))
    mean_ = (
        mean_of(name, x, over, None, True, where)
        if mean is None
        else convert_operand(mean, x.aval.dtype, what=f"{name}: mean")
    )
    centered = arithmetic.sub(*_broadcast_together(name, x, mean_))
    if dtypes.is_complex(x.aval.dtype):
        squares = complex_numbers.real(arithmetic.mul(centered, conjugate(centered)))
    else:
        squares = powers.square(centered)
    count = arithmetic.sub(_count_elements(name, squares, over, where, keepdims), literal_like(squares, ddof_))
    total = sum(squares, over, keepdims=keepdims, where=where)
    positive = comparison.gt(count, literal_like(squares, 0.0))
    divisor = (
        count if where is None else broadcast_select(positive, count, literal_like(squares, 1.0))
    )  # the replaced divisor keeps derivatives from being NaN
    quotient = arithmetic.div(total, divisor)
    nan = literal_like(squares, math.nan)
    if positive.aval.shape != quotient.aval.shape:
        positive = broadcast_to(positive, quotient.aval.shape)
    return as_array(convert_dtype(broadcast_select(positive, quotient, nan), result))


def _broadcast_together(name: str, x: Value, y: Value) -> tuple[Value, Value]:
    shape = broadcast_operand_shapes(name, x.aval.shape, y.aval.shape)
    return broadcast_to(x, shape), broadcast_to(y, shape)


@eager_cached(fused="at the first call")
def std(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: int | float | None = None,
) -> Array:
    """Returns the standard deviation over axes: the square root of `var`.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        dtype: The dtype in which to compute; None means that of `a`, and the default float for integers and bools.
        out: Not supported; must be None.
        ddof: The number subtracted from the number of elements in the divisor of the variance.
        keepdims: Whether to keep the reduced axes with size 1.
        where: A mask of the elements to include, broadcast against `a`; None includes all.
        mean: The mean, broadcast against `a`, if it is known; None computes it.
        correction: Another name of `ddof`; None means 0.

    Returns:
        An array of floats without the reduced axes.

    Raises:
        ValueError: If `ddof` and `correction` are both given, or `dtype` is not of floats or complex numbers, or it is
            real for complex `a`.

    >>> import numpy as np
    >>> std(np.array([1.0, 3.0]))
    Array(1., dtype=float32)
    """
    return transcendental.sqrt(variance_of("std", a, axis, dtype, out, ddof, keepdims, where, mean, correction))


@overload
def average(
    a: ArrayLike,
    axis: AxisLike = None,
    weights: ArrayLike | None = None,
    returned: Exactly[False] = False,
    keepdims: bool = False,
) -> Array: ...
@overload
def average(
    a: ArrayLike,
    axis: AxisLike = None,
    weights: ArrayLike | None = None,
    *,
    returned: Exactly[True],
    keepdims: bool = False,
) -> tuple[Array, Array]: ...
@eager_cached
def average(
    a: ArrayLike,
    axis: AxisLike = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Array | tuple[Array, Array]:
    """Returns the weighted mean over axes.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        weights: The weight of each element, of the shape of `a` or of its axes `axis`; None means equal weights.
        returned: Whether to return the sum of the weights too.
        keepdims: Whether to keep the reduced axes with size 1.

    Returns:
        An array without the reduced axes; with `returned`, a pair of it and the sums of the weights.

    Raises:
        ValueError: If the shape of the weights does not fit.

    >>> import numpy as np
    >>> average(np.array([1.0, 5.0]), weights=np.array([3.0, 1.0]))
    Array(2., dtype=float32)
    """
    if weights is None:
        x = as_operand(a, "average: a")
        out = mean_of("average", x, axis, None, keepdims, None)
        if not returned:
            return out
        count = math.prod([x.aval.shape[i] for i in axes("average", axis, x.aval.ndim)])
        return out, broadcast_to(convert_operand(count, out.aval.dtype), out.aval.shape)
    x, w = promote_dtypes("average", a, weights, inexact=True)
    over = axes("average", axis, x.aval.ndim)
    if w.aval.shape != x.aval.shape:
        if axis is None or w.aval.shape != tuple([x.aval.shape[i] for i in over]):
            raise ValueError(
                f"average: weights {w.aval} must have the shape of a {x.aval}, or that of its axes named by axis"
            )
        order = sorted(range(len(over)), key=over.__getitem__)
        w = broadcast_in_dim(transpose(w, order), x.aval.shape, sorted(over))
    total = sum(w, axis, keepdims=keepdims)
    out = arithmetic.div(sum(arithmetic.mul(x, w), axis, keepdims=keepdims), total)
    return (out, total) if returned else out
