"""Differences, gradients, trapezoidal integrals, phase unwrapping and cumulative sums along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tracefx.core import Array, ArrayLike, DTypeLike, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.dimensions.symbolic_dimensions import has_symbolic_dims
from tracefx.numpy.creation import full_like
from tracefx.numpy.joining import concatenate
from tracefx.numpy.logic import not_equal
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, convert_operand, inexact_dtype, promote_dtypes
from tracefx.numpy.reductions import cumprod, cumsum, sum
from tracefx.numpy.shapes import broadcast_to, moveaxis, normalize_axes, ravel
from tracefx.numpy.symbolic_sizes import symbolic_slice
from tracefx.numpy.ufuncs import absolute, add, divide, multiply, remainder, subtract, where
from tracefx.ops import structural
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import canonicalize_axis, static_count
from tracefx.transforms.eager_calls import eager_cached


def _slice_along(x: Array, start: int | None, stop: int | None, axis: int) -> Array:
    """Returns `x[start:stop]` along an axis."""
    if has_symbolic_dims((x.shape[axis], start, stop)):
        first, last, _, _ = symbolic_slice(slice(start, stop), x.shape[axis])
        return shape.slice_axis(x, first, last, axis)
    first, last, _ = slice(start, stop).indices(x.shape[axis])
    return shape.slice_axis(x, first, max(first, last), axis)


@eager_cached
def diff(
    a: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Array:
    """Returns the differences of neighbours along an axis, taken `n` times; for bools, where neighbours differ.

    Args:
        a: The array.
        n: How many times to take differences.
        axis: The axis.
        prepend: Elements to put in front first; a number stands for one element. None means none.
        append: Elements to put behind first, likewise.

    Returns:
        An array that is `n` shorter along the axis, apart from the elements added.

    Raises:
        ValueError: If `a` is a scalar or `n` is negative.

    >>> import numpy as np
    >>> diff(np.array([1, 4, 9])).tolist()
    [3, 5]
    """
    x = as_array(as_operand(a, "diff: a"))
    times = static_count("diff", n, "n")
    if times == 0:
        return x
    if not x.ndim:
        raise ValueError(f"diff: a must have an axis, got {x.aval}")
    along = canonicalize_axis("diff", axis, x.ndim)
    ends = [_end(end, x, along, what) for end, what in ((prepend, "prepend"), (append, "append"))]
    if any(end is not None for end in ends):
        x = concatenate([part for part in (ends[0], x, ends[1]) if part is not None], along)
    for _ in range(times):
        later, earlier = _slice_along(x, 1, None, along), _slice_along(x, None, -1, along)
        x = not_equal(later, earlier) if dtypes.is_bool(x.dtype) else subtract(later, earlier)
    return x


def _end(end: ArrayLike | None, x: Array, axis: int, what: str) -> Array | None:
    if end is None:
        return None
    value = as_array(as_operand(end, f"diff: {what}"))
    return value if value.ndim else broadcast_to(value, [1 if i == axis else n for i, n in enumerate(x.shape)])


@eager_cached
def ediff1d(ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Array:
    """Returns the differences of neighbours in the flattened array.

    Args:
        ary: The array.
        to_end: Elements to put behind the differences; None means none.
        to_begin: Elements to put in front of them; None means none.

    Returns:
        A vector of the dtype of `ary`.

    >>> import numpy as np
    >>> ediff1d(np.array([1, 4, 9]), to_begin=0).tolist()
    [0, 3, 5]
    """
    x = ravel(as_operand(ary, "ediff1d: ary"))
    out = diff(x) if not dtypes.is_bool(x.dtype) else subtract(x[1:], x[:-1])
    parts = [
        ravel(convert_dtype(as_operand(end, f"ediff1d: {what}"), x.dtype)) if end is not None else None
        for end, what in ((to_begin, "to_begin"), (to_end, "to_end"))
    ]
    return concatenate([part for part in (parts[0], out, parts[1]) if part is not None])


@eager_cached
def gradient(
    f: ArrayLike, *varargs: ArrayLike, axis: int | Sequence[int] | None = None, edge_order: int | None = None
) -> Array | list[Array]:
    """Returns the derivatives of samples along axes: central differences inside, one-sided ones at the ends.

    Args:
        f: The samples.
        varargs: The spacing of samples: a number, or a vector of coordinates; one for all axes or one for each.
            Without any, samples are 1 apart.
        axis: The axis or axes; None means all.
        edge_order: Not implemented; must be None.

    Returns:
        An array for one axis, otherwise a list of arrays, one per axis.

    Raises:
        ValueError: If an axis has fewer than two samples.

    >>> import numpy as np
    >>> gradient(np.array([1.0, 4.0, 9.0])).tolist()
    [3.0, 4.0, 5.0]
    """
    if edge_order is not None:
        raise NotImplementedError("gradient: edge_order is not implemented; ends have differences of first order")
    x, *spacings = map(as_array, promote_dtypes("gradient", f, *varargs, inexact=True))
    along = tuple(range(x.ndim)) if axis is None else normalize_axes("gradient", axis, x.ndim)
    if len(spacings) not in (0, 1, len(along)):
        raise TypeError(f"gradient: {len(spacings)} distances for {len(along)} axes: pass one, or one for each axis")
    if along and min(x.shape[i] for i in along) < 2:
        raise ValueError(f"gradient: each axis must have two samples at least, got {x.aval} and axes {along}")
    if len(spacings) < 2:
        spacings = [*(spacings or [as_array(convert_operand(1.0, x.dtype, True))])] * len(along)
    gradients = [_gradient_along_axis(x, h, axis=i) for i, h in zip(along, spacings, strict=True)]
    return gradients[0] if len(gradients) == 1 else gradients


@eager_cached(compiled=True)
def _gradient_along_axis(x: Array, h: Array, *, axis: int) -> Array:
    """Returns the derivative along one axis, with spacing `h`: a number, or a vector of coordinates."""
    first = subtract(_slice_along(x, 1, 2, axis), _slice_along(x, 0, 1, axis))
    last = subtract(_slice_along(x, -1, None, axis), _slice_along(x, -2, -1, axis))
    if not h.ndim:
        inner = divide(multiply(subtract(_slice_along(x, 2, None, axis), _slice_along(x, None, -2, axis)), 0.5), h)
        return concatenate([divide(first, h), inner, divide(last, h)], axis)
    if h.ndim > 1 or h.size != x.shape[axis]:
        raise ValueError(
            f"gradient: a spacing must be a number, or a vector as long as axis {axis} of {x.aval}; got {h.aval}"
        )
    steps = diff(structural.reshape(h, [h.size if i == axis else 1 for i in range(x.ndim)]), axis=axis)
    slopes = divide(diff(x, axis=axis), steps)
    before, after = _slice_along(steps, None, -1, axis), _slice_along(steps, 1, None, axis)
    # The slope at a sample is the mean of the slopes on both sides, each weighted by the other's distance.
    left, right = _slice_along(slopes, None, -1, axis), _slice_along(slopes, 1, None, axis)
    inner = divide(add(multiply(after, left), multiply(before, right)), add(before, after))
    return concatenate([_slice_along(slopes, 0, 1, axis), inner, _slice_along(slopes, -1, None, axis)], axis)


@eager_cached
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Array:
    """Returns the integral of samples along an axis by the trapezoidal rule.

    Args:
        y: The samples.
        x: Their coordinates; None means that they are `dx` apart.
        dx: The spacing of samples without `x`.
        axis: The axis.

    Returns:
        An array of floats or complex numbers without the axis.

    >>> import numpy as np
    >>> trapezoid(np.array([1.0, 2.0, 3.0]))
    Array(4., dtype=float32)
    """
    operands = [y] if x is None else [y, x]
    values = (
        promote_dtypes("trapezoid", *operands, inexact=True) if len(operands) > 1 else [as_operand(y, "trapezoid: y")]
    )
    dtype, weak = inexact_dtype(values[0].aval.dtype), values[0].aval.weak_type
    samples, *coordinates = [as_array(convert_dtype(v, dtype, weak)) for v in values]
    along = canonicalize_axis("trapezoid", axis, samples.ndim)
    samples = moveaxis(samples, along, -1)
    if coordinates:
        x_samples = coordinates[0]
        steps = diff(x_samples) if x_samples.ndim == 1 else moveaxis(diff(x_samples, axis=axis), axis, -1)
    else:
        steps = as_array(as_operand(dx, "trapezoid: dx"))
        if steps.ndim:
            steps = moveaxis(shape.expand_dims(steps, range(samples.ndim - steps.ndim)), along, -1)
    if not steps.ndim or steps.shape[-1] == 1:
        ends = multiply(add(samples[..., 0], samples[..., -1]), 0.5)
        return multiply(steps if not steps.ndim else steps[..., 0], subtract(sum(samples, -1), ends))
    return multiply(sum(multiply(steps, add(samples[..., 1:], samples[..., :-1])), -1), 0.5)


def unwrap(p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1, period: ArrayLike = 2 * math.pi) -> Array:
    """Unwraps phases: adds multiples of `period`, so that no step along an axis is longer than half of it.

    Args:
        p: The phases.
        discont: Steps shorter than this stay as they are; None means half of `period`.
        axis: The axis.
        period: The period.

    Returns:
        An array of floats of the shape of `p`.

    Raises:
        ValueError: If `p` is complex.

    >>> import numpy as np
    >>> unwrap(np.array([0, 3, -3.0])).round(4).tolist()
    [0.0, 3.0, 3.2832000255584717]
    """
    values = promote_dtypes("unwrap", p, period)
    dtype = values[0].aval.dtype
    if dtypes.is_complex(dtype):
        raise ValueError(f"unwrap: complex numbers are not ordered, got {values[0].aval}; unwrap their angle")
    x, cycle = [as_array(v) for v in values]
    along = canonicalize_axis("unwrap", axis, x.ndim)
    if not x.shape[along]:
        return x
    return _unwrap(x, cycle, discont, axis=along)


@eager_cached(numbers=3, compiled=True)
def _unwrap(x: Array, cycle: Array, discont: ArrayLike | None, *, axis: int) -> Array:
    half = cycle // 2 if dtypes.is_integer(x.dtype) else divide(cycle, 2)
    steps = diff(x, axis=axis)
    shortest = subtract(remainder(add(steps, half), cycle), half)
    shortest = where((shortest == -half) & (steps > 0), half, shortest)
    limit = divide(cycle, 2) if discont is None else discont
    correction = where(absolute(steps) < limit, 0, subtract(shortest, steps))
    unwrapped = add(_slice_along(x, 1, None, axis), cumsum(correction, axis))
    return concatenate([_slice_along(x, 0, 1, axis), unwrapped], axis)


@eager_cached
def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Returns the cumulative sum along an axis.

    Args:
        x: An array with at least one axis.
        axis: The axis; None is allowed for a vector.
        dtype: The dtype of the result; None means that of `x`, widened to the default integer for narrower integers.
        include_initial: Whether the result starts with the empty sum, 0.

    Returns:
        An array of the shape of `x`, one longer along the axis with `include_initial`.

    Raises:
        ValueError: If `x` has no axes, or more than one without `axis`.

    >>> import numpy as np
    >>> cumulative_sum(np.arange(4), include_initial=True).tolist()
    [0, 0, 1, 3, 6]
    """
    value, along = _cumulative_operand("cumulative_sum", x, axis)
    out = cumsum(value, along, _accumulator_dtype(value, dtype))
    return _prepend_initial(out, 0, along) if include_initial else out


