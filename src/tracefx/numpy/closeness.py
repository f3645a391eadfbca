"""Comparison of arrays: equality and closeness."""

from __future__ import annotations

from tracefx.core import Array, ArrayLike, Value, dtypes
from tracefx.errors import BroadcastError
from tracefx.numpy.creation import NestedArrayLike, asarray
from tracefx.numpy.logic import equal, isfinite, isnan, logical_and, logical_or
from tracefx.numpy.operand_promotion import convert_operand, promote_args_inexact
from tracefx.numpy.reductions import all
from tracefx.numpy.ufuncs import absolute, add, multiply, subtract
from tracefx.ops import structural
from tracefx.ops.elementwise import comparison
from tracefx.ops.shape.array_creation import full
from tracefx.transforms.eager_calls import eager_cached


@eager_cached(fused="at the second call")
def isclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08, equal_nan: bool = False
) -> Array:
    """Returns where `a` is close to `b`: `abs(a - b) <= atol + rtol * abs(b)`.

    Infinities are close to themselves, and equal random keys to each other.

    Args:
        a: An array.
        b: The array of reference values, broadcast against `a`.
        rtol: The relative tolerance.
        atol: The absolute tolerance.
        equal_nan: Whether NaNs are close to each other.

    Returns:
        An array of bools of the broadcast shape.

    >>> isclose(1.0, 1.000001)
    Array(True, dtype=bool)
    """
    if isinstance(a, Array) and isinstance(b, Array) and dtypes.is_key(a.aval.dtype) and dtypes.is_key(b.aval.dtype):
        return equal(a, b)
    x, y = promote_args_inexact("isclose", a, b)
    dtype = dtypes.real_dtype(x.aval.dtype)
    relative, absolute_ = [
        convert_operand(t, dtype, what=f"isclose: {what}") for t, what in ((rtol, "rtol"), (atol, "atol"))
    ]
    bound = add(absolute_, multiply(relative, absolute(y)))
    within = _broadcast_le(absolute(subtract(x, y)), bound)
    out = logical_or(equal(x, y), logical_and(isfinite(y), within))
    return logical_or(out, logical_and(isnan(x), isnan(y))) if equal_nan else out


def _broadcast_le(x: Value, bound: Value) -> Array:
    """Returns `x <= bound`, with scalars broadcast."""
    shape = x.aval.shape or bound.aval.shape
    return comparison.le(structural.broadcast_to(x, shape), structural.broadcast_to(bound, shape))


@eager_cached(fused="at the second call")
def allclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08, equal_nan: bool = False
) -> Array:
    """Returns whether all elements of `a` are close to `b`, as `isclose` defines it.

    Args:
        a: An array.
        b: The array of reference values, broadcast against `a`.
        rtol: The relative tolerance.
        atol: The absolute tolerance.
        equal_nan: Whether NaNs are close to each other.

    Returns:
        A bool array without axes.

    >>> import numpy as np
    >>> allclose(np.ones(3), 1.1)
    Array(False, dtype=bool)
    """
    return all(isclose(a, b, rtol, atol, equal_nan))


@eager_cached
def array_equal(a1: NestedArrayLike, a2: NestedArrayLike, equal_nan: bool = False) -> Array:
    """Returns whether two arrays have the same shape and equal elements.

    Args:
        a1: An array or nested sequences.
        a2: Another.
        equal_nan: Whether NaNs are equal to each other.

    Returns:
        A bool array without axes.

    >>> import numpy as np
    >>> array_equal(np.ones(3), np.ones(2))
    Array(False, dtype=bool)
    """
    x, y = asarray(a1), asarray(a2)
    if x.aval.shape != y.aval.shape:
        return full((), False, "bool")
    out = equal(x, y)
    return all(logical_or(out, logical_and(isnan(x), isnan(y))) if equal_nan else out)


def array_equiv(a1: NestedArrayLike, a2: NestedArrayLike) -> Array:
    """Returns whether two arrays have equal elements after broadcasting; False if their shapes do not broadcast.

    Args:
        a1: An array or nested sequences.
        a2: Another.

    Returns:
        A bool array without axes.

    >>> import numpy as np
    >>> array_equiv(np.ones((2, 3)), np.ones(3))
    Array(True, dtype=bool)
    """
    x, y = asarray(a1), asarray(a2)
    try:
        return all(equal(x, y))
    except BroadcastError:
        return full((), False, "bool")
