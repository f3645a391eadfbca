"""What the distributions share: arguments promoted, moved to the standard place and width, and checked."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.control.special.log_gamma import log_gamma_ratio
from tracefx.core.array import Array, ArrayLike
from tracefx.ops.elementwise import special
from tracefx.scipy.special.argument_promotion import call_promoted
from tracefx.scipy.special.argument_promotion import promote_real as promote_real
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.jit import jit


def standardize_arguments(name: str, x: ArrayLike, loc: ArrayLike, scale: ArrayLike, *shapes: ArrayLike) -> list[Array]:
    """`(x - loc) / scale`, the parameters of shape, and `scale`, all promoted; NaN where `scale` is not positive."""
    value, shift, width, *others = promote_real(name, x, loc, scale, *shapes)
    width = widths(width)
    return [(value - shift) / width, *others, width]


def widths(scale: Array) -> Array:
    return fnp.where(scale > 0, scale, math.nan)


def nan_unless_probability(p: Array) -> Array:
    """NaN for what is no probability."""
    return fnp.where((p >= 0) & (p <= 1), p, math.nan)


def log_gamma_quotient(a: ArrayLike, step: float) -> Array:
    """`log(gamma(a + step) / gamma(a))`, without cancellation where `a` is large."""
    return call_promoted("log_gamma_quotient", _log_gamma_quotient, a, step)


@custom_jvp
@jit
def _log_gamma_quotient(a: Array, step: Array) -> Array:
    return -log_gamma_ratio(a, step)


_log_gamma_quotient.defjvps(
    lambda t, out, a, step: t * (special.digamma(a + step) - special.digamma(a)),
    lambda t, out, a, step: t * special.digamma(a + step),
)
