"""Spherical harmonics."""

from __future__ import annotations

import math
from typing import SupportsIndex

import numpy as np

import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.errors import ConcretizationError
from tracefx.numpy.operand_promotion import promote_args_inexact
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.static_integers import static_int
from tracefx.transforms.loops import fori_loop


def sph_harm_y(
    n: ArrayLike,
    m: ArrayLike,
    theta: ArrayLike,
    phi: ArrayLike,
    diff_n: None = None,
    n_max: SupportsIndex | None = None,
) -> Array:
    """Spherical harmonics of degree `n` and order `m` at the polar angle `theta` and the azimuth `phi`.

    They are orthonormal, with the factor `(-1)**m` of Condon and Shortley. `n_max`, the largest degree, must be given
    where `n` is traced; a degree beyond it counts as it. 0 where `abs(m) > n`.

    >>> round(complex(sph_harm_y(0, 0, 0.0, 0.0)).real, 5)
    0.28209
    """
    if diff_n is not None:
        raise NotImplementedError("sph_harm_y: diff_n is not supported; differentiate with tracefx.jvp")
    polar, azimuth = promote_args_inexact("sph_harm_y", theta, phi)
    if dtypes.is_complex(polar.aval.dtype):
        raise TypeError(f"sph_harm_y: theta and phi must be real, got {polar.aval}")
    degree, order = fnp.asarray(n), fnp.asarray(m)
    for what, each in (("n", degree), ("m", order)):
        if not dtypes.is_integer(each.dtype):
            raise TypeError(f"sph_harm_y: {what} must be of integers, got {each.aval}")
    if n_max is None:
        try:
            n_max = int(np.max(np.asarray(degree), initial=0))
        except ConcretizationError as error:
            raise TypeError("sph_harm_y: n_max must be given where n is traced") from error
    most = static_int("sph_harm_y", n_max, "n_max")
    degree, order, polar, azimuth = fnp.broadcast_arrays(fnp.minimum(degree, most), order, polar, azimuth)
    value = _legendre(degree, fnp.abs(order), fnp.asarray(polar), most)
    negative = (order < 0) & (order % 2 != 0)  # of -m: the conjugate, times (-1)**m
    value = fnp.where(negative, -value, value)
    angle = order.astype(value.dtype) * azimuth
    return complex_numbers.complex(value * fnp.cos(angle), value * fnp.sin(angle))


def _legendre(degree: Array, order: Array, theta: Array, most: int) -> Array:
    """Normalized associated Legendre functions, upwards in the degree from that of the order (DLMF 14.10.3)."""
    sine, cosine = fnp.abs(fnp.sin(theta)), fnp.cos(theta)  # SciPy continues them evenly to negative angles
    m = order.astype(theta.dtype)
    start = fnp.full_like(theta, math.sqrt(0.25 / math.pi))

    def step(i: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        diagonal, before, last, found = carry
        d = i.astype(theta.dtype)
        factor = -fnp.sqrt((2 * d + 1) / fnp.where(d > 0, 2 * d, 1.0)) * sine
        grown = fnp.where((d > 0) & (d <= m), diagonal * factor, diagonal)
        beyond = d > m
        top, bottom = fnp.where(beyond, d, m + 1), fnp.where(beyond, d - 1, m)
        scale = fnp.sqrt((4 * top * top - 1) / (top * top - m * m))
        rest = fnp.sqrt(fnp.where(bottom > m, (bottom * bottom - m * m) / (4 * bottom * bottom - 1), 0.0))
        value = fnp.where(beyond, scale * (cosine * last - rest * before), fnp.where(d == m, grown, 0.0))
        found = fnp.where(degree == i, value, found)
        return grown, last, value, found

    zero = fnp.zeros_like(theta)
    return fori_loop(0, most + 1, step, (start, zero, zero, zero))[3]
