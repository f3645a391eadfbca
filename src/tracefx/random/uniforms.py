"""Draws that are alike over a range: numbers, integers, truth values and signs."""

from __future__ import annotations

import numpy as np

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.core.handler import as_array
from tracefx.core.values import get_aval
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.ops.random.prng import BIT_WIDTHS
from tracefx.random.arguments import check_parameter_shapes, float_dtype, int_dtype, scalar_literal
from tracefx.random.keys import check_key, random_bits, split
from tracefx.random.samplers import jit_sampler


def uniform(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
) -> Array:
    """Numbers at least `minval` and less than `maxval`, `dtype[*shape]`, all of them equally likely.

    Args:
        key: `key<...>[]`.
        dtype: a float dtype.
        minval, maxval: arrays that broadcast to `shape`.

    Raises ValueError for a dtype that isn't one of floats.

    >>> from tracefx import random
    >>> random.uniform(random.key(0), (2,))
    Array([0.947667 , 0.9785799], dtype=float32)
    """
    one, _ = check_key("uniform", key)
    return _uniform(one, minval, maxval, sizes_of("uniform", shape), float_dtype("uniform", dtype))


@jit_sampler("shape", "dtype")
def _uniform(key: Array, minval: ArrayLike, maxval: ArrayLike, shape: Shape, dtype: DType) -> Array:
    low, high = [lax.convert_element_type(x, dtype) for x in (minval, maxval)]
    check_parameter_shapes("uniform", shape, low.shape, high.shape)
    numbers = unit_interval(key, shape, dtype)
    return fnp.maximum(low, numbers * (high - low) + low)


def unit_interval(key: Array, shape: Shape, dtype: DType) -> Array:
    """Numbers at least 0 and less than 1: random digits behind the point of numbers from 1 to 2, less 1."""
    info = dtypes.finfo(dtype)
    if info.bits not in BIT_WIDTHS:
        raise TypeError(
            f"random numbers are drawn as floats of 8, 16, 32 or 64 bits, got {dtypes.name(dtype)}; convert them"
        )
    drawn = 8 if info.nmant < 8 else info.bits  # a byte has digits enough for bfloat16
    whole = BIT_WIDTHS[info.bits]
    bits = lax.convert_element_type(random_bits(key, drawn, shape), whole)
    digits = lax.shift_right_logical(bits, scalar_literal(drawn - info.nmant, whole))
    one = scalar_literal(int(np.array(1, dtype).view(whole)), whole)
    return lax.bitcast_convert_type(lax.bitwise_or(digits, one), dtype) - scalar_literal(1.0, dtype)


def randint(
    key: ArrayLike,
    shape: ShapeLike,
    minval: ArrayLike,
    maxval: ArrayLike,
    dtype: DTypeLike | None = None,
) -> Array:
    """Integers at least `minval` and less than `maxval`, `dtype[*shape]`; `minval` where that is the larger one.

    They are remainders of twice as many random bits as an integer has, at least 64: for ranges that come near to all
    that these can be, some are a little more likely than others.

    Args:
        key: `key<...>[]`.
        minval, maxval: arrays of integers that broadcast to `shape`, taken as near as `dtype` allows.
        dtype: an integer dtype.

    Raises TypeError for a dtype that isn't one of integers, ValueError for shapes that don't broadcast.

    >>> from tracefx import random
    >>> random.randint(random.key(0), (4,), 0, 10).tolist()
    [9, 0, 2, 3]
    """
    one, _ = check_key("randint", key)
    wanted, sizes = int_dtype("randint", dtype), sizes_of("randint", shape)
    info = dtypes.iinfo(wanted)
    if info.bits >= 32:
        return _randint(one, minval, maxval, sizes, wanted)
    low = fnp.clip(fnp.asarray(minval).astype(np.int32), int(info.min), int(info.max))
    high = fnp.clip(fnp.asarray(maxval).astype(np.int32), int(info.min), int(info.max) + 1)
    return _randint(one, low, high, sizes, dtypes.int32).astype(wanted)


