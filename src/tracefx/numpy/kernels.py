"""How NumPy computes what functions give: kernels for `by_numpy`, by the kinds of their arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import AxisLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.numpy.evaluated import Kernel
from tracefx.ops.elementwise import min_max
from tracefx.ops.elementwise.powers import power
from tracefx.ops.reductions.reduction import ReduceExtremum
from tracefx.ops.static_integers import canonicalize_axes, canonicalize_axis, is_sequence_like
from tracefx.ops.structural import specialize_reduce
from tracefx.transforms.evaluations import Number

# ------------------------------------------------------------------ reductions


def axes(name: str, axis: AxisLike, ndim: int) -> tuple[int, ...]:
    """The axes that an argument `axis` means, counted from 0."""
    if axis is None:
        return tuple(range(ndim))
    if is_sequence_like(axis):
        return canonicalize_axes(name, axis, ndim, "axis")  # type: ignore[arg-type]  # as just asked
    return (canonicalize_axis(name, axis, ndim),)  # type: ignore[arg-type]  # as asked


def counting(a: ShapedArray, axis: AxisLike = None, keepdims: bool = False) -> Kernel | None:
    count = dtypes.default_int().type
    return None if axis is not None or keepdims else lambda v: count(np.count_nonzero(v))


def ranging(a: ShapedArray, axis: AxisLike = None, out: None = None, keepdims: bool = False) -> Kernel | None:
    """`ptp` of NumPy's arrays, in which the sign of a zero makes no difference."""
    over = axes("ptp", axis, a.ndim)
    if keepdims or not over:
        return None
    most, least = specialize_reduce(np.maximum.reduce, over, a.ndim), specialize_reduce(np.minimum.reduce, over, a.ndim)
    return lambda v: np.abs(most(v) - least(v))


def varying(
    a: ShapedArray,
    axis: AxisLike = None,
    dtype: object = None,
    out: object = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    correction: int | float | None = None,
    **rest: object,
) -> Kernel | None:
    """`var` of NumPy's arrays."""
    if dtype is not None or rest:
        return None
    over = axes("var", axis, a.ndim)
    along = over[0] if len(over) == 1 else over
    element = a.dtype.type
    size = math.prod([a.shape[i] for i in over])
    count, left = element(size), element(size - (ddof if correction is None else correction))
    add: Callable[..., NDArray] = np.add.reduce
    if left <= 0 or not a.size:
        return None

    def kernel(v: NDArray) -> NDArray:
        centered = v - add(v, along, None, None, True) / count
        found: NDArray = add(centered * centered, along, None, None, keepdims) / left
        return found

    return kernel


def deviating(*args: Any, **kwargs: Any) -> Kernel | None:
    """`std` of NumPy's arrays."""
    variance = varying(*args, **kwargs)
    return None if variance is None else lambda v: np.sqrt(variance(v))


def _over(name: str, a: ShapedArray, axis: AxisLike, others: dict[str, object]) -> tuple[int, ...] | None:
    """The axes of a reduction that NumPy has as we have it; None if it has not."""
    plain = all(other is None or other is False for other in others.values()) and 0 not in a.shape
    return axes(name, axis, a.ndim) if plain else None


def extremes(
    prim: Callable[[tuple[int, ...]], ReduceExtremum], fold: Callable[..., NDArray]
) -> Callable[..., Kernel | None]:
    """The greatest or least of NumPy's arrays."""

    def kernel(a: ShapedArray, axis: AxisLike = None, out: None = None, **others: object) -> Kernel | None:
        over = _over("nanmax", a, axis, others)
        if not over:
            return None
        checked, folded = prim(over).checked, specialize_reduce(fold, over, a.ndim)
        return lambda x: checked(x, folded(x))

    return kernel


def averaging(
    a: ShapedArray, axis: AxisLike = None, dtype: None = None, out: None = None, **others: object
) -> Kernel | None:
    """`nanmean` of NumPy's arrays."""
    over = _over("nanmean", a, axis, {"dtype": dtype, **others})
    if not over:
        return None
    add, zero, dtype_ = specialize_reduce(np.add.reduce, over, a.ndim), np.zeros((), a.dtype), a.dtype
    counted: Callable[..., NDArray] = np.add.reduce
    axes_ = over[0] if len(over) == 1 else over

    def kernel(x: NDArray) -> NDArray:
        numbers = x == x
        return add(np.where(numbers, x, zero)) / counted(numbers, axes_, dtype_)

    return kernel


def spreading(root: bool) -> Callable[..., Kernel | None]:
    """`nanvar` or `nanstd` of all elements of NumPy's arrays."""

    def kernel(
        a: ShapedArray, axis: AxisLike = None, dtype: None = None, out: None = None, ddof: int = 0, **others: object
    ) -> Kernel | None:
        if axis is not None or not _over("nanvar", a, axis, {"dtype": dtype, **others}):
            return None
        element = a.dtype.type
        add: Callable[..., NDArray] = np.add.reduce

        def variance(x: NDArray) -> NDArray:
            numbers = x[x == x]
            count = numbers.size
            numbers -= add(numbers) / element(count)
            numbers *= numbers
            found: NDArray = add(numbers) / (element(count - ddof) if count > ddof else element(math.nan))
            return found

        return (lambda x: np.sqrt(variance(x))) if root else variance

    return kernel


# ------------------------------------------------------------------ arithmetic


def raising(x1: ShapedArray | Number, x2: ShapedArray | Number) -> Kernel | None:
    """`power` of NumPy's floats; integer powers that are known are multiplications."""
    return None if isinstance(x2, Number) and x2.kind is not float else power


def extreme_by(ufunc: np.ufunc, with_zeros: Callable[..., NDArray]) -> Callable[..., Kernel]:
    """The greater or lesser of NumPy's numbers."""

    def kernel(x1: ShapedArray | Number, x2: ShapedArray | Number) -> Kernel:
        array = x1 if isinstance(x1, ShapedArray) else x2
        if not isinstance(array, ShapedArray) or dtypes.is_integer(array.dtype):
            return ufunc
        return with_zeros if array is x1 else lambda x, y: with_zeros(y, x)

    return kernel


def clipping(
    arr: ShapedArray, min: ShapedArray | Number | float | None = None, max: ShapedArray | Number | float | None = None
) -> Kernel | None:
    """`clip` of NumPy's numbers; ends that are zeros are for those who tell them apart."""
    if isinstance(min, Number) and isinstance(max, Number):

        def between(v: NDArray, low: float, high: float) -> NDArray:
            if low and high:
                found: NDArray = np.minimum(np.maximum(v, low), high)
                return found
            return min_max.minimum(min_max.maximum(v, v.dtype.type(low)), v.dtype.type(high))

        return between
    return None
