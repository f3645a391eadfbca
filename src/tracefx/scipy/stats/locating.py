"""What the distributions share: arguments promoted, moved to the standard place and width, and checked."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.control.special.gamma_parts import log_gamma_ratio
from tracefx.core.array import Array, ArrayLike
from tracefx.ops import special
from tracefx.scipy.special.computing import computed
from tracefx.scipy.special.computing import real as real
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.jit import jit


def located(name: str, x: ArrayLike, loc: ArrayLike, scale: ArrayLike, *shapes: ArrayLike) -> list[Array]:
    """`(x - loc) / scale`, the parameters of shape, and `scale`, all promoted; NaN where `scale` is not positive."""
    value, shift, width, *others = real(name, x, loc, scale, *shapes)
    width = widths(width)
    return [(value - shift) / width, *others, width]


def widths(scale: Array) -> Array:
    return fnp.where(scale > 0, scale, math.nan)


def probabilities(p: Array) -> Array:
    """NaN for what is no probability."""
    return fnp.where((p >= 0) & (p <= 1), p, math.nan)


def log_gamma_quotient(a: ArrayLike, step: float) -> Array:
    """`log(gamma(a + step) / gamma(a))`, without cancellation where `a` is large."""
    return computed("log_gamma_quotient", _log_gamma_quotient, a, step)


@custom_jvp
@jit
def _log_gamma_quotient(a: Array, step: Array) -> Array:
    return -log_gamma_ratio(a, step)


_log_gamma_quotient.defjvps(
    lambda t, out, a, step: t * (special.digamma(a + step) - special.digamma(a)),
    lambda t, out, a, step: t * special.digamma(a + step),
)
