"""Argument handling shared by the distributions: promotion, standardization, and checks."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.control.special.log_gamma import log_gamma_ratio
from tracefx.core import Array, ArrayLike
from tracefx.ops.elementwise import special
from tracefx.scipy.special.argument_promotion import call_promoted
from tracefx.scipy.special.argument_promotion import promote_real as promote_real
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.jit import jit


def standardize_arguments(name: str, x: ArrayLike, loc: ArrayLike, scale: ArrayLike, *shapes: ArrayLike) -> list[Array]:
    """Returns `(x - loc) / scale`, the shape parameters, and `scale`, promoted; NaN where `scale` is not positive."""
    value, shift, width, *others = promote_real(name, x, loc, scale, *shapes)
    width = nan_unless_positive(width)
    return [(value - shift) / width, *others, width]


def nan_unless_positive(scale: Array) -> Array:
    """Returns `scale`, with NaN where it is not positive."""
    return fnp.where(scale > 0, scale, math.nan)


def nan_unless_probability(p: Array) -> Array:
    """Returns `p`, with NaN where it is not between 0 and 1."""
    return fnp.where((p >= 0) & (p <= 1), p, math.nan)


def log_gamma_quotient(a: ArrayLike, step: float) -> Array:
    """Computes `log(gamma(a + step) / gamma(a))` without cancellation for large `a`."""
    return call_promoted("log_gamma_quotient", _log_gamma_quotient, a, step)


@custom_jvp
@jit
def _log_gamma_quotient(a: Array, step: Array) -> Array:
    return -log_gamma_ratio(a, step)


_log_gamma_quotient.defjvps(
    lambda t, out, a, step: t * (special.digamma(a + step) - special.digamma(a)),
    lambda t, out, a, step: t * special.digamma(a + step),
)
