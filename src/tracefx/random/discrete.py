"""Discrete distributions: geometric, Poisson, binomial and multinomial."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DType, DTypeLike, Shape, dtypes, get_aval
from tracefx.core.named_sharding import OutSharding
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.random.keys import check_key, split
from tracefx.random.samplers import (
    broadcast_parameter,
    check_parameter_shapes,
    float_dtype,
    int_dtype,
    jit_sampler,
    sample_shape,
)
from tracefx.random.uniforms import uniform

# ------------------------------------------------------------------ geometric


def geometric(
    key: ArrayLike,
    p: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the geometric distribution on 1, 2, ...: the number of trials up to the first success.

    Args:
        key: a random key, `key<...>[]`.
        p: the probability of success, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of `p`.
        dtype: the integer dtype of the result; None means the default integer dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        TypeError: if `dtype` is not an integer dtype.
        ValueError: if `p` doesn't broadcast to `shape`.

    >>> from tracefx import random
    >>> random.geometric(random.key(0), 0.9, (4,)).tolist()
    [1, 1, 1, 1]
    """
    return _geometric(key, _as_floats(p), sample_shape("geometric", shape, p), int_dtype("geometric", dtype))


def _as_floats(x: ArrayLike) -> Array:
    numbers = fnp.asarray(x)
    return numbers if dtypes.is_float(numbers.dtype) else numbers.astype(float)


@jit_sampler("shape", "dtype")
def _geometric(key: Array, p: Array, shape: Shape, dtype: DType) -> Array:
    u = uniform(key, shape, p.dtype)
    u = fnp.where(u == 0, 1, u)
    return (fnp.floor(lax.log(u) / lax.log1p(-p)) + 1).astype(dtype)


# ------------------------------------------------------------------ poisson


