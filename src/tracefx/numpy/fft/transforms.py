"""Discrete Fourier transforms along one, two or any axes, their frequencies, and shifts of these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsIndex

from tracefx.core import Array, ArrayLike, AxisLike, DTypeLike, Shape, Value, dtypes
from tracefx.core.sharding import DeviceOrSharding
from tracefx.numpy.operand_promotion import as_operand, inexact_dtype
from tracefx.numpy.repeating import roll
from tracefx.numpy.shapes import astype, normalize_axes
from tracefx.numpy.ufuncs import divide, multiply, where
from tracefx.ops import fourier, structural
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.fourier import FftType
from tracefx.ops.shape import array_creation, slicing
from tracefx.ops.static_integers import canonicalize_axes, static_count, static_ints
from tracefx.transforms.devices import device_put
from tracefx.transforms.eager_calls import eager_cached

# ------------------------------------------------------------------ along one axis


@eager_cached
def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Returns the discrete Fourier transform of `a` along an axis.

    Args:
        a: The array.
        n: The length of the transform; the axis is cropped or padded with zeros to it. None means the axis's size.
        axis: The axis.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of complex numbers, of size `n` along the axis.

    Raises:
        ValueError: If `norm` is unknown or `n` is not positive.

    >>> import numpy as np
    >>> fft(1.0 + np.arange(2.0))
    Array([ 3.+0.j, -1.+0.j], dtype=complex64)
    """
    return _transform_axis("fft", FftType.FFT, a, n, axis, norm)


@eager_cached
def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Returns the inverse of `fft`.

    Args:
        a: The array.
        n: The length of the transform; the axis is cropped or padded with zeros to it. None means the axis's size.
        axis: The axis.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of complex numbers, of size `n` along the axis.

    Raises:
        ValueError: If `norm` is unknown or `n` is not positive.

    >>> import numpy as np
    >>> ifft(fft(np.arange(2.0)))
    Array([0.+0.j, 1.+0.j], dtype=complex64)
    """
    return _transform_axis("ifft", FftType.IFFT, a, n, axis, norm)


@eager_cached
def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Returns the transform of a real array: its first `n // 2 + 1` elements, of which the others are conjugates.

    Args:
        a: The array, of real numbers.
        n: The length of the transform; the axis is cropped or padded with zeros to it. None means the axis's size.
        axis: The axis.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of complex numbers, of size `n // 2 + 1` along the axis.

    Raises:
        ValueError: If `norm` is unknown, `n` is not positive, or `a` is complex.

    >>> import numpy as np
    >>> rfft(np.arange(4.0)).shape
    (3,)
    """
    return _transform_axis("rfft", FftType.RFFT, a, n, axis, norm)


@eager_cached
def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Returns the inverse of `rfft`.

    Args:
        a: The first half of the transform.
        n: The length of the result along the axis; None means `2 * (size - 1)`.
        axis: The axis.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of floats, of size `n` along the axis.

    Raises:
        ValueError: If `norm` is unknown or `n` is not positive.

    >>> import numpy as np
    >>> irfft(rfft(np.arange(4.0)))
    Array([0., 1., 2., 3.], dtype=float32)
    """
    return _transform_axis("irfft", FftType.IRFFT, a, n, axis, norm)


@eager_cached
def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Returns the transform, which is real, of a Hermitian signal: `a` is its first half, the rest conjugates.

    Args:
        a: The first half of the signal.
        n: The length of the result along the axis; None means `2 * (size - 1)`.
        axis: The axis.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of floats, of size `n` along the axis.

    Raises:
        ValueError: If `norm` is unknown or `n` is not positive.

    >>> import numpy as np
    >>> hfft(np.arange(2.0))
    Array([ 1., -1.], dtype=float32)
    """
    conjugate = complex_numbers.conj(_to_complex(as_operand(a, "hfft: a")))
    return _transform_axis("hfft", FftType.IRFFT, conjugate, n, axis, _inverse_norm("hfft", norm))


