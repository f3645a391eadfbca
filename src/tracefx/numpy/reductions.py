"""Reductions over axes: sums, products, extremes, truth values, counts; and cumulative sums.

An axis out of range raises a ValueError that names it; a list in place of an array raises a TypeError. Sums of
16-bit floats are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tracefx.core import (
    Array,
    ArrayLike,
    AxisLike,
    DType,
    DTypeLike,
    Literal,
    Scalar,
    ShapedArray,
    Value,
    as_value,
    dtypes,
)
from tracefx.core.handler import as_array
from tracefx.numpy.logic import convert_to_bool
from tracefx.numpy.operand_promotion import (
    as_operand,
    broadcast_operand_shapes,
    convert_dtype,
    convert_operand,
    reject_out,
)
from tracefx.numpy.shapes import axes
from tracefx.numpy.ufuncs import broadcast_select
from tracefx.ops.elementwise import arithmetic, elementwise
from tracefx.ops.monoids import MAXIMUM, MINIMUM, Extremum
from tracefx.ops.reductions import cumulative, reduction
from tracefx.ops.static_integers import canonicalize_axis
from tracefx.ops.structural import broadcast_in_dim, broadcast_to, reduce_sum, reshape
from tracefx.transforms.eager_calls import eager_cached

_HALF_PRECISION: Final = frozenset({dtypes.float16, dtypes.bfloat16})
_ACCUMULATED_IN_OWN_DTYPE: Final = frozenset({dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128})
Reduce = Callable[[Value, Sequence[int]], Array]


def _restore_reduced_axes(x: Array, shape: Sequence[int], over: Sequence[int], keepdims: bool) -> Array:
    """Puts reduced axes back with size 1 if `keepdims`."""
    if not keepdims:
        return x
    sizes = [1 if i in over else n for i, n in enumerate(shape)]
    return broadcast_in_dim(x, sizes, [i for i in range(len(shape)) if i not in over])


def _apply_mask(name: str, x: Value, where: ArrayLike | None, fill: Scalar) -> Value:
    """Returns `x` with `fill` where the mask is False."""
    if where is None:
        return x
    mask = mask_operand(name, where)
    shape = broadcast_operand_shapes(name, x.aval.shape, mask.aval.shape)
    full = broadcast_to(x, shape) if x.aval.shape != shape else x
    return broadcast_select(broadcast_to(mask, shape), full, Literal(fill, ShapedArray((), x.aval.dtype)))


def mask_operand(name: str, where: ArrayLike) -> Value:
    """Returns the argument `where`; raises TypeError unless it is an array of bools."""
    mask = as_operand(where, f"{name}: where")
    if mask.aval.dtype != dtypes.bool_:
        raise TypeError(f"{name}: where must be an array of bools, got {mask.aval}")
    return mask


def _initial_operand(name: str, initial: ArrayLike, dtype: DType) -> Value:
    value = convert_operand(initial, dtype, what=f"{name}: initial")
    if value.aval.shape:
        raise ValueError(f"{name}: initial must have no axes, got {value.aval}")
    return value


def _sum_or_product(
    name: str,
    a: ArrayLike,
    axis: AxisLike,
    dtype: DTypeLike | None,
    promote_integers: bool,
    out: None,
    keepdims: bool,
    initial: ArrayLike | None,
    where: ArrayLike | None,
    reduce: Reduce,
    combine: Callable[[ArrayLike, ArrayLike], Array],
    identity: int,
) -> Array:
    """Computes a sum or product in the requested dtype, or in one wide enough for integers."""
    x = as_operand(a, f"{name}: a")
    over = axes(name, axis, x.aval.ndim)
    reject_out(name, out)
    plain = dtype is None and initial is None and where is None and not keepdims
    if plain and x.aval.dtype in _ACCUMULATED_IN_OWN_DTYPE and not x.aval.weak_type:
        return reduce(x, over)
    if dtype is not None:
        result = dtypes.as_dtype(dtype, f"{name}: dtype")
    else:
        promoted = promote_integers or dtypes.is_bool(x.aval.dtype)
        result = _accumulator_dtype(x.aval.dtype) if promoted else x.aval.dtype
    x = convert_dtype(x, computation_dtype(result))
    if dtypes.is_bool(result):  # the sum of bools is `any`, the product `all`
        x = convert_dtype(x, dtypes.default_int())
    total = reduce(_apply_mask(name, x, where, identity), over)
    if initial is not None:
        total = combine(_initial_operand(name, initial, x.aval.dtype), total)
    return as_array(convert_dtype(_restore_reduced_axes(total, _masked_shape(x, where), over, keepdims), result))


def _masked_shape(x: Value, where: ArrayLike | None) -> Sequence[int]:
    return (
        x.aval.shape if where is None else broadcast_operand_shapes("where", x.aval.shape, as_value(where).aval.shape)
    )


def computation_dtype(result: DType) -> DType:
    """Returns the dtype in which a sum or mean of dtype `result` is computed."""
    return dtypes.float32 if result in _HALF_PRECISION else result


def _accumulator_dtype(dtype: DType) -> DType:
    """Returns the dtype of sums: at least as wide as the default for integers and bools, for others their own."""
    if dtypes.is_bool(dtype):
        return dtypes.default_int()
    if not dtypes.is_integer(dtype):
        return dtype
    default = dtypes.default_int() if dtypes.is_signed(dtype) else dtypes.default_uint()
    return default if dtypes.itemsize_bits(dtype) < dtypes.itemsize_bits(default) else dtype


@eager_cached
def sum(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Returns the sum over axes.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        dtype: The dtype of the result; None means that of `a`, widened for integers and bools (see `promote_integers`).
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1.
        initial: A number that is added to the result.
        where: A mask of the elements to include, broadcast against `a`; None includes all.
        promote_integers: Whether integers narrower than the default integer dtype are summed in it. Bools always are.

    Returns:
        An array without the reduced axes; 0 where there are no elements.

    >>> sum(np.ones((2, 3)), axis=1)
    Array([3., 3.], dtype=float32)
    """
    options = dtype, promote_integers, out, keepdims, initial, where
    return _sum_or_product("sum", a, axis, *options, reduce_sum, elementwise.add, 0)


