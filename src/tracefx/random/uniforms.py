"""Uniform distributions: floats, integers, booleans and signs."""

from __future__ import annotations

import numpy as np

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DType, DTypeLike, Shape, dtypes, get_aval
from tracefx.core.handler import as_array
from tracefx.core.named_sharding import OutSharding
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.ops.random.prng import BIT_WIDTHS
from tracefx.random.keys import random_bits, split
from tracefx.random.samplers import check_parameter_shapes, float_dtype, int_dtype, jit_sampler, scalar_literal


def uniform(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws uniformly from the half-open interval from `minval` to `maxval`.

    Args:
        key: a random key, `key<...>[]`.
        shape: the shape of the result.
        dtype: the float dtype of the result; None means the default float dtype.
        minval: the inclusive lower end, an array that broadcasts to `shape`.
        maxval: the exclusive upper end, an array that broadcasts to `shape`.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> random.uniform(random.key(0), (2,))
    Array([0.947667 , 0.9785799], dtype=float32)
    """
    return _uniform(key, minval, maxval, sizes_of("uniform", shape), float_dtype("uniform", dtype))


@jit_sampler("shape", "dtype")
def _uniform(key: Array, minval: ArrayLike, maxval: ArrayLike, shape: Shape, dtype: DType) -> Array:
    low, high = [lax.convert_element_type(x, dtype) for x in (minval, maxval)]
    check_parameter_shapes("uniform", shape, low.shape, high.shape)
    numbers = unit_interval(key, shape, dtype)
    return fnp.maximum(low, numbers * (high - low) + low)


def unit_interval(key: Array, shape: Shape, dtype: DType) -> Array:
    """Draws uniform numbers from 0 (inclusive) to 1 (exclusive): random mantissas of numbers from 1 to 2, minus 1."""
    info = dtypes.finfo(dtype)
    if info.bits not in BIT_WIDTHS:
        raise TypeError(
            f"random numbers are drawn as floats of 8, 16, 32 or 64 bits, got {dtypes.name(dtype)}; convert them"
        )
    bit_width = 8 if info.nmant < 8 else info.bits  # 8 random bits fill the mantissa of bfloat16
    uint_dtype = BIT_WIDTHS[info.bits]
    bits = lax.convert_element_type(random_bits(key, bit_width, shape), uint_dtype)
    mantissa = lax.shift_right_logical(bits, scalar_literal(bit_width - info.nmant, uint_dtype))
    one = scalar_literal(int(np.array(1, dtype).view(uint_dtype)), uint_dtype)
    return lax.bitcast_convert_type(lax.bitwise_or(mantissa, one), dtype) - scalar_literal(1.0, dtype)


def randint(
    key: ArrayLike,
    shape: ShapeLike,
    minval: ArrayLike,
    maxval: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws integers uniformly from the half-open range from `minval` to `maxval`.

    They are remainders of integers with twice as many random bits (at least 64): for ranges close to the full range of
    the dtype, some integers are slightly more probable than others.

    Args:
        key: a random key, `key<...>[]`.
        shape: the shape of the result.
        minval: the inclusive lower end, an integer array that broadcasts to `shape`; clipped to the range of `dtype`.
        maxval: the exclusive upper end, an integer array that broadcasts to `shape`; clipped likewise.
        dtype: the integer dtype of the result; None means the default integer dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`; `minval` where it is not less than `maxval`.

    Raises:
        TypeError: if `dtype` is not an integer dtype.
        ValueError: if the bounds don't broadcast to `shape`.

    >>> from tracefx import random
    >>> random.randint(random.key(0), (4,), 0, 10).tolist()
    [9, 0, 2, 3]
    """
    int_type, sizes = int_dtype("randint", dtype), sizes_of("randint", shape)
    info = dtypes.iinfo(int_type)
    if info.bits >= 32:
        return _randint(key, minval, maxval, sizes, int_type)
    low = fnp.clip(fnp.asarray(minval).astype(np.int32), int(info.min), int(info.max))
    high = fnp.clip(fnp.asarray(maxval).astype(np.int32), int(info.min), int(info.max) + 1)
    return _randint(key, low, high, sizes, dtypes.int32).astype(int_type)


@jit_sampler("shape", "dtype")
def _randint(key: Array, minval: ArrayLike, maxval: ArrayLike, shape: Shape, dtype: DType) -> Array:
    check_parameter_shapes("randint", shape, get_aval(minval).shape, get_aval(maxval).shape)
    low, high = [_as_integers(x) for x in (minval, maxval)]
    info = dtypes.iinfo(dtype)
    is_beyond = high > _clip_to_dtype(fnp.asarray(info.max, dtype), high.dtype)  # e.g. 256 for uint8
    low, high = _clip_to_dtype(low, dtype), _clip_to_dtype(high, dtype)
    bits, unsigned = info.bits, BIT_WIDTHS[info.bits]
    first, second = [random_bits(half_key, bits, shape) for half_key in split(key)]
    span = fnp.where(high <= low, fnp.ones((), unsigned), lax.convert_element_type(high - low, unsigned))
    # The full range has 2**bits integers, which wraps to a span of 0; XLA's remainder by 0 is the dividend.
    span = fnp.where(is_beyond & (high > low), span + fnp.ones((), unsigned), span)
    # The remainder of first * 2**bits + second, where 2**bits is the square of 2**(bits / 2).
    half = lax.rem(fnp.full_like(span, 1 << bits // 2), span)
    high_factor = fnp.broadcast_to(lax.rem(half * half, span), shape)
    span = fnp.broadcast_to(span, shape)
    offset = lax.rem(lax.rem(first, span) * high_factor + lax.rem(second, span), span)
    return low + lax.convert_element_type(offset, dtype)


def _as_integers(x: ArrayLike) -> Array:
    """Converts to the default integer dtype unless the dtype is an integer dtype."""
    numbers = fnp.asarray(x)
    return numbers if dtypes.is_integer(numbers.dtype) else numbers.astype(int)


def _clip_to_dtype(x: Array, dtype: DType) -> Array:
    """Converts integers to another dtype, clipping those that are out of its range."""
    source_info, target_info = dtypes.iinfo(x.dtype), dtypes.iinfo(dtype)
    low, high = max(int(source_info.min), int(target_info.min)), min(int(source_info.max), int(target_info.max))
    return fnp.clip(x, fnp.asarray(low, x.dtype), fnp.asarray(high, x.dtype)).astype(dtype)


def bernoulli(
    key: ArrayLike,
    p: ArrayLike = 0.5,
    shape: ShapeLike | None = None,
    mode: str = "low",
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws booleans that are true with probability `p`.

    Args:
        key: a random key, `key<...>[]`.
        p: the probability, an array of floats that broadcasts to `shape`.
        shape: the shape of the result; by default that of `p`.
        mode: `"low"`, or `"high"`, which draws twice as many bits so that probabilities below 1e-7 (for float32) are
            accurate.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `bool[*shape]`.

    Raises:
        TypeError: if `p` has no float dtype.
        ValueError: if `mode` is unknown, or `p` doesn't broadcast to `shape`.

    >>> from tracefx import random
    >>> random.bernoulli(random.key(0), 0.3, (4,)).tolist()
    [False, False, False, False]
    """
    if mode not in ("high", "low"):
        raise ValueError(f"bernoulli: mode must be 'high' or 'low', got {mode!r}")
    probability = as_array(p)
    if not dtypes.is_float(probability.dtype):
        raise TypeError(f"bernoulli: p must be a float or an array of floats, got {probability.aval}")
    sizes = probability.shape if shape is None else sizes_of("bernoulli", shape)
    return _bernoulli(key, probability, sizes, mode)


@jit_sampler("shape", "mode")
def _bernoulli(key: Array, p: Array, shape: Shape, mode: str) -> Array:
    check_parameter_shapes("bernoulli", shape, p.shape)
    dtype = p.dtype
    if mode == "low":
        return uniform(key, shape, dtype) < p
    coarse, fine = uniform(key, (2, *shape), dtype)
    return fine * 2.0 ** -dtypes.finfo(dtype).nmant < p - coarse


def rademacher(
    key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *, out_sharding: OutSharding = None
) -> Array:
    """Draws from the Rademacher distribution: -1 or 1 with equal probability.

    Args:
        key: a random key, `key<...>[]`.
        shape: the shape of the result.
        dtype: the dtype of the result; None means the default integer dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    >>> from tracefx import random
    >>> random.rademacher(random.key(0), (4,)).tolist()
    [-1, -1, 1, 1]
    """
    result_dtype = dtypes.default_int() if dtype is None else dtypes.as_dtype(dtype)
    return _rademacher(key, sizes_of("rademacher", shape), result_dtype)


@jit_sampler("shape", "dtype")
def _rademacher(key: Array, shape: Shape, dtype: DType) -> Array:
    return (2 * bernoulli(key, 0.5, shape).astype(dtype) - 1).astype(dtype)
