"""Draws from distributions of whole numbers."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.core.values import get_aval
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.random.arguments import broadcast_parameter, check_parameter_shapes, float_dtype, int_dtype, sample_shape
from tracefx.random.keys import check_key, split
from tracefx.random.samplers import jit_sampler
from tracefx.random.uniforms import uniform

# ------------------------------------------------------------------ geometric


def geometric(key: ArrayLike, p: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None) -> Array:
    """How many trials it takes to succeed once, each with probability `p`: integers from 1 on, `dtype[*shape]`.

    >>> from tracefx import random
    >>> random.geometric(random.key(0), 0.9, (4,)).tolist()
    [1, 1, 1, 1]
    """
    one, _ = check_key("geometric", key)
    return _geometric(one, _as_floats(p), sample_shape("geometric", shape, p), int_dtype("geometric", dtype))


def _as_floats(x: ArrayLike) -> Array:
    numbers = fnp.asarray(x)
    return numbers if dtypes.is_float(numbers.dtype) else numbers.astype(float)


@jit_sampler("shape", "dtype")
def _geometric(key: Array, p: Array, shape: Shape, dtype: DType) -> Array:
    u = uniform(key, shape, p.dtype)
    u = fnp.where(u == 0, 1, u)
    return (fnp.floor(lax.log(u) / lax.log1p(-p)) + 1).astype(dtype)


# ------------------------------------------------------------------ poisson


def poisson(key: ArrayLike, lam: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None) -> Array:
    """How often something happens that happens `lam` times on average: integers from 0 on, `dtype[*shape]`.

    Below 10 by products of uniform numbers: Knuth, The art of computer programming 2, 3.4.1. From there on by
    transformed rejection: Hörmann, The transformed rejection method for generating Poisson random variables,
    Insurance: Mathematics and Economics 12 (1993).

    >>> from tracefx import random
    >>> random.poisson(random.key(0), 3.0, (2,)).dtype
    dtype('int32')
    """
    one, _ = check_key("poisson", key)
    sizes = sample_shape("poisson", shape, lam)
    return _poisson(one, broadcast_parameter(lam, dtypes.float32, sizes), int_dtype("poisson", dtype))


@jit_sampler("dtype")
def _poisson(key: Array, lam: Array, dtype: DType) -> Array:
    is_small = fnp.isnan(lam) | (lam < 10)
    most = int(dtypes.iinfo(dtype).max)
    few = _poisson_knuth(key, fnp.where(is_small, lam, 0.0), dtype, most)
    many = _poisson_rejection(key, fnp.where(is_small, 1e5, lam), dtype, most)
    return fnp.where(lam == 0, 0, fnp.where(is_small, few, many)).astype(dtype)


def _poisson_knuth(key: Array, lam: Array, dtype: DType, most: int) -> Array:
    """Uniform numbers are multiplied until the product is below `exp(-lam)`."""

    def goes_on(carry: tuple[Array, Array, Array, Array]) -> Array:
        i, _, _, log_product = carry
        return fnp.any(log_product > -lam) & (i < most)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        i, count, key, log_product = carry
        key, now = split(key)
        count = fnp.where(log_product > -lam, count + 1, count)
        return i + 1, count, key, log_product + lax.log(uniform(now, lam.shape, np.float32))

    start = (fnp.zeros((), dtype), fnp.zeros(lam.shape, dtype), key, fnp.zeros(lam.shape, np.float32))
    return lax.while_loop(goes_on, step, start)[1] - 1


def _poisson_rejection(key: Array, lam: Array, dtype: DType, most: int) -> Array:
    b = 0.931 + 2.53 * fnp.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    surely = 0.9277 - 3.6224 / (b - 2)

    def goes_on(carry: tuple[Array, Array, Array, Array]) -> Array:
        i, _, accepted, _ = carry
        return fnp.any(~accepted) & (i < most)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        i, count, accepted, key = carry
        key, first, second = split(key, 3)
        u = uniform(first, lam.shape, lam.dtype) - 0.5
        v = uniform(second, lam.shape, lam.dtype)
        us = 0.5 - fnp.abs(u)
        k = fnp.floor((2 * a / us + b) * u + lam + 0.43)
        bound = -lam + k * lax.log(lam) - lax.lgamma(k + 1)
        rejected = (k < 0) | ((us < 0.013) & (v > us))
        fits = lax.log(v * inverse_alpha / (a / (us * us) + b)) <= bound
        now = ((us >= 0.07) & (v <= surely)) | (~rejected & fits)
        return i + 1, fnp.where(now, k, count), accepted | now, key

    start = (fnp.zeros((), dtype), fnp.full(lam.shape, -1, lam.dtype), fnp.zeros(lam.shape, bool), key)
    return lax.while_loop(goes_on, step, start)[1].astype(dtype)


# ------------------------------------------------------------------ binomial


def binomial(
    key: ArrayLike,
    n: ArrayLike,
    p: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """How many of `n` trials succeed, each with probability `p`: whole numbers as floats, `dtype[*shape]`.

    Where few are expected, by distances between successes: Kachitvichyanukul and Schmeiser, Binomial random variate
    generation, Communications of the ACM 31 (1988), algorithm for the geometric method; else by transformed rejection:
    Hörmann, The generation of binomial random variates, Journal of Statistical Computation and Simulation 46 (1993).

    NaN for an `n` or a `p` that is negative or NaN, and infinite for an infinite `n`.

    >>> from tracefx import random
    >>> bool(random.binomial(random.key(0), 10, 0.5) <= 10)
    True
    """
    one, _ = check_key("binomial", key)
    return _binomial(one, n, _as_floats(p), sample_shape("binomial", shape, n, p), float_dtype("binomial", dtype))


@jit_sampler("shape", "dtype")
def _binomial(key: Array, n: ArrayLike, p: Array, shape: Shape, dtype: DType) -> Array:
    count, probability = broadcast_parameter(n, p.dtype, shape), broadcast_parameter(p, p.dtype, shape)
    is_less = probability < 0.5
    q = fnp.where(is_less, probability, 1.0 - probability)
    is_no_count = fnp.isnan(count) | (count < 0.0)
    is_no_probability = fnp.isnan(q) | (q < 0.0)
    is_endless = fnp.isinf(count)
    q_is_nan = fnp.isnan(q)
    q = fnp.where(is_no_probability, 0.01, q)
    are_few = is_no_count | (count * q <= 10.0)
    count = fnp.floor(count)
    most = dtypes.finfo(dtype).max
    few = _binomial_inversion(key, fnp.where(are_few, count, 0.0), q, dtype, float(most))
    many = _binomial_rejection(key, fnp.where(are_few, 1e4, count), fnp.where(are_few, 0.5, q), dtype, float(most))
    found = fnp.where(are_few, few, many)
    is_invalid = is_no_probability | is_no_count
    found = fnp.where(is_invalid, np.nan, found)
    found = fnp.where(is_endless & ~is_invalid, np.inf, found)
    return fnp.where(is_less | is_no_count | q_is_nan | is_endless, found, count.astype(dtype) - found)


def _binomial_inversion(key: Array, count: Array, p: Array, dtype: DType, most: float) -> Array:
    log_failure = lax.log1p(-p)

    def goes_on(carry: tuple[Array, Array, Array, Array]) -> Array:
        i, _, trials, _ = carry
        return fnp.any(trials <= count) & (i < most)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        i, successes, trials, key = carry
        now, key = split(key)
        successes = fnp.where(trials <= count, successes + 1, successes)
        distance = fnp.ceil(lax.log(uniform(now, p.shape, p.dtype)) / log_failure)
        return i + 1, successes, trials + distance, key

    start = (fnp.asarray(0), fnp.zeros(p.shape, p.dtype), fnp.zeros(p.shape, p.dtype), key)
    return (lax.while_loop(goes_on, step, start)[1] - 1).astype(dtype)


def _binomial_rejection(key: Array, count: Array, p: Array, dtype: DType, most: float) -> Array:
    deviation = fnp.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = count * p + 0.5
    surely = 0.92 - 4.2 / b
    odds = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    m = fnp.floor((count + 1) * p)

    def log_bound(k: Array) -> Array:
        """The logarithm of how much likelier `k` is than the mode, by Stirling's formula."""
        middle = (m + 0.5) * lax.log((m + 1) / (odds * (count - m + 1)))
        rest = (count + 1) * lax.log((count - m + 1) / (count - k + 1))
        last = (k + 0.5) * lax.log(odds * (count - k + 1) / (k + 1))
        tails = (
            _stirling_approx_tail(m)
            + _stirling_approx_tail(count - m)
            - _stirling_approx_tail(k)
            - _stirling_approx_tail(count - k)
        )
        return middle + rest + last + tails

    def goes_on(carry: tuple[Array, Array, Array, Array]) -> Array:
        i, _, accepted, _ = carry
        return fnp.any(~accepted) & (i < most)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        i, found, accepted, key = carry
        key, first, second = split(key, 3)
        u = uniform(first, p.shape, p.dtype) - 0.5
        v = uniform(second, p.shape, p.dtype)
        us = 0.5 - fnp.abs(u)
        k = fnp.floor((2 * a / us + b) * u + c)
        rejected = (k < 0) | (k > count)
        fits = lax.log(v * alpha / (a / (us * us) + b)) <= log_bound(k)
        now = ((us >= 0.07) & (v <= surely)) | (~rejected & fits)
        return i + 1, fnp.where(now, k, found), accepted | now, key

    start = (fnp.asarray(0), fnp.full(p.shape, -1, p.dtype), fnp.zeros(p.shape, bool), key)
    return lax.while_loop(goes_on, step, start)[1].astype(dtype)


