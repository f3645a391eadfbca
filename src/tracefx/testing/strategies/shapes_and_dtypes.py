"""Strategies for shapes, axes and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tracefx.core import DType, Shape
from tracefx.core import dtypes as kinds

DTYPES: Final = (
    kinds.bool_,
    kinds.int4,
    kinds.int8,
    kinds.int32,
    kinds.int64,
    kinds.uint8,
    kinds.uint32,
    kinds.bfloat16,
    kinds.float16,
    kinds.float32,
    kinds.float64,
    kinds.complex64,
    kinds.complex128,
)
"""The dtypes that are drawn: one of every kind and width."""


def shapes(max_dims: int = 3, max_side: int = 3, min_side: int = 0, min_dims: int = 0) -> SearchStrategy[Shape]:
    """Returns a strategy for shapes.

    Args:
        max_dims: the maximum rank.
        max_side: the maximum size of an axis.
        min_side: the minimum size of an axis; 0 includes empty arrays.
        min_dims: the minimum rank.

    Returns:
        A strategy for tuples of integers.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, deadline=None)
    ... @given(shapes(max_dims=2))
    ... def test(shape):
    ...     assert len(shape) <= 2
    >>> test()
    """
    return st.lists(st.integers(min_side, max_side), min_size=min_dims, max_size=max_dims).map(tuple)


@st.composite
def broadcastable_shapes(draw: DrawFn, count: int, max_dims: int = 3, max_side: int = 3) -> tuple[Shape, ...]:
    """Draws shapes that broadcast together.

    Args:
        count: the number of shapes.
        max_dims: the maximum rank.
        max_side: the maximum size of an axis.

    Returns:
        A strategy for tuples of `count` shapes.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, deadline=None)
    ... @given(broadcastable_shapes(2))
    ... def test(pair):
    ...     assert len(pair) == 2
    >>> test()
    """
    broadcast_shape = draw(shapes(max_dims, max_side))
    group = []
    for _ in range(count):
        suffix = broadcast_shape[draw(st.integers(0, len(broadcast_shape))) :]
        group.append(tuple([n if draw(st.booleans()) else 1 for n in suffix]))
    return tuple(group)


def axes(ndim: int) -> SearchStrategy[int]:
    """Returns a strategy for an axis of an array, counted from either end.

    Args:
        ndim: the rank of the array, at least 1.

    Returns:
        A strategy for integers from `-ndim` to `ndim - 1`.

    Raises:
        ValueError: if `ndim` is less than 1.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, deadline=None)
    ... @given(axes(3))
    ... def test(axis):
    ...     assert -3 <= axis < 3
    >>> test()
    """
    if ndim < 1:
        raise ValueError(f"axes needs an array with axes to choose from, got ndim={ndim}")
    return st.integers(0, ndim - 1) | st.integers(-ndim, -1)


@st.composite
def axis_tuples(draw: DrawFn, ndim: int, min_size: int = 0) -> tuple[int, ...]:
    """Draws tuples of distinct axes in any order, each counted from either end, for reductions and permutations.

    Args:
        ndim: the rank of the array.
        min_size: the minimum number of axes.

    Returns:
        A strategy for tuples of integers.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, deadline=None)
    ... @given(axis_tuples(3, min_size=1))
    ... def test(axes):
    ...     assert 1 <= len(axes) <= 3
    >>> test()
    """
    nonnegative_axes = draw(st.lists(st.integers(0, ndim - 1), unique=True, min_size=min_size)) if ndim else []
    return tuple([axis - ndim if draw(st.booleans()) else axis for axis in nonnegative_axes])


def dtypes(accepts: Callable[[DType], bool] = lambda dtype: True) -> SearchStrategy[DType]:
    """Returns a strategy for dtypes.

    Args:
        accepts: a predicate that drawn dtypes satisfy, e.g. `tracefx.core.dtypes.is_float`; all dtypes by default.

    Returns:
        A strategy for NumPy dtypes.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, deadline=None)
    ... @given(dtypes(kinds.is_float))
    ... def test(dtype):
    ...     assert kinds.is_float(dtype)
    >>> test()
    """
    return st.sampled_from([dtype for dtype in DTYPES if accepts(dtype)])
