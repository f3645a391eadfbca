"""Evenly spaced numbers, and the grids that vectors span."""

from __future__ import annotations

import math
from typing import Literal as Exactly
from typing import overload

import numpy as np

from tracefx.core import Array, ArrayLike, DType, DTypeLike, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array
from tracefx.core.sharding import DeviceOrSharding
from tracefx.dimensions.symbolic_dimensions import has_symbolic_dims, max_dim
from tracefx.errors import ConcretizationError
from tracefx.numpy.device_placement import place_on_device
from tracefx.numpy.dtype_routines import result_type
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, convert_operand, inexact_dtype, promote_args
from tracefx.numpy.shapes import moveaxis
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, elementwise, rounding
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import static_count, static_int
from tracefx.transforms.eager_calls import eager_cached


@eager_cached
def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceOrSharding | None = None,
) -> Array:
    """Returns the numbers from `start` (inclusive) to `stop` (exclusive), `step` apart.

    Args:
        start: The first number; if it is the only bound, the exclusive end of a range that starts at 0.
        stop: The exclusive end.
        step: The distance between neighbours; None means 1.
        dtype: The dtype of the result; None means the promoted dtype of the arguments.
        device: The device or sharding of the result; None means the default.

    Returns:
        A vector, empty if `stop` is not beyond `start`.

    Raises:
        TypeError: If a bound is traced (the result's shape depends on it) or not a number.
        ValueError: If a bound is complex or has axes.
        ZeroDivisionError: If `step` is 0.

    >>> arange(1, 7, 2)
    Array([1, 3, 5], dtype=int32)
    """
    if type(start) is int and stop is None and step is None and dtype is None:
        return place_on_device(shape.iota(dtypes.default_int(), max(0, start)), device)
    given = {"stop": start, "step": step} if stop is None else {"start": start, "stop": stop, "step": step}
    bounds = {name: x for name, x in given.items() if x is not None or x is start}
    numbers = {name: _static_number(f"arange: {name}", x) for name, x in bounds.items()}
    new = result_type(*bounds.values()) if dtype is None else dtypes.as_dtype(dtype, "arange: dtype")
    first, last, by = numbers.get("start", 0), numbers["stop"], numbers.get("step", 1)
    if has_symbolic_dims((first, last)):
        stride = static_int("arange", by, "step, with symbolic bounds,")
        distance = static_int("arange", last - first, "distance of the bounds") * (1 if stride > 0 else -1)
        size = max_dim(0, (distance + abs(stride) - 1) // abs(stride))
    else:
        size = max(0, math.ceil((last - first) / by))
    out = shape.iota(new, size)
    if step is not None:
        out = arithmetic.mul(_scalar_operand(by, new), out)
    if first != 0 or (step is not None and stop is not None):
        out = elementwise.add(_scalar_operand(first, new), out)
    return place_on_device(out, device)


def _scalar_operand(x: int | float, dtype: DType) -> Value:
    return convert_dtype(as_value(x), dtype)


def _static_number(what: str, x: ArrayLike) -> int | float:
    """Returns a bound as a Python number; raises an error unless it is a concrete real scalar."""
    value = as_operand(x, what)
    if value.aval.shape:
        raise ValueError(f"{what} must be one number, got {value.aval}")
    if dtypes.is_complex(value.aval.dtype):
        raise ValueError(f"{what} must be real, got {value.aval}")
    if isinstance(x, Array):
        try:
            number = x.item()
        except ConcretizationError as error:
            raise ConcretizationError(
                f"{what} determines the shape of the result, so it must be concrete, but {error.detail} Compute it "
                "with NumPy or Python numbers, or make the argument it comes from static, with static_argnums",
                error.detail,
            ) from error
    else:
        number = x.item() if isinstance(x, np.ndarray | np.generic) else x
    assert not isinstance(number, complex)
    return number


@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: Exactly[False] = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: DeviceOrSharding | None = None,
) -> Array: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    *,
    retstep: Exactly[True],
    dtype: DTypeLike | None = None,
    axis: int = 0,
    device: DeviceOrSharding | None = None,
) -> tuple[Array, Array]: ...
@eager_cached(numbers=2)
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: DeviceOrSharding | None = None,
) -> Array | tuple[Array, Array]:
    """Returns `num` evenly spaced numbers from `start` to `stop` along a new axis.

    Args:
        start: The first number or array of numbers.
        stop: The end; arrays are broadcast against `start`.
        num: How many numbers, a concrete integer.
        endpoint: Whether `stop` is the last number; if False, it is the exclusive end.
        retstep: Whether to return the spacing too.
        dtype: The dtype of the result; None means the promoted float dtype. Integer dtypes round down.
        axis: The position of the new axis.
        device: The device or sharding of the result; None means the default.

    Returns:
        The numbers; with `retstep`, a pair of them and their spacing (NaN if there is none).

    Raises:
        ValueError: If `num` is negative.

    >>> linspace(0, 1, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    count = static_count("linspace", num, "num")
    for what, x in (("start", start), ("stop", stop)):
        as_operand(x, f"linspace: {what}")  # rejects dtype names, which `result_type` would accept
    new = inexact_dtype(result_type(start, stop)) if dtype is None else dtypes.as_dtype(dtype, "linspace: dtype")
    computed = inexact_dtype(new)
    first, last = promote_args("linspace", convert_operand(start, computed), convert_operand(stop, computed))
    common_shape = first.aval.shape or last.aval.shape
    intervals = count - 1 if endpoint else count
    if common_shape:
        first, last = structural.broadcast_to(first, common_shape), structural.broadcast_to(last, common_shape)
    rows = [structural.broadcast_in_dim(v, (1, *common_shape), range(1, len(common_shape) + 1)) for v in (first, last)]
    if count == 0:
        out = shape.slice_axis(rows[0], 0, 0, 0)
    elif intervals == 0:
        out = rows[0]
    else:
        fraction = arithmetic.div(shape.iota(computed, intervals), convert_operand(intervals, computed))
        fraction = structural.broadcast_in_dim(fraction, (intervals, *common_shape), (0,))
        starts, ends = [
            structural.broadcast_in_dim(v, fraction.aval.shape, range(1, len(common_shape) + 1)) for v in (first, last)
        ]
        complement = arithmetic.sub(convert_operand(1, computed), fraction)
        out = elementwise.add(arithmetic.mul(starts, complement), arithmetic.mul(ends, fraction))
        if endpoint:
            out = shape.concatenate([out, rows[1]], 0)
    if dtypes.is_integer(new):
        out = rounding.floor(out)
    out = place_on_device(as_array(convert_dtype(moveaxis(out, 0, axis), new)), device)
    if not retstep:
        return out
    if intervals > 0:
        return out, arithmetic.div(arithmetic.sub(last, first), convert_operand(intervals, computed))
    return out, structural.full_like_aval(ShapedArray((), computed), math.nan)


@eager_cached
def meshgrid(*xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Array, ...]:
    """Returns coordinate arrays of the grid spanned by vectors: result `i` varies along the axis of vector `i`.

    Args:
        *xi: The coordinates along each axis: vectors or scalars.
        copy: Accepted for compatibility and ignored: arrays are immutable.
        sparse: Whether axes along which a result is constant have size 1.
        indexing: `"ij"` uses axis `i` for vector `i`; `"xy"` swaps the first two axes.

    Returns:
        One array for each vector.

    Raises:
        ValueError: If an argument has more than one axis, or `indexing` is unknown.

    >>> [a.tolist() for a in meshgrid(np.arange(2), np.arange(2), indexing="ij")]
    [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
    """
    del copy  # arrays are immutable, so shared memory is not observable
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    vectors = [as_operand(x, f"meshgrid: xi[{i}]") for i, x in enumerate(xi)]
    for i, v in enumerate(vectors):
        if v.aval.ndim > 1:
            raise ValueError(f"meshgrid: xi[{i}] must be a vector, got {v.aval}")
    axes = list(range(len(vectors)))
    if indexing == "xy" and len(axes) > 1:
        axes[:2] = [1, 0]
    sizes = [1] * len(vectors)
    for v, axis in zip(vectors, axes, strict=True):
        sizes[axis] = v.aval.size
    grids = []
    for v, axis in zip(vectors, axes, strict=True):
        grid_shape = [n if i == axis or not sparse else 1 for i, n in enumerate(sizes)]
        grids.append(structural.broadcast_in_dim(structural.reshape(v, (v.aval.size,)), grid_shape, (axis,)))
    return tuple(grids)