@eager_cached
def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Returns the cumulative product along an axis.

    Args:
        x: An array with at least one axis.
        axis: The axis; None is allowed for a vector.
        dtype: The dtype of the result; None means that of `x`, widened to the default integer for narrower integers.
        include_initial: Whether the result starts with the empty product, 1.

    Returns:
        An array of the shape of `x`, one longer along the axis with `include_initial`.

    Raises:
        ValueError: If `x` has no axes, or more than one without `axis`.

    >>> import numpy as np
    >>> cumulative_prod(np.arange(1, 4), include_initial=True).tolist()
    [1, 1, 2, 6]
    """
    value, along = _cumulative_operand("cumulative_prod", x, axis)
    out = cumprod(value, along, _accumulator_dtype(value, dtype))
    return _prepend_initial(out, 1, along) if include_initial else out


def _cumulative_operand(name: str, x: ArrayLike, axis: int | None) -> tuple[Value, int]:
    value = as_operand(x, f"{name}: x")
    if not value.aval.ndim:
        raise ValueError(f"{name}: x must have an axis, got {value.aval}")
    if axis is None:
        if value.aval.ndim > 1:
            raise ValueError(f"{name}: axis must be given for an array of several, got {value.aval}")
        return value, 0
    return value, canonicalize_axis(name, axis, value.aval.ndim)


def _accumulator_dtype(x: Value, dtype: DTypeLike | None) -> DTypeLike | None:
    """Returns `dtype`, or for integers narrower than the default one, the default: the array API's rule."""
    x_dtype, default = x.aval.dtype, dtypes.default_int()
    if (
        dtype is not None
        or not dtypes.is_integer(x_dtype)
        or dtypes.itemsize_bits(x_dtype) >= dtypes.itemsize_bits(default)
    ):
        return dtype
    return default if dtypes.is_signed(x_dtype) else dtypes.default_uint()


def _prepend_initial(x: Array, first: int, axis: int) -> Array:
    return concatenate([full_like(x, first, shape=[1 if i == axis else n for i, n in enumerate(x.shape)]), x], axis)
