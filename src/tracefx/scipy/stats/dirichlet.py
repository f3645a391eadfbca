"""The Dirichlet distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.numpy.operand_promotion import promote_dtypes, to_inexact
from tracefx.scipy import special


def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Computes the logarithm of the probability density of the Dirichlet distribution.

    Args:
        x: `f32[n, ...]`, the components along axis 0. The last component may be omitted, since they sum to 1.
        alpha: the concentration parameters, `f32[n]`, positive.

    Returns:
        The log density; minus infinity where the components are negative or do not sum to 1.

    Raises:
        ValueError: if shapes do not match.

    >>> round(float(logpdf(fnp.array([0.25, 0.75]), fnp.array([2.0, 3.0]))), 4)
    0.5232
    """
    components, weights = (
        fnp.asarray(to_inexact(v, "dirichlet")) for v in promote_dtypes("dirichlet.logpdf", x, alpha)
    )
    if weights.ndim != 1:
        raise ValueError(f"dirichlet: alpha must have one axis, got {weights.aval}")
    n = weights.shape[0]
    if components.ndim == 0 or components.shape[0] not in (n, n - 1):
        raise ValueError(f"dirichlet: x must have {n} or {n - 1} components along axis 0, got {components.aval}")
    if components.shape[0] != n:
        components = fnp.concatenate([components, 1 - fnp.sum(components, 0, keepdims=True)], 0)
    total = fnp.sum(special.gammaln(weights)) - special.gammaln(fnp.sum(weights))
    weights = weights.reshape((n, *[1] * (components.ndim - 1)))
    # The rounding error of a sum grows with the number of components.
    close = max(1e-6, 4 * n * float(dtypes.finfo(components.dtype).eps))
    inside = fnp.all(components >= 0, 0) & (fnp.abs(fnp.sum(components, 0) - 1) < close)
    value = fnp.sum(special.xlogy(weights - 1, fnp.maximum(components, 0.0)), 0) - total
    return fnp.where(inside, value, -math.inf)


def pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Computes the probability density of the Dirichlet distribution.

    The density is `gamma(sum(alpha)) / prod(gamma(alpha)) * prod(x**(alpha - 1))`.

    Args:
        x: `f32[n, ...]`, the components along axis 0. The last component may be omitted, since they sum to 1.
        alpha: the concentration parameters, `f32[n]`, positive.

    Returns:
        The density; 0 where the components are negative or do not sum to 1.

    Raises:
        ValueError: if shapes do not match.

    >>> round(float(pdf(fnp.array([0.25, 0.75]), fnp.array([2.0, 3.0]))), 4)
    1.6875
    """
    return fnp.exp(logpdf(x, alpha))