def poisson(
    key: ArrayLike,
    lam: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws from the Poisson distribution.

    For means below 10 uniform numbers are multiplied: Knuth, The art of computer programming 2, 3.4.1. For larger means
    the method is transformed rejection: Hörmann, The transformed rejection method for generating Poisson random
    variables, Insurance: Mathematics and Economics 12 (1993).

    Args:
        key: a random key, `key<...>[]`.
        lam: the mean, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of `lam`.
        dtype: the integer dtype of the result; None means the default integer dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        TypeError: if `dtype` is not an integer dtype.
        ValueError: if `lam` doesn't broadcast to `shape`.

    >>> from tracefx import random
    >>> random.poisson(random.key(0), 3.0, (2,)).dtype
    dtype('int32')
    """
    sizes = sample_shape("poisson", shape, lam)
    return _poisson(key, broadcast_parameter(lam, dtypes.float32, sizes), int_dtype("poisson", dtype))


@jit_sampler("dtype")
def _poisson(key: Array, lam: Array, dtype: DType) -> Array:
    is_small = fnp.isnan(lam) | (lam < 10)
    max_steps = int(dtypes.iinfo(dtype).max)
    few = _poisson_knuth(key, fnp.where(is_small, lam, 0.0), dtype, max_steps)
    many = _poisson_rejection(key, fnp.where(is_small, 1e5, lam), dtype, max_steps)
    return fnp.where(lam == 0, 0, fnp.where(is_small, few, many)).astype(dtype)


def _poisson_knuth(key: Array, lam: Array, dtype: DType, max_steps: int) -> Array:
    """Multiplies uniform numbers until the product is below `exp(-lam)`; the count is Poisson distributed."""

    def is_unfinished(carry: tuple[Array, Array, Array, Array]) -> Array:
        i, _, _, log_product = carry
        return fnp.any(log_product > -lam) & (i < max_steps)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        i, count, key, log_product = carry
        key, step_key = split(key)
        count = fnp.where(log_product > -lam, count + 1, count)
        return i + 1, count, key, log_product + lax.log(uniform(step_key, lam.shape, np.float32))

    start = (fnp.zeros((), dtype), fnp.zeros(lam.shape, dtype), key, fnp.zeros(lam.shape, np.float32))
    return lax.while_loop(is_unfinished, step, start)[1] - 1


def _poisson_rejection(key: Array, lam: Array, dtype: DType, max_steps: int) -> Array:
    """Draws by Hörmann's transformed rejection (PTRS)."""
    b = 0.931 + 2.53 * fnp.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    immediate_acceptance = 0.9277 - 3.6224 / (b - 2)

    def is_unfinished(carry: tuple[Array, Array, Array, Array]) -> Array:
        i, _, accepted, _ = carry
        return fnp.any(~accepted) & (i < max_steps)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        i, count, accepted, key = carry
        key, first, second = split(key, 3)
        u = uniform(first, lam.shape, lam.dtype) - 0.5
        v = uniform(second, lam.shape, lam.dtype)
        us = 0.5 - fnp.abs(u)
        k = fnp.floor((2 * a / us + b) * u + lam + 0.43)
        bound = -lam + k * lax.log(lam) - lax.lgamma(k + 1)
        rejected = (k < 0) | ((us < 0.013) & (v > us))
        accepted_by_density = lax.log(v * inverse_alpha / (a / (us * us) + b)) <= bound
        accepted_now = ((us >= 0.07) & (v <= immediate_acceptance)) | (~rejected & accepted_by_density)
        return i + 1, fnp.where(accepted_now, k, count), accepted | accepted_now, key

    start = (fnp.zeros((), dtype), fnp.full(lam.shape, -1, lam.dtype), fnp.zeros(lam.shape, bool), key)
    return lax.while_loop(is_unfinished, step, start)[1].astype(dtype)


# ------------------------------------------------------------------ binomial


def binomial(
    key: ArrayLike,
    n: ArrayLike,
    p: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Draws from the binomial distribution: the number of successes among `n` trials.

    Where few successes are expected, the geometric distances between them are added: Kachitvichyanukul and Schmeiser,
    Binomial random variate generation, Communications of the ACM 31 (1988). Otherwise the method is transformed
    rejection: Hörmann, The generation of binomial random variates, Journal of Statistical Computation and Simulation 46
    (1993).

    Args:
        key: a random key, `key<...>[]`.
        n: the number of trials, an array that broadcasts to `shape`.
        p: the probability of success, an array that broadcasts to `shape`.
        shape: the shape of the result; by default that of the broadcast parameters.
        dtype: the float dtype of the result; None means the default float dtype.

    Returns:
        Integers as floats, `dtype[*shape]`: NaN where `n` or `p` is negative or NaN, infinite where `n` is infinite.

    Raises:
        ValueError: if `dtype` is not a float dtype, or the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> bool(random.binomial(random.key(0), 10, 0.5) <= 10)
    True
    """
    return _binomial(key, n, _as_floats(p), sample_shape("binomial", shape, n, p), float_dtype("binomial", dtype))


@jit_sampler("shape", "dtype")
def _binomial(key: Array, n: ArrayLike, p: Array, shape: Shape, dtype: DType) -> Array:
    count, probability = broadcast_parameter(n, p.dtype, shape), broadcast_parameter(p, p.dtype, shape)
    is_less = probability < 0.5
    q = fnp.where(is_less, probability, 1.0 - probability)
    is_invalid_count = fnp.isnan(count) | (count < 0.0)
    is_invalid_probability = fnp.isnan(q) | (q < 0.0)
    is_infinite = fnp.isinf(count)
    q_is_nan = fnp.isnan(q)
    q = fnp.where(is_invalid_probability, 0.01, q)
    is_small = is_invalid_count | (count * q <= 10.0)
    count = fnp.floor(count)
    max_steps = dtypes.finfo(dtype).max
    few = _binomial_inversion(key, fnp.where(is_small, count, 0.0), q, dtype, float(max_steps))
    many = _binomial_rejection(
        key, fnp.where(is_small, 1e4, count), fnp.where(is_small, 0.5, q), dtype, float(max_steps)
    )
    result = fnp.where(is_small, few, many)
    is_invalid = is_invalid_probability | is_invalid_count
    result = fnp.where(is_invalid, np.nan, result)
    result = fnp.where(is_infinite & ~is_invalid, np.inf, result)
    return fnp.where(is_less | is_invalid_count | q_is_nan | is_infinite, result, count.astype(dtype) - result)


def _binomial_inversion(key: Array, count: Array, p: Array, dtype: DType, max_steps: float) -> Array:
    """Adds geometric distances between successes until they exceed the number of trials."""
    log_failure = lax.log1p(-p)

    def is_unfinished(carry: tuple[Array, Array, Array, Array]) -> Array:
        i, _, trials, _ = carry
        return fnp.any(trials <= count) & (i < max_steps)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        i, successes, trials, key = carry
        step_key, key = split(key)
        successes = fnp.where(trials <= count, successes + 1, successes)
        distance = fnp.ceil(lax.log(uniform(step_key, p.shape, p.dtype)) / log_failure)
        return i + 1, successes, trials + distance, key

    start = (fnp.asarray(0), fnp.zeros(p.shape, p.dtype), fnp.zeros(p.shape, p.dtype), key)
    return (lax.while_loop(is_unfinished, step, start)[1] - 1).astype(dtype)


def _binomial_rejection(key: Array, count: Array, p: Array, dtype: DType, max_steps: float) -> Array:
    """Draws by Hörmann's transformed rejection (BTRS)."""
    deviation = fnp.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = count * p + 0.5
    immediate_acceptance = 0.92 - 4.2 / b
    odds = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    m = fnp.floor((count + 1) * p)

    def log_bound(k: Array) -> Array:
        """Returns the logarithm of the probability of `k` relative to that of the mode, by Stirling's formula."""
        first_term = (m + 0.5) * lax.log((m + 1) / (odds * (count - m + 1)))
        second_term = (count + 1) * lax.log((count - m + 1) / (count - k + 1))
        third_term = (k + 0.5) * lax.log(odds * (count - k + 1) / (k + 1))
        tails = (
            _stirling_approx_tail(m)
            + _stirling_approx_tail(count - m)
            - _stirling_approx_tail(k)
            - _stirling_approx_tail(count - k)
        )
        return first_term + second_term + third_term + tails

    def is_unfinished(carry: tuple[Array, Array, Array, Array]) -> Array:
        i, _, accepted, _ = carry
        return fnp.any(~accepted) & (i < max_steps)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        i, result, accepted, key = carry
        key, first, second = split(key, 3)
        u = uniform(first, p.shape, p.dtype) - 0.5
        v = uniform(second, p.shape, p.dtype)
        us = 0.5 - fnp.abs(u)
        k = fnp.floor((2 * a / us + b) * u + c)
        rejected = (k < 0) | (k > count)
        accepted_by_density = lax.log(v * alpha / (a / (us * us) + b)) <= log_bound(k)
        accepted_now = ((us >= 0.07) & (v <= immediate_acceptance)) | (~rejected & accepted_by_density)
        return i + 1, fnp.where(accepted_now, k, result), accepted | accepted_now, key

    start = (fnp.asarray(0), fnp.full(p.shape, -1, p.dtype), fnp.zeros(p.shape, bool), key)
    return lax.while_loop(is_unfinished, step, start)[1].astype(dtype)


def _stirling_tail(k: int) -> float:
    return math.lgamma(k + 1) - (0.5 * math.log(2 * math.pi) + (k + 0.5) * math.log(k + 1) - (k + 1))


_STIRLING_TAILS: Final = tuple(_stirling_tail(k) for k in range(10))


def _stirling_approx_tail(k: Array) -> Array:
    """Returns `log(k!)` minus Stirling's formula: from a table for `k < 10`, else by three terms of the series."""
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
    """Draws from the multinomial distribution: how many of `n` trials fall into each class.

    Args:
        key: a random key, `key<...>[]`.
        n: the number of trials, an array that broadcasts to `shape[:-1]`.
        p: the probabilities of the classes along the last axis, an array that broadcasts to `shape`.
        shape: the shape of the result, with the classes along the last axis; by default that of `p`.
        dtype: the dtype of the result; by default that of the promoted parameters.
        unroll: the unrolling factor of the `scan` over the classes.

    Returns:
        Integers as floats, `dtype[*shape]`.

    Raises:
        ValueError: if the parameters don't broadcast to `shape`.

    >>> from tracefx import random
    >>> float(random.multinomial(random.key(0), 10, [0.2, 0.3, 0.5]).sum())
    10.0
    """
    checked_key, _ = check_key("multinomial", key)
    trials, probabilities = fnp.promote_types(_as_floats(n).dtype, _as_floats(p).dtype), _as_floats(p)
    sizes = probabilities.shape if shape is None else sizes_of("multinomial", shape)
    check_parameter_shapes("multinomial", sizes, probabilities.shape)
    check_parameter_shapes("multinomial", sizes[:-1], get_aval(n).shape)
    remaining = broadcast_parameter(n, trials, sizes[:-1])
    first = fnp.moveaxis(broadcast_parameter(probabilities, trials, sizes), -1, 0)
    tail_sums = lax.cumsum(first, 0, reverse=True)
    conditional_probabilities = first / fnp.where(tail_sums == 0, 1, tail_sums)

    def step(unassigned: Array, share_and_key: tuple[Array, Array]) -> tuple[Array, Array]:
        share, key = share_and_key
        count = binomial(key, unassigned, fnp.clip(share, 0, 1), dtype=unassigned.dtype)
        return unassigned - count, count

    _, counts = lax.scan(
        step,
        remaining,
        (conditional_probabilities, split(checked_key, conditional_probabilities.shape[0])),
        unroll=unroll,
    )
    result = fnp.moveaxis(counts, 0, -1)
    return result if dtype is None else result.astype(dtype)