@eager_cached
def prod(
    a: ArrayLike,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Returns the product over axes.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        dtype: The dtype of the result; None means that of `a`, widened for integers and bools (see `promote_integers`).
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1.
        initial: A number that multiplies the result.
        where: A mask of the elements to include, broadcast against `a`; None includes all.
        promote_integers: Whether integers narrower than the default integer dtype are multiplied in it. Bools always
            are.

    Returns:
        An array without the reduced axes; 1 where there are no elements.

    >>> prod(np.arange(1, 5))
    Array(24, dtype=int32)
    """
    options = dtype, promote_integers, out, keepdims, initial, where
    return _sum_or_product("prod", a, axis, *options, reduction.reduce_prod, arithmetic.mul, 1)


@eager_cached
def max(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the maximum over axes, NaN if an element is NaN.

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

    >>> max(np.arange(6).reshape(2, 3), axis=1)
    Array([2, 5], dtype=int32)
    """
    return _max_or_min("max", a, axis, out, keepdims, initial, where, reduction.reduce_max, arithmetic.max)


@eager_cached
def min(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the minimum over axes, NaN if an element is NaN.

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

    >>> min(np.arange(6).reshape(2, 3), axis=1)
    Array([0, 3], dtype=int32)
    """
    return _max_or_min("min", a, axis, out, keepdims, initial, where, reduction.reduce_min, arithmetic.min)


def minmax(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | tuple[ArrayLike | None, ArrayLike | None] | None = None,
    where: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """Returns the minimum and the maximum over axes, NaN if an element is NaN.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1.
        initial: One more element that takes part, or a pair of them: one for the minimum, one for the maximum.
        where: A mask of the elements to include, broadcast against `a`; it needs `initial`.

    Returns:
        A pair of arrays of the dtype of `a`, without the reduced axes: the minimum, and the maximum.

    Raises:
        ValueError: If there are no elements and no `initial`, or `where` is given without `initial`.

    >>> minmax(np.array([2, 5, 1]))
    (Array(1, dtype=int32), Array(5, dtype=int32))
    """
    least, greatest = initial if isinstance(initial, tuple) else (initial, initial)
    return min(a, axis, out, keepdims, least, where), max(a, axis, out, keepdims, greatest, where)


def _max_or_min(
    name: str,
    a: ArrayLike,
    axis: AxisLike,
    out: None,
    keepdims: bool,
    initial: ArrayLike | None,
    where: ArrayLike | None,
    reduce: Reduce,
    combine: Callable[[ArrayLike, ArrayLike], Array],
) -> Array:
    x = as_operand(a, f"{name}: a")
    reject_out(name, out)
    over = axes(name, axis, x.aval.ndim)
    if initial is None:
        if where is not None:
            raise ValueError(f"{name}: where needs initial, the result where the mask selects no element")
        if 0 in [x.aval.shape[i] for i in over]:
            raise ValueError(
                f"{name} of no elements: {x.aval} along axis {axis}; pass initial, the result in this case"
            )
    x = convert_dtype(x, x.aval.dtype)
    masked = x
    if where is not None:
        identity = _extreme_identity(MAXIMUM if name == "max" else MINIMUM, x.aval.dtype)
        masked = _apply_mask(name, x, where, identity)
    extreme = reduce(masked, over)
    if initial is not None:
        extreme = combine(_initial_operand(name, initial, x.aval.dtype), extreme)
    return _restore_reduced_axes(extreme, _masked_shape(x, where), over, keepdims)


def _extreme_identity(extremum: Extremum, dtype: DType) -> Scalar:
    """Returns the identity of a maximum or minimum: the least or the greatest number of a dtype."""
    identity = extremum.identity(dtype)
    return complex(identity.real, identity.real) if isinstance(identity, complex) else identity


@eager_cached
def ptp(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False) -> Array:
    """Returns the difference of the maximum and the minimum over axes.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1.

    Returns:
        An array of the dtype of `a`, without the reduced axes.

    Raises:
        ValueError: If there are no elements.

    >>> ptp(np.arange(5))
    Array(4, dtype=int32)
    """
    reject_out("ptp", out)
    return arithmetic.sub(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


@eager_cached
def all(
    a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Array:
    """Returns whether all elements along axes are true (differ from 0).

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1.
        where: A mask of the elements to include, broadcast against `a`; None includes all.

    Returns:
        An array of bools without the reduced axes; True where there are no elements.

    >>> all(np.array([1, 2, 0]))
    Array(False, dtype=bool)
    """
    return _all_or_any("all", a, axis, out, keepdims, where, reduction.reduce_and, True)


@eager_cached
def any(
    a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Array:
    """Returns whether any element along axes is true (differs from 0).

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1.
        where: A mask of the elements to include, broadcast against `a`; None includes all.

    Returns:
        An array of bools without the reduced axes; False where there are no elements.

    >>> any(np.array([1, 2, 0]))
    Array(True, dtype=bool)
    """
    return _all_or_any("any", a, axis, out, keepdims, where, reduction.reduce_or, False)


def _all_or_any(
    name: str,
    a: ArrayLike,
    axis: AxisLike,
    out: None,
    keepdims: bool,
    where: ArrayLike | None,
    reduce: Reduce,
    identity: bool,
) -> Array:
    reject_out(name, out)
    x = as_operand(a, f"{name}: a")
    over = axes(name, axis, x.aval.ndim)
    x = convert_dtype(x, dtypes.bool_)
    return _restore_reduced_axes(
        reduce(_apply_mask(name, x, where, identity), over), _masked_shape(x, where), over, keepdims
    )


@eager_cached
def count_nonzero(a: ArrayLike, axis: AxisLike = None, keepdims: bool = False) -> Array:
    """Returns how many elements along axes differ from 0.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        keepdims: Whether to keep the reduced axes with size 1.

    Returns:
        An array of integers without the reduced axes.

    >>> count_nonzero(np.array([1, 2, 0]))
    Array(2, dtype=int32)
    """
    x = as_operand(a, "count_nonzero: a")
    return sum(convert_to_bool(x, "count_nonzero: a"), axis, keepdims=keepdims)


@eager_cached
def argmax(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Returns the index of the maximum along an axis, the first of several; NaN counts as the maximum.

    Args:
        a: The array.
        axis: The axis to reduce; None means the flattened array.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1; None means False.

    Returns:
        An array of integers without the reduced axis.

    Raises:
        ValueError: If there are no elements.

    >>> argmax(np.array([1, 3, 3]))
    Array(1, dtype=int32)
    """
    return _arg_reduce("argmax", a, axis, out, bool(keepdims), reduction.argmax)


@eager_cached
def argmin(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Returns the index of the minimum along an axis, the first of several; NaN counts as the minimum.

    Args:
        a: The array.
        axis: The axis to reduce; None means the flattened array.
        out: Not supported; must be None.
        keepdims: Whether to keep the reduced axes with size 1; None means False.

    Returns:
        An array of integers without the reduced axis.

    Raises:
        ValueError: If there are no elements.

    >>> argmin(np.array([3, 1, 1]))
    Array(1, dtype=int32)
    """
    return _arg_reduce("argmin", a, axis, out, bool(keepdims), reduction.argmin)


def _arg_reduce(
    name: str,
    a: ArrayLike,
    axis: int | None,
    out: None,
    keepdims: bool,
    find: Callable[[ArrayLike, int, DTypeLike], Array],
) -> Array:
    reject_out(name, out)
    x = as_operand(a, f"{name}: a")
    shape = x.aval.shape
    along = 0 if axis is None else canonicalize_axis(name, axis, len(shape))
    if axis is None:
        x = reshape(x, (x.aval.size,))
    if x.aval.shape[along] == 0:
        raise ValueError(f"{name} of no elements: {ShapedArray(shape, x.aval.dtype)} along axis {axis}")
    index = find(x, along, dtypes.default_int())
    return _restore_reduced_axes(index, shape, range(len(shape)) if axis is None else (along,), keepdims)


# ------------------------------------------------------------------ cumulative sums and products


@eager_cached
def cumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    """Returns the cumulative sum along an axis.

    Args:
        a: The array.
        axis: The axis; None means the flattened array.
        dtype: The dtype of the result; None means that of `a`, and the default integer for bools.
        out: Not supported; must be None.

    Returns:
        An array of the shape of `a`; a vector without `axis`.

    >>> cumsum(np.arange(4)).tolist()
    [0, 1, 3, 6]
    """
    reject_out("cumsum", out)
    return _cumulative("cumsum", a, axis, dtype, cumulative.cumsum)


@eager_cached
def cumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    """Returns the cumulative product along an axis.

    Args:
        a: The array.
        axis: The axis; None means the flattened array.
        dtype: The dtype of the result; None means that of `a`, and the default integer for bools.
        out: Not supported; must be None.

    Returns:
        An array of the shape of `a`; a vector without `axis`.

    >>> cumprod(np.arange(1, 5)).tolist()
    [1, 2, 6, 24]
    """
    reject_out("cumprod", out)
    return _cumulative("cumprod", a, axis, dtype, cumulative.cumprod)


def _cumulative(
    name: str, a: ArrayLike, axis: int | None, dtype: DTypeLike | None, fold: Callable[[ArrayLike, int], Array]
) -> Array:
    x = as_operand(a, f"{name}: a")
    if axis is None or not x.aval.shape:
        x = reshape(x, (x.aval.size,))
    along = canonicalize_axis(name, 0 if axis is None else axis, x.aval.ndim)
    if dtype is not None:
        x = convert_dtype(x, dtypes.as_dtype(dtype, f"{name}: dtype"))
    elif dtypes.is_bool(x.aval.dtype):
        x = convert_dtype(x, dtypes.default_int())
    if dtypes.is_bool(x.aval.dtype):  # a sum is logical or, a product logical and: the maximum or minimum of 0 and 1
        extreme = cumulative.cummax if fold is cumulative.cumsum else cumulative.cummin
        return as_array(convert_dtype(extreme(convert_dtype(x, dtypes.int8), along), dtypes.bool_))
    return fold(convert_dtype(x, x.aval.dtype), along)


amax = max
amin = min
