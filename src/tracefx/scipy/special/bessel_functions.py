"""Bessel functions of whole orders."""

from __future__ import annotations

import math
from typing import SupportsIndex

import tracefx.numpy as fnp
from tracefx.control.special import bessel
from tracefx.control.special.formula import compute_dtype
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.numpy.operand_promotion import convert_dtype
from tracefx.ops.static_integers import static_int
from tracefx.scipy.special.argument_promotion import promote_real
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.jit import jit
from tracefx.transforms.loops import fori_loop
from tracefx.transforms.scans import scan


def i0e(x: ArrayLike) -> Array:
    """`exp(-abs(x))` times the modified Bessel function of order 0.

    >>> round(float(i0e(1.0)), 5)
    0.46576
    """
    return bessel.bessel_i0e(*promote_real("i0e", x))


def i0(x: ArrayLike) -> Array:
    """The modified Bessel function of order 0.

    >>> round(float(i0(1.0)), 5)
    1.26607
    """
    return _i0(*promote_real("i0", x))


def i1e(x: ArrayLike) -> Array:
    """`exp(-abs(x))` times the modified Bessel function of order 1.

    >>> round(float(i1e(1.0)), 5)
    0.20791
    """
    return bessel.bessel_i1e(*promote_real("i1e", x))


def i1(x: ArrayLike) -> Array:
    """The modified Bessel function of order 1.

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
    zero = x == 0
    return t * (_i0(x) - fnp.where(zero, 0.5, out / fnp.where(zero, 1.0, x)))


_i0.defjvps(lambda t, out, x: t * _i1(x))
_i1.defjvps(_i1_slope)


def bessel_jn(z: ArrayLike, *, v: SupportsIndex, n_iter: SupportsIndex = 50) -> Array:
    """The Bessel functions of the first kind of orders 0 to `v` along a new first axis.

    `n_iter` is the least order at which the recurrence begins; larger ones are taken where they are needed. It must be
    known when it is traced, as must `v`.

    >>> [round(float(j), 5) for j in bessel_jn(fnp.array(1.0), v=1)]
    [0.7652, 0.44005]
    """
    most, least = static_int("bessel_jn", v, "v"), static_int("bessel_jn", n_iter, "n_iter")
    if most < 0:
        raise ValueError(f"bessel_jn: v must not be negative, got {most}")
    (value,) = promote_real("bessel_jn", z)
    aval = value.aval
    out = _bessel_jn(most, max(least, most + 40, 60), value.astype(compute_dtype(aval.dtype)))
    return fnp.asarray(convert_dtype(out, aval.dtype, aval.weak_type))


def _orders(most: int, start: int, z: Array) -> Array:
    """By Miller's algorithm up to where it holds (DLMF 3.6.5, 10.23.4); beyond, upwards from Hankel's expansions."""
    size = fnp.abs(z)
    far = size > float(start - 30)
    found = fnp.where(far, _upwards(most, size, far), _downwards(most, start, size, far))
    odd = _per_order(fnp.arange(most + 1) % 2 == 1, z)
    return fnp.where((z < 0) & odd, -found, found)


def _per_order(values: Array, z: Array) -> Array:
    """One value for each order, to be broadcast against `[order, *z.shape]`."""
    return fnp.reshape(values, (-1, *[1] * z.ndim))


def _downwards(most: int, start: int, size: Array, far: Array) -> Array:
    tiny = float(dtypes.finfo(size.dtype).tiny) ** 0.5
    small = size < (1e-8 if size.dtype == dtypes.float64 else 1e-4)
    z = fnp.where(far | small, 1.0, size)
    orders = _per_order(fnp.arange(most + 1), z)
    kept = fnp.zeros((most + 1, *z.shape), z.dtype)

    def step(i: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        after, current, total, kept = carry
        n = start - i  # the function of order n is proportional to `current`
        kept = fnp.where(orders == n, current, kept)
        total = total + fnp.where(n % 2 == 1, 0.0, fnp.where(n == 0, current, 2 * current))
        after, current = current, (2 * n / z) * current - after
        scale = fnp.where(fnp.abs(current) > 1 / tiny, tiny, fnp.ones_like(z))
        return after * scale, current * scale, total * scale, kept * scale

    initial = fnp.zeros_like(z), fnp.full_like(z, tiny), fnp.zeros_like(z), kept
    _, _, total, kept = fori_loop(0, start + 1, step, initial)
    # The first two terms of the series, with (size / 2) ** n / n!
    half = size / 2
    factors = fnp.where(orders == 0, 1.0, half / fnp.maximum(orders, 1).astype(z.dtype))
    series = fnp.cumprod(factors, 0) * (1 - half * half / (orders + 1).astype(z.dtype))
    return fnp.where(small, series, kept / total)


def _upwards(most: int, size: Array, far: Array) -> Array:
    z = fnp.where(far, size, 40.0)
    first = [_hankel(n, z) for n in range(min(most, 1) + 1)]
    if most < 2:
        return fnp.stack(first)

    def step(carry: tuple[Array, Array], n: Array) -> tuple[tuple[Array, Array], Array]:
        before, current = carry
        after = (2 * n / z) * current - before
        return (current, after), after

    _, rest = scan(step, (first[0], first[1]), fnp.arange(1, most))
    return fnp.concatenate([fnp.stack(first), rest], 0)


def _hankel(n: int, z: Array) -> Array:
    """For numbers that are large beside 1 (DLMF 10.17.3)."""
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
    """Derivatives: half the difference of the neighbours."""
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