@eager_cached
def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Returns the inverse of `hfft`.

    Args:
        a: The array, of real numbers.
        n: The length of the transform; the axis is cropped or padded with zeros to it. None means the axis's size.
        axis: The axis.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of complex numbers, of size `n // 2 + 1` along the axis.

    Raises:
        ValueError: If `norm` is unknown, `n` is not positive, or `a` is complex.

    >>> import numpy as np
    >>> ihfft(hfft(np.arange(3.0)))
    Array([0.-0.j, 1.-0.j, 2.-0.j], dtype=complex64)
    """
    return complex_numbers.conj(_transform_axis("ihfft", FftType.RFFT, a, n, axis, _inverse_norm("ihfft", norm)))


def _to_complex(x: Value) -> Array:
    return structural.convert(x, complex_numbers.complex_dtype(inexact_dtype(x.aval.dtype)))


def _inverse_norm(name: str, norm: str | None) -> str:
    """Returns the `norm` with forward and backward exchanged, for a forward transform computed as an inverse one."""
    swapped = {"backward": "forward", "forward": "backward", "ortho": "ortho"}.get(norm or "backward")
    return _require_norm(name, norm) if swapped is None else swapped


def _transform_axis(name: str, kind: FftType, a: ArrayLike, n: int | None, axis: int | None, norm: str | None) -> Array:
    if isinstance(axis, Sequence):
        raise ValueError(f"{name}: axis must be one integer, got {axis!r}; {name}n takes several axes")
    x = as_operand(a, f"{name}: a")
    return _transform_axes(name, kind, x, None if n is None else (n,), None if axis is None else (axis,), norm)


# ------------------------------------------------------------------ over two axes


@eager_cached
def fft2(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Array:
    """Returns the discrete Fourier transform of `a` over two axes.

    Args:
        a: The array.
        s: The lengths of the transform; axes are cropped or padded with zeros to them. None means the axes' sizes.
        axes: The two axes.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of complex numbers, of sizes `s` along the axes.

    Raises:
        ValueError: If `norm` is unknown, or `s` and `axes` do not fit.

    >>> import numpy as np
    >>> fft2(np.ones((2, 2))).tolist()
    [[(4+0j), 0j], [0j, 0j]]
    """
    return _transform_two_axes("fft2", FftType.FFT, a, s, axes, norm)


@eager_cached
def ifft2(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Array:
    """Returns the inverse of `fft2`.

    Args:
        a: The array.
        s: The lengths of the transform; axes are cropped or padded with zeros to them. None means the axes' sizes.
        axes: The two axes.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of complex numbers, of sizes `s` along the axes.

    Raises:
        ValueError: If `norm` is unknown, or `s` and `axes` do not fit.

    >>> import numpy as np
    >>> ifft2(np.ones((2, 2))).tolist()
    [[(1+0j), 0j], [0j, 0j]]
    """
    return _transform_two_axes("ifft2", FftType.IFFT, a, s, axes, norm)


@eager_cached
def rfft2(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Array:
    """Returns the transform of a real array over two axes: the first half of the last axis.

    Args:
        a: The array, of real numbers.
        s: The lengths of the transform; axes are cropped or padded with zeros to them. None means the axes' sizes.
        axes: The two axes.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of complex numbers, of size `s[-1] // 2 + 1` along the last of the axes.

    Raises:
        ValueError: If `norm` is unknown, `s` and `axes` do not fit, or `a` is complex.

    >>> import numpy as np
    >>> rfft2(np.ones((2, 4))).shape
    (2, 3)
    """
    return _transform_two_axes("rfft2", FftType.RFFT, a, s, axes, norm)


@eager_cached
def irfft2(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Array:
    """Returns the inverse of `rfft2`.

    Args:
        a: The first half of the transform.
        s: The lengths of the result along the axes; None means the axes' sizes, for the last `2 * (size - 1)`.
        axes: The two axes.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of floats, of sizes `s` along the axes.

    Raises:
        ValueError: If `norm` is unknown, or `s` and `axes` do not fit.

    >>> import numpy as np
    >>> irfft2(np.ones((2, 3))).shape
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


