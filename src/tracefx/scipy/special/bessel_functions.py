"""Bessel functions of integer order."""

from __future__ import annotations

import math
from typing import SupportsIndex

import tracefx.numpy as fnp
from tracefx.control.special import bessel
from tracefx.control.special.formula import compute_dtype
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.numpy.operand_promotion import convert_dtype
from tracefx.ops.static_integers import static_count, static_int
from tracefx.scipy.special.argument_promotion import promote_real
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.jit import jit
from tracefx.transforms.loops import fori_loop
from tracefx.transforms.scans import scan


def i0e(x: ArrayLike) -> Array:
    """Computes the exponentially scaled modified Bessel function of the first kind of order 0, `exp(-abs(x)) * i0(x)`.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`.

    >>> round(float(i0e(1.0)), 5)
    0.46576
    """
    return bessel.bessel_i0e(*promote_real("i0e", x))


def i0(x: ArrayLike) -> Array:
    """Computes the modified Bessel function of the first kind of order 0.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`.

    >>> round(float(i0(1.0)), 5)
    1.26607
    """
    return _i0(*promote_real("i0", x))


def i1e(x: ArrayLike) -> Array:
    """Computes the exponentially scaled modified Bessel function of the first kind of order 1, `exp(-abs(x)) * i1(x)`.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`.

    >>> round(float(i1e(1.0)), 5)
    0.20791
    """
    return bessel.bessel_i1e(*promote_real("i1e", x))


def i1(x: ArrayLike) -> Array:
    """Computes the modified Bessel function of the first kind of order 1.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`.

    >>> round(float(i1(1.0)), 5)
    0.56516
    """
    return _i1(*promote_real("i1", x))


@custom_jvp
def _i0(x: Array) -> Array:
    return fnp.exp(fnp.abs(x)) * bessel.bessel_i0e(x)


@custom_jvp
def _i1(x: Array) -> Array:
    return fnp.exp(fnp.abs(x)) * bessel.bessel_i1e(x)


def _i1_slope(t: Array, out: Array, x: Array) -> Array:
    near = fnp.abs(x) < bessel.series_limit(x.dtype)
    inner = fnp.where(near, x, 0.0)
    return t * (_i0(x) - fnp.where(near, 0.5 + inner * inner / 16, out / fnp.where(near, 1.0, x)))


_i0.defjvps(lambda t, out, x: t * _i1(x))
_i1.defjvps(_i1_slope)


def bessel_jn(z: ArrayLike, *, v: SupportsIndex, n_iter: SupportsIndex = 50) -> Array:
    """Computes the Bessel functions of the first kind of orders 0 to `v`.

    Args:
        z: an array of real numbers.
        v: the largest order, a concrete integer.
        n_iter: the smallest order at which the downward recurrence may start, a concrete integer; it starts higher
            where the accuracy requires it.

    Returns:
        An array of floats with a new leading axis of orders, `f32[v + 1, *z.shape]`.

    Raises:
        ValueError: if `v` is negative.

    >>> [round(float(j), 5) for j in bessel_jn(fnp.array(1.0), v=1)]
    [0.7652, 0.44005]
    """
    most, least = static_count("bessel_jn", v, "v"), static_int("bessel_jn", n_iter, "n_iter")
    (value,) = promote_real("bessel_jn", z)
    aval = value.aval
    out = _bessel_jn(most, max(least, most + 40, 60), value.astype(compute_dtype(aval.dtype)))
    return fnp.asarray(convert_dtype(out, aval.dtype, aval.weak_type))


def _orders(most: int, start: int, z: Array) -> Array:
    """Evaluates orders 0 to `most` of the Bessel function.

    For `abs(z) <= start - 30` Miller's algorithm recurs downwards (DLMF 3.6.5, 10.23.4); for larger numbers the
    recurrence goes upwards from Hankel's expansions.
    """
    size = fnp.abs(z)
    is_large = size > float(start - 30)
    values = fnp.where(is_large, _upwards(most, size, is_large), _downwards(most, start, size, is_large))
    is_odd = _per_order(fnp.arange(most + 1) % 2 == 1, z)
    return fnp.where((z < 0) & is_odd, -values, values)


