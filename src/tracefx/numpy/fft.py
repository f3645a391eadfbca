"""Discrete Fourier transforms, with the names of `jax.numpy.fft`.

Transforms take numbers of any dtype, those of real numbers all but complex ones, and give complex64, or complex128
where the operand has 64 bits. A length other than an axis's own cuts the axis off or fills it up with zeros. `norm`
says which transform divides by the count of numbers: "backward", the inverse; "forward", the other; "ortho", each by
its square root.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsIndex

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, AxisLike
from tracefx.core.avals import Shape
from tracefx.core.dtypes import DTypeLike
from tracefx.core.sharding import DeviceOrSharding
from tracefx.core.values import Value
from tracefx.numpy.evaluated import by_numpy
from tracefx.numpy.operand_promotion import as_operand, inexact_dtype
from tracefx.numpy.repeating import roll
from tracefx.numpy.shapes import astype, normalize_axes
from tracefx.numpy.ufuncs import divide, multiply, where
from tracefx.ops import fourier, structural
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.fourier import FftType
from tracefx.ops.shape import array_creation, slicing
from tracefx.ops.static_integers import canonicalize_axes, static_int, static_ints
from tracefx.transforms.devices import device_put

__all__ = [
    "fft",
    "ifft",
    "rfft",
    "irfft",
    "hfft",
    "ihfft",
    "fft2",
    "ifft2",
    "rfft2",
    "irfft2",
    "fftn",
    "ifftn",
    "rfftn",
    "irfftn",
    "fftfreq",
    "rfftfreq",
    "fftshift",
    "ifftshift",
]

# ------------------------------------------------------------------ along one axis


@by_numpy()
def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The transform of `a` along an axis, of length `n`.

    >>> fft(1.0 + filling.iota("float32", 2))
    Array([ 3.+0.j, -1.+0.j], dtype=complex64)
    """
    return _transform_axis("fft", FftType.FFT, a, n, axis, norm)


@by_numpy()
def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `fft`.

    >>> ifft(fft(filling.iota("float32", 2)))
    Array([0.+0.j, 1.+0.j], dtype=complex64)
    """
    return _transform_axis("ifft", FftType.IFFT, a, n, axis, norm)


@by_numpy()
def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The first `n // 2 + 1` numbers of the transform of `n` real ones: the others are conjugates of these.

    >>> rfft(filling.iota("float32", 4)).shape
    (3,)
    """
    return _transform_axis("rfft", FftType.RFFT, a, n, axis, norm)


@by_numpy()
def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `rfft`. `n` counts the real numbers, by default an even number of them.

    >>> irfft(rfft(filling.iota("float32", 4)))
    Array([0., 1., 2., 3.], dtype=float32)
    """
    return _transform_axis("irfft", FftType.IRFFT, a, n, axis, norm)


@by_numpy()
def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The transform, which is real, of `n` numbers of which `a` has the first: the others are conjugates of these.

    >>> hfft(filling.iota("float32", 2))
    Array([ 1., -1.], dtype=float32)
    """
    conjugate = complex_numbers.conj(_to_complex(as_operand(a, "hfft: a")))
    return _transform_axis("hfft", FftType.IRFFT, conjugate, n, axis, _inverse_norm("hfft", norm))


