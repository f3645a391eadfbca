"""Hypothesis strategies: shapes, dtypes, arrays with edge values, programs, stacks of transformations.

from hypothesis import given
from tracefx.testing import strategies, vmap_is_a_loop

@given(strategies.arrays())
def test_mine(x):
    vmap_is_a_loop(mine, x)
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Final

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tracefx.core import dtypes as kinds
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.kernels import quietly
from tracefx.testing import programs as steps
from tracefx.testing.programs import BINARY, LAYERS, UNARY, Layer, Program, Shape, Stacked, Step
from tracefx.testing.subjects import array

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

# ------------------------------------------------------------------ types


def shapes(max_dims: int = 3, max_side: int = 3, min_side: int = 0) -> SearchStrategy[Shape]:
    """Shapes with up to `max_dims` axes, some of size 1 and, unless `min_side` forbids it, some of size 0."""
    return st.lists(st.integers(min_side, max_side), max_size=max_dims).map(tuple)


@st.composite
def broadcastable(draw: DrawFn, count: int, max_dims: int = 3, max_side: int = 3) -> tuple[Shape, ...]:
    """`count` shapes that broadcast together."""
    whole = draw(shapes(max_dims, max_side))
    group = []
    for _ in range(count):
        kept = whole[draw(st.integers(0, len(whole))) :]
        group.append(tuple([n if draw(st.booleans()) else 1 for n in kept]))
    return tuple(group)


def dtypes(accepts: Callable[[DType], bool] = lambda dtype: True) -> SearchStrategy[DType]:
    """Dtypes, e.g. `dtypes(tracefx.core.dtypes.is_float)`."""
    return st.sampled_from([dtype for dtype in DTYPES if accepts(dtype)])


# ------------------------------------------------------------------ numbers


@functools.cache
def edges(dtype: DType) -> tuple[object, ...]:
    """The values of a dtype that go wrong first: extremes, zeros of both signs, subnormals, infinities, NaN."""
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


def numbers(dtype: DType, extreme: bool = True) -> SearchStrategy[object]:
    """Python numbers that a dtype holds, its edge values among them unless `extreme` is False."""
    if kinds.is_bool(dtype):
        return st.booleans()
    if kinds.is_integer(dtype):
        info = kinds.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        plain: SearchStrategy[object] = st.integers(max(low, -4), min(high, 4))
        return st.sampled_from(edges(dtype)) | st.integers(low, high) | plain if extreme else plain
    real = st.integers(-64, 64).map(lambda n: n / 16)
    plain = st.builds(complex, real, real) if kinds.is_complex(dtype) else real
    return st.sampled_from(edges(dtype)) | plain if extreme else plain


@st.composite
def arrays(
    draw: DrawFn,
    dtype: DType | SearchStrategy[DType] | None = None,
    shape: Shape | SearchStrategy[Shape] | None = None,
    extreme: bool = True,
    weak: bool = False,
) -> Array:
    """Arrays; with `extreme` their edge values too, with `weak` weakly typed ones too where the dtype can be weak."""
    drawn_dtype = draw(dtypes() if dtype is None else dtype) if not isinstance(dtype, np.dtype) else dtype
    drawn_shape = shape if isinstance(shape, tuple) else draw(shapes() if shape is None else shape)
    size = int(np.prod(drawn_shape))
    elements = draw(st.lists(numbers(drawn_dtype, extreme), min_size=size, max_size=size))
    is_weak = weak and drawn_dtype in _WEAK and draw(st.booleans())
    return array(_filled(elements, drawn_shape, drawn_dtype), ShapedArray(drawn_shape, drawn_dtype, is_weak))


_WEAK: Final = frozenset({kinds.int32, kinds.int64, kinds.float32, kinds.float64, kinds.complex64, kinds.complex128})


def _filled(elements: Sequence[object], shape: Shape, dtype: DType) -> NDArray:
    if kinds.is_inexact(dtype):
        wide = np.complex128 if kinds.is_complex(dtype) else np.float64
        return quietly(lambda: np.array(elements, wide).astype(dtype).reshape(shape))
    return np.array(elements, object).astype(dtype).reshape(shape)


# ------------------------------------------------------------------ programs


def _fits(x: Shape, y: Shape) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(x), reversed(y), strict=False))


def _reshaping(draw: DrawFn, place: int, shape: Shape) -> Step:
    """An operation on one value of `shape` that is no map over its elements."""
    names = ["ravel", "transpose", "broadcast"]
    if shape:
        names += ["sum", "reverse", "double", "expand"]
    if min(shape, default=0) > 0:
        names += ["max", "cut"]
    name = draw(st.sampled_from(names))
    if name == "ravel":
        return steps.ravel(place)
    if name == "transpose":
        return steps.transpose(place)
    if name == "broadcast":
        return steps.broadcast(place, (2, *shape))
    axis = draw(st.integers(0, len(shape) - 1))
    if name in ("sum", "max"):
        return steps.fold(name, place, axis, draw(st.booleans()))
    if name == "reverse":
        return steps.reverse(place, axis)
    if name == "cut":
        return steps.cut(place, axis, draw(st.integers(0, shape[axis] - 1)))
    if name == "double":
        return steps.double(place, axis)
    return steps.expand(place, axis)


@st.composite
def programs(draw: DrawFn, max_steps: int = 7, max_inputs: int = 3) -> Program:
    """Straight-line programs of floats, every step of which fits; of up to 64 numbers a value, now and then none."""
    sizes = st.sampled_from((1, 2, 3, 3, 2, 0))
    given = tuple(draw(st.lists(st.lists(sizes, max_size=2).map(tuple), min_size=1, max_size=max_inputs)))
    known = list(given)
    made: list[Step] = []
    for _ in range(draw(st.integers(1, max_steps))):
        x = draw(st.integers(0, len(known) - 1))
        partners = [i for i, s in enumerate(known) if _fits(known[x], s)]
        products = [i for i, s in enumerate(known) if s and known[x] and known[x][-1] == s[-2:][0]]
        kind = draw(st.sampled_from(["unary", "binary", "binary", "shape", "product"]))
        if kind == "product" and products:
            step = steps.dot(x, draw(st.sampled_from(products)))
        elif kind == "binary":
            step = steps.binary(draw(st.sampled_from(sorted(BINARY))), x, draw(st.sampled_from(partners)))
        elif kind == "shape" and len(known[x]) < 4:
            step = _reshaping(draw, x, known[x])
        else:
            step = steps.unary(draw(st.sampled_from(sorted(UNARY))), x)
        out = np.asarray(step.apply(np, *[np.zeros(known[i]) for i in step.operands]))
        if out.size <= 64:
            made.append(step)
            known.append(out.shape)
    return Program(given, tuple(made))


@st.composite
def stacks(draw: DrawFn, count: int, max_layers: int = 3) -> tuple[Layer, ...]:
    """Layers from the inside out, for a function of `count` inputs."""
    layers = []
    for name in draw(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=max_layers)):
        mapped = draw(st.lists(st.booleans(), min_size=count, max_size=count)) if name == "vmap" else [True] * count
        layers.append(Layer(name, tuple(mapped if any(mapped) else [True] * count)))
    return tuple(layers)


@st.composite
def stacked(draw: DrawFn, max_steps: int = 7, max_layers: int = 3) -> Stacked:
    """Programs under stacks, with numbers to run them on."""
    program = draw(programs(max_steps))
    return Stacked(program, draw(stacks(len(program.shapes), max_layers)), draw(st.integers(0, 99)))