def _per_order(values: Array, z: Array) -> Array:
    """Reshapes one value for each order to broadcast against `[order, *z.shape]`."""
    return fnp.reshape(values, (-1, *[1] * z.ndim))


def _downwards(most: int, start: int, size: Array, is_large: Array) -> Array:
    """Evaluates Miller's algorithm, or the first terms of the power series for small numbers."""
    tiny = float(dtypes.finfo(size.dtype).tiny) ** 0.5
    is_small = size < (1e-8 if size.dtype == dtypes.float64 else 1e-4)
    z = fnp.where(is_large | is_small, 1.0, size)
    orders = _per_order(fnp.arange(most + 1), z)
    values = fnp.zeros((most + 1, *z.shape), z.dtype)

    def step(i: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        after, current, total, values = carry
        n = start - i  # the function of order n is proportional to `current`
        values = fnp.where(orders == n, current, values)
        total = total + fnp.where(n % 2 == 1, 0.0, fnp.where(n == 0, current, 2 * current))
        after, current = current, (2 * n / z) * current - after
        scale = fnp.where(fnp.abs(current) > 1 / tiny, tiny, fnp.ones_like(z))
        return after * scale, current * scale, total * scale, values * scale

    initial = fnp.zeros_like(z), fnp.full_like(z, tiny), fnp.zeros_like(z), values
    _, _, total, values = fori_loop(0, start + 1, step, initial)
    # The first two terms of the series, with (size / 2) ** n / n!
    half = size / 2
    factors = fnp.where(orders == 0, 1.0, half / fnp.maximum(orders, 1).astype(z.dtype))
    series = fnp.cumprod(factors, 0) * (1 - half * half / (orders + 1).astype(z.dtype))
    return fnp.where(is_small, series, values / total)


def _upwards(most: int, size: Array, is_large: Array) -> Array:
    """Evaluates the upward recurrence from orders 0 and 1."""
    z = fnp.where(is_large, size, 40.0)
    first = [_hankel(n, z) for n in range(min(most, 1) + 1)]
    if most < 2:
        return fnp.stack(first)

    def step(carry: tuple[Array, Array], n: Array) -> tuple[tuple[Array, Array], Array]:
        before, current = carry
        after = (2 * n / z) * current - before
        return (current, after), after

    _, higher_orders = scan(step, (first[0], first[1]), fnp.arange(1, most))
    return fnp.concatenate([fnp.stack(first), higher_orders], 0)


def _hankel(n: int, z: Array) -> Array:
    """Evaluates Hankel's asymptotic expansion of order 0 or 1 for large numbers (DLMF 10.17.3)."""
    terms = [1.0]
    for k in range(1, 17):
        terms.append(terms[-1] * (4 * n * n - (2 * k - 1) ** 2) / (8 * k))
    w = -1 / (z * z)
    p, q = fnp.full_like(z, terms[16]), fnp.full_like(z, terms[15])
    for k in range(14, -1, -2):
        p = p * w + terms[k]
    for k in range(13, 0, -2):
        q = q * w + terms[k]
    q = q / z
    sine, cosine = fnp.sin(z), fnp.cos(z)
    phase = (cosine + sine, sine - cosine) if n == 0 else (sine - cosine, -(sine + cosine))
    return (p * phase[0] - q * phase[1]) / fnp.sqrt(math.pi * z)


@jit(static_argnums=(0, 1))
def _computed(most: int, start: int, z: Array) -> Array:
    return _orders(most, start, z)


def _slopes(most: int, start: int, z: Array) -> Array:
    """Returns the derivatives: half the difference of the neighboring orders."""
    values = _bessel_jn(most + 1, start, z)
    lower = fnp.concatenate([-values[1:2], values[:most]], 0)
    return 0.5 * (lower - values[1:])


_bessel_jn = custom_jvp(_computed, nondiff_argnums=(0, 1))
_bessel_jn.defjvp(
    lambda most, start, primals, tangents: (
        _bessel_jn(most, start, *primals),
        tangents[0] * _slopes(most, start, *primals),
    )
)