@by_numpy()
def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `hfft`.

    >>> ihfft(hfft(filling.iota("float32", 3)))
    Array([0.-0.j, 1.-0.j, 2.-0.j], dtype=complex64)
    """
    return complex_numbers.conj(_transform_axis("ihfft", FftType.RFFT, a, n, axis, _inverse_norm("ihfft", norm)))


def _to_complex(x: Value) -> Array:
    return structural.convert(x, complex_numbers.complex_dtype(inexact_dtype(x.aval.dtype)))


def _inverse_norm(name: str, norm: str | None) -> str:
    """The other transform divides, for one that is forward and computed as an inverse one."""
    swapped = {"backward": "forward", "forward": "backward", "ortho": "ortho"}.get(norm or "backward")
    return _require_norm(name, norm) if swapped is None else swapped


def _transform_axis(name: str, kind: FftType, a: ArrayLike, n: int | None, axis: int | None, norm: str | None) -> Array:
    if isinstance(axis, Sequence):
        raise ValueError(f"{name}: axis must be one integer, got {axis!r}; {name}n takes several axes")
    x = as_operand(a, f"{name}: a")
    return _transform_axes(name, kind, x, None if n is None else (n,), None if axis is None else (axis,), norm)


# ------------------------------------------------------------------ over two axes


@by_numpy()
def fft2(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Array:
    """The transform of `a` over two axes, of the lengths `s`.

    >>> fft2(filling.full((2, 2), 1.0)).tolist()
    [[(4+0j), 0j], [0j, 0j]]
    """
    return _transform_two_axes("fft2", FftType.FFT, a, s, axes, norm)


@by_numpy()
def ifft2(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Array:
    """The inverse of `fft2`.

    >>> ifft2(filling.full((2, 2), 1.0)).tolist()
    [[(1+0j), 0j], [0j, 0j]]
    """
    return _transform_two_axes("ifft2", FftType.IFFT, a, s, axes, norm)


@by_numpy()
def rfft2(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Array:
    """The transform of real numbers over two axes: of the last, the half that the other is conjugate to.

    >>> rfft2(filling.full((2, 4), 1.0)).shape
    (2, 3)
    """
    return _transform_two_axes("rfft2", FftType.RFFT, a, s, axes, norm)


@by_numpy()
def irfft2(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Array:
    """The inverse of `rfft2`. `s` are lengths of real numbers, by default an even one of the last axis.

    >>> irfft2(filling.full((2, 3), 1.0)).shape
    (2, 4)
    """
    return _transform_two_axes("irfft2", FftType.IRFFT, a, s, axes, norm)


def _transform_two_axes(
    name: str, kind: FftType, a: ArrayLike, s: Sequence[int] | None, axes: Sequence[int], norm: str | None
) -> Array:
    if len(axes) != 2:
        raise ValueError(f"{name}: axes must be two axes, got {axes!r}; {name[:-1]}n takes any number of them")
    return _transform_axes(name, kind, as_operand(a, f"{name}: a"), s, axes, norm)


# ------------------------------------------------------------------ over any axes


@by_numpy()
def fftn(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """The transform of `a` over `axes`, of the lengths `s`: by default over all, or over the last ones for which there
    are lengths.

    >>> fftn(filling.full((1, 2, 2), 1.0)).tolist()
    [[[(4+0j), 0j], [0j, 0j]]]
    """
    return _transform_axes("fftn", FftType.FFT, as_operand(a, "fftn: a"), s, axes, norm)


@by_numpy()
def ifftn(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """The inverse of `fftn`.

    >>> ifftn(filling.full((1, 2, 2), 1.0)).tolist()
    [[[(1+0j), 0j], [0j, 0j]]]
    """
    return _transform_axes("ifftn", FftType.IFFT, as_operand(a, "ifftn: a"), s, axes, norm)


@by_numpy()
def rfftn(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """The transform of real numbers over `axes`: of the last, the half that the other is conjugate to.

    >>> rfftn(filling.full((1, 2, 4), 1.0)).shape
    (1, 2, 3)
    """
    return _transform_axes("rfftn", FftType.RFFT, as_operand(a, "rfftn: a"), s, axes, norm)


@by_numpy()
def irfftn(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """The inverse of `rfftn`. `s` are lengths of real numbers, by default an even one of the last axis.

    >>> irfftn(filling.full((1, 2, 3), 1.0)).shape
    (1, 2, 4)
    """
    return _transform_axes("irfftn", FftType.IRFFT, as_operand(a, "irfftn: a"), s, axes, norm)


def _transform_axes(
    name: str, kind: FftType, x: Value, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str | None
) -> Array:
    ndim = x.aval.ndim
    if norm not in (None, "backward"):
        _require_norm(name, norm)
    given = None if s is None else static_ints(name, s, "s")
    if given is not None and any(n <= 0 for n in given):
        raise ValueError(f"{name}: lengths must be positive, got {given}")
    if axes is None:
        count = ndim if given is None else len(given)
        if count > ndim:
            raise ValueError(f"{name}: there are {count} lengths {given}, but {x.aval} has {ndim} axes")
        along = tuple(range(ndim - count, ndim))
    else:
        along = canonicalize_axes(name, axes, ndim, "axes")
    if given is not None and len(given) != len(along):
        raise ValueError(f"{name}: s {given} and axes {along} must have equally many entries")
    before = [i for i in range(ndim) if i not in along]
    order = (*before, *along)
    moved = structural.transpose(x, order)
    lengths = _transform_lengths(kind, moved.aval.shape[len(before) :], given)
    if given is not None:
        halved = (*lengths[:-1], lengths[-1] // 2 + 1) if kind is FftType.IRFFT else lengths
        moved = _crop_or_pad(moved, (*moved.aval.shape[: len(before)], *halved))
    out = _transform_last_axes(moved, kind, lengths)
    scale = _scale(kind, math.prod(lengths), norm)
    if scale != 1.0:
        out = multiply(out, scale)
    return structural.transpose(out, sorted(range(ndim), key=order.__getitem__))


def _require_norm(name: str, norm: str | None) -> str:
    if norm not in ("backward", "ortho", "forward"):
        raise ValueError(f"{name}: norm must be 'backward', 'ortho' or 'forward', got {norm!r}")
    return norm


def _transform_lengths(kind: FftType, sizes: Shape, given: Shape | None) -> Shape:
    if given is not None:
        return given
    if kind is FftType.IRFFT and sizes:
        return (*sizes[:-1], max(0, 2 * (sizes[-1] - 1)))
    return sizes


def _crop_or_pad(x: Array, shape: Shape) -> Array:
    """Cut off, or filled up with zeros, at the ends of axes."""
    if x.aval.shape == shape:
        return x
    ends = [(0, m - n, 0) for n, m in zip(x.aval.shape, shape, strict=True)]
    return slicing.pad(x, array_creation.zero(x.aval), ends)


def _scale(kind: FftType, count: int, norm: str | None) -> float:
    """What the result is multiplied by: the operation itself divides if it is inverse."""
    if norm in (None, "backward") or not count:
        return 1.0
    root = math.sqrt(count) if norm == "ortho" else float(count)
    return root if kind in (FftType.IFFT, FftType.IRFFT) else 1 / root


def _transform_last_axes(x: Array, kind: FftType, lengths: Shape) -> Array:
    """Over the last axes. The operation has no more than three at once."""
    if len(lengths) <= 3:
        return fourier.fft(x, kind, lengths)
    outer, inner = lengths[:-3], lengths[-3:]
    before, ndim = x.aval.ndim - len(lengths), x.aval.ndim
    first = before + len(outer)
    outer_last = (*range(before), *range(first, ndim), *range(before, first))
    back = sorted(range(ndim), key=outer_last.__getitem__)
    if kind in (FftType.FFT, FftType.RFFT):
        x = structural.transpose(fourier.fft(x, kind, inner), outer_last)
        return structural.transpose(_transform_last_axes(x, FftType.FFT, outer), back)
    x = _transform_last_axes(_to_complex(structural.transpose(x, outer_last)), FftType.IFFT, outer)
    return fourier.fft(structural.transpose(x, back), kind, inner)


# ------------------------------------------------------------------ frequencies


@by_numpy(arrays=0)
def fftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: DeviceOrSharding | None = None
) -> Array:
    """The frequencies of the numbers that `fft` gives for `n` samples `d` apart: from 0 up, then the negative ones.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    count = _sample_count("fftfreq", n, d)
    return _frequencies(count, count, True, d, dtype, device)


