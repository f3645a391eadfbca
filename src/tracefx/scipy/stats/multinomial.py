"""The multinomial distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.numpy.operand_promotion import promote_dtypes, to_inexact
from tracefx.scipy import special


def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Computes the logarithm of the probability mass function of the multinomial distribution.

    Args:
        x: the counts, `i32[..., k]`.
        n: the number of trials, integers.
        p: the probabilities of the classes, `f32[..., k]`.

    Returns:
        The log probability, `f32[...]`; minus infinity where the counts do not sum to `n`.

    Raises:
        TypeError: if `x` or `n` has no integer dtype.

    >>> round(float(logpmf(fnp.array([1, 2]), 3, fnp.array([0.25, 0.75]))), 4)
    -0.863
    """
    chances = fnp.asarray(to_inexact(p, "multinomial: p"))
    counts, draws = (fnp.asarray(v) for v in promote_dtypes("multinomial.logpmf", x, n))
    if not dtypes.is_integer(counts.dtype):
        raise TypeError(f"multinomial: x and n must have integer dtypes, got {counts.aval} and {draws.aval}")
    fits = fnp.sum(counts, -1) == draws
    counts, draws = counts.astype(chances.dtype), draws.astype(chances.dtype)
    parts = special.xlogy(counts, chances) - special.gammaln(counts + 1)
    return fnp.where(fits, special.gammaln(draws + 1) + fnp.sum(parts, -1), -math.inf)


def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Computes the probability mass function of the multinomial distribution.

    The probability is `n! / prod(x!) * prod(p**x)`.

    Args:
        x: the counts, `i32[..., k]`.
        n: the number of trials, integers.
        p: the probabilities of the classes, `f32[..., k]`.

    Returns:
        The probability, `f32[...]`; 0 where the counts do not sum to `n`.

    Raises:
        TypeError: if `x` or `n` has no integer dtype.

    >>> round(float(pmf(fnp.array([1, 2]), 3, fnp.array([0.25, 0.75]))), 4)
    0.4219
    """
    return fnp.exp(logpmf(x, n, p))
