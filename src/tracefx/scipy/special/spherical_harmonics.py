"""`sph_harm_y`: spherical harmonics."""

from __future__ import annotations

import math
from typing import SupportsIndex

import numpy as np

import tracefx.numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes
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
    """Computes spherical harmonics.

    They are orthonormal and include the Condon-Shortley phase `(-1)**m`.

    Args:
        n: the degree, an array of nonnegative integers.
        m: the order, an array of integers.
        theta: the polar angle in radians.
        phi: the azimuth in radians.
        diff_n: must be None.
        n_max: the largest degree, a concrete integer; larger degrees count as this. By default the maximum of `n`;
            required if `n` is traced.

    Returns:
        An array of complex numbers of the shape that the arguments broadcast to; 0 where `abs(m) > n`.

    Raises:
        NotImplementedError: if `diff_n` is given.
        TypeError: if `n` or `m` has no integer dtype, an angle is complex, or `n_max` is missing where `n` is traced.

    >>> round(complex(sph_harm_y(0, 0, 0.0, 0.0)).real, 5)
    0.28209
    """
    if diff_n is not None:
        raise NotImplementedError("sph_harm_y: diff_n is not supported; differentiate with tracefx.jvp")
    polar, azimuth = promote_args_inexact("sph_harm_y", theta, phi)
    if dtypes.is_complex(polar.aval.dtype):
        raise TypeError(f"sph_harm_y: theta and phi must be real, got {polar.aval}")
    degree, order = fnp.asarray(n), fnp.asarray(m)
    for argument, each in (("n", degree), ("m", order)):
        if not dtypes.is_integer(each.dtype):
            raise TypeError(f"sph_harm_y: {argument} must have an integer dtype, got {each.aval}")
    if n_max is None:
        try:
            n_max = int(np.max(np.asarray(degree), initial=0))
        except ConcretizationError as error:
            raise TypeError("sph_harm_y: n_max must be given where n is traced") from error
    most = static_int("sph_harm_y", n_max, "n_max")
    degree, order, polar, azimuth = fnp.broadcast_arrays(fnp.minimum(degree, most), order, polar, azimuth)
    value = _legendre(degree, fnp.abs(order), fnp.asarray(polar), most)
    changes_sign = (order < 0) & (order % 2 != 0)  # the harmonic of -m is the conjugate times (-1)**m
    value = fnp.where(changes_sign, -value, value)
    angle = order.astype(value.dtype) * azimuth
    return complex_numbers.complex(value * fnp.cos(angle), value * fnp.sin(angle))


def _legendre(degree: Array, order: Array, theta: Array, most: int) -> Array:
    """Computes normalized associated Legendre functions by the recurrence in the degree (DLMF 14.10.3)."""
    sine, cosine = fnp.abs(fnp.sin(theta)), fnp.cos(theta)  # SciPy continues them evenly to negative angles
    m = order.astype(theta.dtype)
    start = fnp.full_like(theta, math.sqrt(0.25 / math.pi))

    def step(i: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        diagonal, before, last, values = carry
        d = i.astype(theta.dtype)
        factor = -fnp.sqrt((2 * d + 1) / fnp.where(d > 0, 2 * d, 1.0)) * sine
        grown = fnp.where((d > 0) & (d <= m), diagonal * factor, diagonal)
        beyond = d > m
        top, bottom = fnp.where(beyond, d, m + 1), fnp.where(beyond, d - 1, m)
        scale = fnp.sqrt((4 * top * top - 1) / (top * top - m * m))
        previous_factor = fnp.sqrt(fnp.where(bottom > m, (bottom * bottom - m * m) / (4 * bottom * bottom - 1), 0.0))
        value = fnp.where(beyond, scale * (cosine * last - previous_factor * before), fnp.where(d == m, grown, 0.0))
        values = fnp.where(degree == i, value, values)
        return grown, last, value, values

    zero = fnp.zeros_like(theta)
    return fori_loop(0, most + 1, step, (start, zero, zero, zero))[3]