@by_numpy(arrays=0)
def rfftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: DeviceOrSharding | None = None
) -> Array:
    """The frequencies of the numbers that `rfft` gives for `n` samples `d` apart.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    count = _sample_count("rfftfreq", n, d)
    return _frequencies(count, count // 2 + 1, False, d, dtype, device)


def _sample_count(name: str, n: SupportsIndex, d: ArrayLike) -> int:
    for argument, x in (("n", n), ("d", d)):
        if isinstance(x, list | tuple):
            raise ValueError(f"{name}: {argument} must be one number, got {x!r}")
    count = static_int(name, n, "n")
    if count < 0:
        raise ValueError(f"{name}: n counts samples, got {count}")
    return count


def _frequencies(
    n: int, size: int, wraps: bool, d: ArrayLike, dtype: DTypeLike | None, device: DeviceOrSharding | None
) -> Array:
    asked = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    exact = dtypes.real_dtype(inexact_dtype(asked))
    k = array_creation.iota(exact, size)
    if wraps:
        k = where(k < (n + 1) // 2, k, k - n)
    span = d * n if isinstance(d, int | float) else multiply(d, n)
    out = astype(astype(divide(k, span), exact), asked)
    return out if device is None else device_put(out, device)


@by_numpy()
def fftshift(x: ArrayLike, axes: AxisLike = None) -> Array:
    """Numbers in the order of `fftfreq` put in increasing order of frequencies, along `axes`, by default all.

    >>> fftshift(fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _roll_by_half("fftshift", x, axes, 1)


@by_numpy()
def ifftshift(x: ArrayLike, axes: AxisLike = None) -> Array:
    """The inverse of `fftshift`.

    >>> ifftshift(fftshift(fftfreq(4))).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    return _roll_by_half("ifftshift", x, axes, -1)


def _roll_by_half(name: str, x: ArrayLike, axes: AxisLike, sign: int) -> Array:
    value = as_operand(x, f"{name}: x")
    ndim, sizes = value.aval.ndim, value.aval.shape
    if axes is None:
        along = tuple(range(ndim))
    else:
        along = normalize_axes(name, axes, ndim, "axes")
    return roll(value, [sign * (sizes[i] // 2) for i in along], along)