@jit_sampler("shape", "dtype")
def _randint(key: Array, minval: ArrayLike, maxval: ArrayLike, shape: Shape, dtype: DType) -> Array:
    check_parameter_shapes("randint", shape, get_aval(minval).shape, get_aval(maxval).shape)
    low, high = [_as_integers(x) for x in (minval, maxval)]
    info = dtypes.iinfo(dtype)
    is_beyond = high > _clip_to_dtype(fnp.asarray(info.max, dtype), high.dtype)  # as 256 of uint8 is
    low, high = _clip_to_dtype(low, dtype), _clip_to_dtype(high, dtype)
    bits, unsigned = info.bits, BIT_WIDTHS[info.bits]
    first, second = [random_bits(each, bits, shape) for each in split(key)]
    span = fnp.where(high <= low, fnp.ones((), unsigned), lax.convert_element_type(high - low, unsigned))
    # All integers of the dtype are one more than it can count, which makes 0 and leaves remainders as they are.
    span = fnp.where(is_beyond & (high > low), span + fnp.ones((), unsigned), span)
    # The remainder of a number of two parts, its first one times 2**bits, which is itself a square.
    span = fnp.broadcast_to(span, shape)
    half = lax.rem(fnp.broadcast_to(scalar_literal(1 << bits // 2, unsigned), shape), span)
    place = lax.rem(half * half, span)
    offset = lax.rem(lax.rem(first, span) * place + lax.rem(second, span), span)
    return low + lax.convert_element_type(offset, dtype)


def _as_integers(x: ArrayLike) -> Array:
    numbers = fnp.asarray(x)
    return numbers if dtypes.is_integer(numbers.dtype) else numbers.astype(int)


def _clip_to_dtype(x: Array, dtype: DType) -> Array:
    """Integers of another dtype, those that it doesn't have as near as it comes."""
    ours, theirs = dtypes.iinfo(x.dtype), dtypes.iinfo(dtype)
    low, high = max(int(ours.min), int(theirs.min)), min(int(ours.max), int(theirs.max))
    return fnp.clip(x, fnp.asarray(low, x.dtype), fnp.asarray(high, x.dtype)).astype(dtype)


def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: ShapeLike | None = None, mode: str = "low") -> Array:
    """Truth values, `bool[*shape]`, true with probability `p`.

    Args:
        key: `key<...>[]`.
        p: an array of floats that broadcasts to `shape`.
        shape: that of `p` if it isn't given.
        mode: `"high"` draws twice as many bits, so that probabilities below 1e-7 (of float32) are right.

    Raises TypeError for a `p` that isn't one of floats, ValueError for another mode.

    >>> from tracefx import random
    >>> random.bernoulli(random.key(0), 0.3, (4,)).tolist()
    [False, False, False, False]
    """
    if mode not in ("high", "low"):
        raise ValueError(f"bernoulli: mode must be 'high' or 'low', got {mode!r}")
    one, _ = check_key("bernoulli", key)
    probability = as_array(p)
    if not dtypes.is_float(probability.dtype):
        raise TypeError(f"bernoulli: p must be a float or an array of floats, got {probability.aval}")
    sizes = probability.shape if shape is None else sizes_of("bernoulli", shape)
    return _bernoulli(one, probability, sizes, mode)


@jit_sampler("shape", "mode")
def _bernoulli(key: Array, p: Array, shape: Shape, mode: str) -> Array:
    check_parameter_shapes("bernoulli", shape, p.shape)
    dtype = p.dtype
    if mode == "low":
        return uniform(key, shape, dtype) < p
    coarse, fine = uniform(key, (2, *shape), dtype)
    return fine * 2.0 ** -dtypes.finfo(dtype).nmant < p - coarse


def rademacher(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Array:
    """Numbers that are -1 or 1, `dtype[*shape]`, of any dtype of numbers, integers if none is given.

    >>> from tracefx import random
    >>> random.rademacher(random.key(0), (4,)).tolist()
    [-1, -1, 1, 1]
    """
    one, _ = check_key("rademacher", key)
    wanted = dtypes.default_int() if dtype is None else dtypes.as_dtype(dtype)
    return _rademacher(one, sizes_of("rademacher", shape), wanted)


@jit_sampler("shape", "dtype")
def _rademacher(key: Array, shape: Shape, dtype: DType) -> Array:
    return (2 * bernoulli(key, 0.5, shape).astype(dtype) - 1).astype(dtype)
