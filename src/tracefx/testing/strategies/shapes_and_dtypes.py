"""Shapes, axes and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tracefx.core import dtypes as kinds
from tracefx.core.dtypes import DType
from tracefx.testing.generated_programs import Shape

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
"""One dtype of every kind and width."""


def shapes(max_dims: int = 3, max_side: int = 3, min_side: int = 0, min_dims: int = 0) -> SearchStrategy[Shape]:
    """Shapes with `min_dims` to `max_dims` axes, some of size 1 and, unless `min_side` forbids it, some of size 0."""
    return st.lists(st.integers(min_side, max_side), min_size=min_dims, max_size=max_dims).map(tuple)


@st.composite
def broadcastable_shapes(draw: DrawFn, count: int, max_dims: int = 3, max_side: int = 3) -> tuple[Shape, ...]:
    """`count` shapes that broadcast together."""
    whole = draw(shapes(max_dims, max_side))
    group = []
    for _ in range(count):
        kept = whole[draw(st.integers(0, len(whole))) :]
        group.append(tuple([n if draw(st.booleans()) else 1 for n in kept]))
    return tuple(group)


def axes(ndim: int) -> SearchStrategy[int]:
    """An axis of an array of `ndim` axes, counted from either end; there has to be one."""
    if ndim < 1:
        raise ValueError(f"axes needs an array with axes to choose from, got ndim={ndim}")
    return st.integers(0, ndim - 1) | st.integers(-ndim, -1)


@st.composite
def axis_tuples(draw: DrawFn, ndim: int, min_size: int = 0) -> tuple[int, ...]:
    """Different axes in any order, each counted from either end: what reductions and permutations take."""
    chosen = draw(st.lists(st.integers(0, ndim - 1), unique=True, min_size=min_size)) if ndim else []
    return tuple([axis - ndim if draw(st.booleans()) else axis for axis in chosen])


def dtypes(accepts: Callable[[DType], bool] = lambda dtype: True) -> SearchStrategy[DType]:
    """Dtypes, e.g. `dtypes(tracefx.core.dtypes.is_float)`."""
    return st.sampled_from([dtype for dtype in DTYPES if accepts(dtype)])
