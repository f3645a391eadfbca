"""Strategies for shapes, axes, dtypes, arrays and scalars, including edge values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tracefx.core import Array, DType, DTypeLike, NDArray, Shape, ShapedArray
from tracefx.core import dtypes as kinds
from tracefx.core.kernel_context import call_kernel
from tracefx.testing.subjects import array_of_type

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


def edge_values(dtype: DType) -> tuple[object, ...]:
    """Returns the edge values of a dtype: extremes, zeros of both signs, subnormals, infinities, NaN.

    Args:
        dtype: the dtype.

    Returns:
        A tuple of Python numbers.

    >>> edge_values(np.dtype("int8"))
    (0, 1, -1, 126, -127, 127, -128)
    """
    if kinds.is_bool(dtype):
        return (False, True)
    if kinds.is_integer(dtype):
        info = kinds.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        return tuple(sorted({low, low + 1, max(-1, low), 0, 1, high - 1, high}, key=abs))
    if kinds.is_complex(dtype):
        parts = (0.0, 1.0, -1.0, np.inf, np.nan)
        return tuple([complex(a, b) for a, b in itertools.product(parts, parts)])
    finfo: ml_dtypes.finfo = kinds.finfo(dtype)
    least, tiny, greatest = [float(x) for x in (finfo.smallest_subnormal, finfo.smallest_normal, finfo.max)]
    plain = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5)
    return (*plain, least, -least, tiny, -tiny, greatest, -greatest, np.inf, -np.inf, np.nan)


def scalars(dtype: DType, extreme: bool = True) -> SearchStrategy[object]:
    """Returns a strategy for Python numbers that a dtype can represent.

    Args:
        dtype: the dtype.
        extreme: whether to include edge values.

    Returns:
        A strategy for `bool`, `int`, `float` or `complex` numbers.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, deadline=None)
    ... @given(scalars(np.dtype("int8")))
    ... def test(x):
    ...     assert -128 <= x <= 127
    >>> test()
    """
    if kinds.is_bool(dtype):
        return st.booleans()
    if kinds.is_integer(dtype):
        info = kinds.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        plain: SearchStrategy[object] = st.integers(max(low, -4), min(high, 4))
        return st.sampled_from(edge_values(dtype)) | st.integers(low, high) | plain if extreme else plain
    real = st.integers(-64, 64).map(lambda n: n / 16)
    plain = st.builds(complex, real, real) if kinds.is_complex(dtype) else real
    return st.sampled_from(edge_values(dtype)) | plain if extreme else plain


def _draw_dtype(draw: DrawFn, dtype: DTypeLike | SearchStrategy[DType] | None) -> DType:
    """Returns a dtype that is given, or drawn; any dtype for None."""
    if dtype is None:
        return draw(dtypes())
    return draw(dtype) if isinstance(dtype, SearchStrategy) else kinds.as_dtype(dtype)


@st.composite
def arrays(
    draw: DrawFn,
    dtype: DTypeLike | SearchStrategy[DType] | None = None,
    shape: Shape | SearchStrategy[Shape] | None = None,
    extreme: bool = True,
    weak: bool = False,
) -> Array:
    """Draws arrays.

    Args:
        dtype: a dtype, or a strategy; any dtype by default.
        shape: a shape, or a strategy; small shapes by default.
        extreme: whether elements include edge values.
        weak: whether arrays may be weakly typed, for dtypes that can be.

    Returns:
        A strategy for `Array`.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, deadline=None)
    ... @given(arrays("float32", (2,)))
    ... def test(x):
    ...     assert x.shape == (2,) and x.dtype == np.float32
    >>> test()
    """
    drawn_dtype = _draw_dtype(draw, dtype)
    drawn_shape = shape if isinstance(shape, tuple) else draw(shapes() if shape is None else shape)
    size = int(np.prod(drawn_shape))
    elements = draw(st.lists(scalars(drawn_dtype, extreme), min_size=size, max_size=size))
    is_weak = weak and drawn_dtype in _WEAK and draw(st.booleans())
    return array_of_type(_filled(elements, drawn_shape, drawn_dtype), ShapedArray(drawn_shape, drawn_dtype, is_weak))


@st.composite
def broadcastable_arrays(
    draw: DrawFn,
    count: int,
    dtype: DTypeLike | SearchStrategy[DType] | None = None,
    max_dims: int = 3,
    extreme: bool = True,
    weak: bool = False,
) -> tuple[Array, ...]:
    """Draws arrays of one dtype whose shapes broadcast together.

    Args:
        count: the number of arrays.
        dtype: a dtype, or a strategy; any dtype by default.
        max_dims: the maximum rank.
        extreme: whether elements include edge values.
        weak: whether arrays may be weakly typed, for dtypes that can be.

    Returns:
        A strategy for tuples of `count` arrays.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, deadline=None)
    ... @given(broadcastable_arrays(2, np.dtype("float32")))
    ... def test(xs):
    ...     assert (xs[0] + xs[1]).ndim == max(x.ndim for x in xs)
    >>> test()
    """
    drawn_dtype = _draw_dtype(draw, dtype)
    group = draw(broadcastable_shapes(count, max_dims))
    return tuple([draw(arrays(drawn_dtype, shape, extreme, weak)) for shape in group])


_WEAK: Final = frozenset({kinds.int32, kinds.int64, kinds.float32, kinds.float64, kinds.complex64, kinds.complex128})
"""The dtypes that can be weak."""


def _filled(elements: Sequence[object], shape: Shape, dtype: DType) -> NDArray:
    if kinds.is_inexact(dtype):
        wide = np.complex128 if kinds.is_complex(dtype) else np.float64
        return call_kernel(lambda: np.array(elements, wide).astype(dtype).reshape(shape))
    return np.array(elements, object).astype(dtype).reshape(shape)