def _stirling_tail(k: int) -> float:
    return math.lgamma(k + 1) - (0.5 * math.log(2 * math.pi) + (k + 0.5) * math.log(k + 1) - (k + 1))


_STIRLING_TAILS: Final = tuple(_stirling_tail(k) for k in range(10))


def _stirling_approx_tail(k: Array) -> Array:
    """`log(k!)` less Stirling's formula for it, from a table below 10, else by three terms of its series."""
    near = fnp.floor(fnp.clip(k, 0, 9)).astype(np.int32)
    square = fnp.square(k + 1)
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1)
    return fnp.where(k <= 9, fnp.asarray(np.array(_STIRLING_TAILS), k.dtype)[near], series)


def multinomial(
    key: ArrayLike,
    n: ArrayLike,
    p: ArrayLike,
    *,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    unroll: int | bool = 1,
) -> Array:
    """How many of `n` trials go to each of several classes, `dtype[*shape]`, the classes along the last axis.

    Args:
        key: `key<...>[]`.
        n: an array that broadcasts to `shape` without its last axis.
        p: the classes' probabilities, an array that broadcasts to `shape`, which is its own if it isn't given.
        unroll: that of the `scan` over the classes.

    >>> from tracefx import random
    >>> float(random.multinomial(random.key(0), 10, [0.2, 0.3, 0.5]).sum())
    10.0
    """
    one, _ = check_key("multinomial", key)
    trials, probabilities = fnp.promote_types(_as_floats(n).dtype, _as_floats(p).dtype), _as_floats(p)
    sizes = probabilities.shape if shape is None else sizes_of("multinomial", shape)
    check_parameter_shapes("multinomial", sizes, probabilities.shape)
    check_parameter_shapes("multinomial", sizes[:-1], get_aval(n).shape)
    remaining = broadcast_parameter(n, trials, sizes[:-1])
    first = fnp.moveaxis(broadcast_parameter(probabilities, trials, sizes), -1, 0)
    left = lax.cumsum(first, 0, reverse=True)
    shares = first / fnp.where(left == 0, 1, left)

    def step(rest: Array, each: tuple[Array, Array]) -> tuple[Array, Array]:
        share, key = each
        count = binomial(key, rest, fnp.clip(share, 0, 1), dtype=rest.dtype)
        return rest - count, count

    _, counts = lax.scan(step, remaining, (shares, split(one, shares.shape[0])), unroll=unroll)
    found = fnp.moveaxis(counts, 0, -1)
    return found if dtype is None else found.astype(dtype)