@eager_cached
def fftn(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """Returns the discrete Fourier transform of `a` over axes.

    Args:
        a: The array.
        s: The lengths of the transform; axes are cropped or padded with zeros to them. None means the axes' sizes.
        axes: The axes; None means as many of the last axes as `s` has lengths, or all.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of complex numbers, of sizes `s` along the axes.

    Raises:
        ValueError: If `norm` is unknown, or `s` and `axes` do not fit.

    >>> import numpy as np
    >>> fftn(np.ones((1, 2, 2))).tolist()
    [[[(4+0j), 0j], [0j, 0j]]]
    """
    return _transform_axes("fftn", FftType.FFT, as_operand(a, "fftn: a"), s, axes, norm)


@eager_cached
def ifftn(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """Returns the inverse of `fftn`.

    Args:
        a: The array.
        s: The lengths of the transform; axes are cropped or padded with zeros to them. None means the axes' sizes.
        axes: The axes; None means as many of the last axes as `s` has lengths, or all.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of complex numbers, of sizes `s` along the axes.

    Raises:
        ValueError: If `norm` is unknown, or `s` and `axes` do not fit.

    >>> import numpy as np
    >>> ifftn(np.ones((1, 2, 2))).tolist()
    [[[(1+0j), 0j], [0j, 0j]]]
    """
    return _transform_axes("ifftn", FftType.IFFT, as_operand(a, "ifftn: a"), s, axes, norm)


@eager_cached
def rfftn(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """Returns the transform of a real array over axes: the first half of the last axis.

    Args:
        a: The array, of real numbers.
        s: The lengths of the transform; axes are cropped or padded with zeros to them. None means the axes' sizes.
        axes: The axes; None means as many of the last axes as `s` has lengths, or all.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of complex numbers, of size `s[-1] // 2 + 1` along the last of the axes.

    Raises:
        ValueError: If `norm` is unknown, `s` and `axes` do not fit, or `a` is complex.

    >>> import numpy as np
    >>> rfftn(np.ones((1, 2, 4))).shape
    (1, 2, 3)
    """
    return _transform_axes("rfftn", FftType.RFFT, as_operand(a, "rfftn: a"), s, axes, norm)


@eager_cached
def irfftn(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """Returns the inverse of `rfftn`.

    Args:
        a: The first half of the transform.
        s: The lengths of the result along the axes; None means the axes' sizes, for the last `2 * (size - 1)`.
        axes: The axes; None means as many of the last axes as `s` has lengths, or all.
        norm: The normalization: None or `"backward"`, `"ortho"` or `"forward"`.

    Returns:
        An array of floats, of sizes `s` along the axes.

    Raises:
        ValueError: If `norm` is unknown, or `s` and `axes` do not fit.

    >>> import numpy as np
    >>> irfftn(np.ones((1, 2, 3))).shape
    (1, 2, 4)
    """
    return _transform_axes("irfftn", FftType.IRFFT, as_operand(a, "irfftn: a"), s, axes, norm)


def _transform_axes(
    name: str, kind: FftType, x: Value, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str | None
) -> Array:
    ndim = x.aval.ndim
    if norm not in (None, "backward"):
        _require_norm(name, norm)
    sizes = None if s is None else static_ints(name, s, "s")
    if sizes is not None and any(n <= 0 for n in sizes):
        raise ValueError(f"{name}: lengths must be positive, got {sizes}")
    if axes is None:
        count = ndim if sizes is None else len(sizes)
        if count > ndim:
            raise ValueError(f"{name}: there are {count} lengths {sizes}, but {x.aval} has {ndim} axes")
        along = tuple(range(ndim - count, ndim))
    else:
        along = canonicalize_axes(name, axes, ndim, "axes")
    if sizes is not None and len(sizes) != len(along):
        raise ValueError(f"{name}: s {sizes} and axes {along} must have equally many entries")
    before = [i for i in range(ndim) if i not in along]
    order = (*before, *along)
    moved = structural.transpose(x, order)
    lengths = _transform_lengths(kind, moved.aval.shape[len(before) :], sizes)
    if sizes is not None:
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


def _transform_lengths(kind: FftType, sizes: Shape, s: Shape | None) -> Shape:
    """Returns the lengths of the transform: those given, or those that follow from the sizes of the axes."""
    if s is not None:
        return s
    if kind is FftType.IRFFT and sizes:
        return (*sizes[:-1], max(0, 2 * (sizes[-1] - 1)))
    return sizes


def _crop_or_pad(x: Array, shape: Shape) -> Array:
    """Crops axes at their end, or pads them with zeros there, to a shape."""
    if x.aval.shape == shape:
        return x
    ends = [(0, m - n, 0) for n, m in zip(x.aval.shape, shape, strict=True)]
    return slicing.pad(x, array_creation.zero(x.aval), ends)


def _scale(kind: FftType, count: int, norm: str | None) -> float:
    """Returns the factor of the result; the inverse operation divides by the count itself."""
    if norm in (None, "backward") or not count:
        return 1.0
    root = math.sqrt(count) if norm == "ortho" else float(count)
    return root if kind in (FftType.IFFT, FftType.IRFFT) else 1 / root


def _transform_last_axes(x: Array, kind: FftType, lengths: Shape) -> Array:
    """Transforms the last axes; the operation transforms at most three at once."""
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


@eager_cached
def fftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: DeviceOrSharding | None = None
) -> Array:
    """Returns the frequencies of the elements of `fft`: from 0 up, then the negative ones.

    Args:
        n: The number of samples.
        d: The spacing of the samples.
        dtype: The dtype of the result; None means the default float.
        device: The device or sharding of the result; None means the default.

    Returns:
        A vector of `n` floats.

    Raises:
        ValueError: If `n` is negative.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    count = _sample_count("fftfreq", n, d)
    return _frequencies(count, count, True, d, dtype, device)


@eager_cached
def rfftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: DeviceOrSharding | None = None
) -> Array:
    """Returns the frequencies of the elements of `rfft`, from 0 up.

    Args:
        n: The number of samples.
        d: The spacing of the samples.
        dtype: The dtype of the result; None means the default float.
        device: The device or sharding of the result; None means the default.

    Returns:
        A vector of `n // 2 + 1` floats.

    Raises:
        ValueError: If `n` is negative.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    count = _sample_count("rfftfreq", n, d)
    return _frequencies(count, count // 2 + 1, False, d, dtype, device)


def _sample_count(name: str, n: SupportsIndex, d: ArrayLike) -> int:
    for argument, x in (("n", n), ("d", d)):
        if isinstance(x, list | tuple):
            raise ValueError(f"{name}: {argument} must be one number, got {x!r}")
    count = static_count(name, n, "n")
    return count


def _frequencies(
    n: int, size: int, wraps: bool, d: ArrayLike, dtype: DTypeLike | None, device: DeviceOrSharding | None
) -> Array:
    requested = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    exact = dtypes.real_dtype(inexact_dtype(requested))
    k = array_creation.iota(exact, size)
    if wraps:
        k = where(k < (n + 1) // 2, k, k - n)
    span = d * n if isinstance(d, int | float) else multiply(d, n)
    out = astype(astype(divide(k, span), exact), requested)
    return out if device is None else device_put(out, device)


@eager_cached
def fftshift(x: ArrayLike, axes: AxisLike = None) -> Array:
    """Reorders elements from the order of `fftfreq` to increasing frequencies.

    Args:
        x: The array.
        axes: The axis or axes; None means all.

    Returns:
        An array of the shape and dtype of `x`.

    >>> fftshift(fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _roll_by_half("fftshift", x, axes, 1)


@eager_cached
def ifftshift(x: ArrayLike, axes: AxisLike = None) -> Array:
    """Reverts `fftshift`: reorders elements from increasing frequencies to the order of `fftfreq`.

    Args:
        x: The array.
        axes: The axis or axes; None means all.

    Returns:
        An array of the shape and dtype of `x`.

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
