"""Discrete cosine transforms of type 2, and their inverses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import SupportsIndex

from tracefx.core import Array, ArrayLike, Value, dtypes
from tracefx.numpy import fft as fourier
from tracefx.numpy.operand_promotion import as_operand, inexact_dtype
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, elementwise, transcendental
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.shape import array_creation, shape, slicing
from tracefx.ops.static_integers import canonicalize_axes, static_int, static_ints

__all__ = ["dct", "dctn", "idct", "idctn"]

AxisTransform = Callable[[Array, int, bool], Array]
"""A transform of an array along an axis; the boolean says whether it is orthonormal."""


def dct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Computes the discrete cosine transform of type 2 along an axis.

    It is `2 * sum(x[j] * cos(pi * k * (2 * j + 1) / (2 * n)))` for `k < n`. With `norm="ortho"` it is divided by
    `sqrt(2 * n)`, and at `k = 0` also by `sqrt(2)`, which makes it orthonormal.

    Args:
        x: an array of numbers; integers are converted to floats.
        type: must be 2.
        n: the length; the axis is truncated or padded with zeros. By default its own size.
        axis: the axis to transform.
        norm: None or `"backward"`, or `"ortho"` for the orthonormal transform.

    Returns:
        The transform, of size `n` along the axis.

    Raises:
        NotImplementedError: if `type` is not 2.
        ValueError: if `norm` is unknown, or lengths and axes do not match.

    >>> dct(array_creation.full((2,), 1.0))
    Array([4., 0.], dtype=float32)
    """
    value = _check_arguments("dct", x, type, norm)
    return _transform_axes("dct", _dct_axis, value, None if n is None else (n,), (axis,), norm)


def dctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | int | None = None,
    axes: Sequence[int] | int | None = None,
    norm: str | None = None,
) -> Array:
    """Computes the discrete cosine transform of type 2 along several axes.

    Args:
        x: an array of numbers; integers are converted to floats.
        type: must be 2.
        s: the length for each axis; axes are truncated or padded with zeros. By default their own sizes.
        axes: the axes to transform; by default the last `len(s)` axes, or all.
        norm: None or `"backward"`, or `"ortho"` for the orthonormal transform.

    Returns:
        The transform, of sizes `s` along the axes.

    Raises:
        NotImplementedError: if `type` is not 2.
        ValueError: if `norm` is unknown, or lengths and axes do not match.

    >>> dctn(array_creation.full((2, 2), 1.0)).tolist()
    [[16.0, 0.0], [0.0, 0.0]]
    """
    return _transform_axes("dctn", _dct_axis, _check_arguments("dctn", x, type, norm), s, axes, norm)


def idct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Computes the inverse of `dct` along an axis.

    Args:
        x: an array of numbers; integers are converted to floats.
        type: must be 2.
        n: the length; the axis is truncated or padded with zeros. By default its own size.
        axis: the axis to transform.
        norm: None or `"backward"`, or `"ortho"` for the orthonormal transform.

    Returns:
        The inverse transform, of size `n` along the axis.

    Raises:
        NotImplementedError: if `type` is not 2.
        ValueError: if `norm` is unknown, or lengths and axes do not match.

    >>> idct(dct(array_creation.full((2,), 1.0)))
    Array([1., 1.], dtype=float32)
    """
    value = _check_arguments("idct", x, type, norm)
    return _transform_axes("idct", _idct_axis, value, None if n is None else (n,), (axis,), norm)


def idctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | int | None = None,
    axes: Sequence[int] | int | None = None,
    norm: str | None = None,
) -> Array:
    """Computes the inverse of `dctn` along several axes.

    Args:
        x: an array of numbers; integers are converted to floats.
        type: must be 2.
        s: the length for each axis; axes are truncated or padded with zeros. By default their own sizes.
        axes: the axes to transform; by default the last `len(s)` axes, or all.
        norm: None or `"backward"`, or `"ortho"` for the orthonormal transform.

    Returns:
        The inverse transform, of sizes `s` along the axes.

    Raises:
        NotImplementedError: if `type` is not 2.
        ValueError: if `norm` is unknown, or lengths and axes do not match.

    >>> idctn(dctn(array_creation.full((2, 2), 1.0))).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _transform_axes("idctn", _idct_axis, _check_arguments("idctn", x, type, norm), s, axes, norm)


def _check_arguments(name: str, x: ArrayLike, type: int, norm: str | None) -> Value:
    """Checks `type` and `norm`, and returns `x` as a value."""
    value = as_operand(x, f"{name}: x")
    if type != 2:
        raise NotImplementedError(f"{name}: type must be 2, got {type!r}: other types are not supported")
    if norm not in (None, "backward", "ortho"):
        raise ValueError(f"{name}: norm must be None, 'backward' or 'ortho', got {norm!r}")
    return value


def _transform_axes(
    name: str,
    transform: AxisTransform,
    x: Value,
    s: Sequence[int] | SupportsIndex | None,
    axes: Sequence[int] | SupportsIndex | None,
    norm: str | None,
) -> Array:
    """Applies a transform along several axes, to the real and imaginary parts of complex arrays separately."""
    if dtypes.is_complex(x.aval.dtype):
        parts = [
            _transform_axes(name, transform, part(x), s, axes, norm)
            for part in (complex_numbers.real, complex_numbers.imag)
        ]
        return complex_numbers.complex(*parts)
    ndim = x.aval.ndim
    sizes = None if s is None else _static_int_tuple(name, s, "s")
    if sizes is not None and len(sizes) > ndim:
        raise ValueError(f"{name}: there are {len(sizes)} lengths {sizes}, but {x.aval} has {ndim} axes")
    if axes is not None:
        canonical_axes = canonicalize_axes(name, _static_int_tuple(name, axes, "axes"), ndim, "axes")
    else:
        canonical_axes = tuple(range(0 if sizes is None else ndim - len(sizes), ndim))
    if sizes is not None:
        if len(sizes) != len(canonical_axes):
            raise ValueError(f"{name}: s {sizes} and axes {canonical_axes} must have equal lengths")
        x = _crop_or_pad(name, x, dict(zip(canonical_axes, sizes, strict=True)))
    out = structural.convert(x, dtypes.real_dtype(complex_numbers.complex_dtype(inexact_dtype(x.aval.dtype))))
    for axis in canonical_axes:
        out = transform(out, axis, norm == "ortho")
    return out


def _static_int_tuple(name: str, x: Sequence[int] | SupportsIndex, argument: str) -> tuple[int, ...]:
    return static_ints(name, x, argument) if isinstance(x, Sequence) else (static_int(name, x, argument),)


def _crop_or_pad(name: str, x: Value, sizes: Mapping[int, int]) -> Value:
    """Truncates axes, or pads them with zeros, to the given sizes."""
    if any(n < 1 for n in sizes.values()):
        raise ValueError(f"{name}: lengths must be positive, got {tuple(sizes.values())}")
    ends = [(0, sizes.get(i, n) - n, 0) for i, n in enumerate(x.aval.shape)]
    return slicing.pad(x, array_creation.zero(x.aval), ends) if any(end for _, end, _ in ends) else x


# ------------------------------------------------------------------ along one axis
#
# By a complex FFT of the same length: Makhoul, A fast cosine transform in one and two dimensions (1980).


def _dct_axis(x: Array, axis: int, keeps_length: bool) -> Array:
    n = x.aval.shape[axis]
    if not n:
        return x
    spectrum = fourier.fft(_even_odd_order(x, axis), axis=axis)
    out = complex_numbers.real(arithmetic.mul(spectrum, _twiddle_factors(spectrum, axis, -1)))
    return arithmetic.mul(out, _ortho_factors(out, axis) if keeps_length else 2.0)


def _idct_axis(x: Array, axis: int, keeps_length: bool) -> Array:
    n = x.aval.shape[axis]
    if not n:
        return x
    halved = arithmetic.mul(x, _inverse_factors(x, axis, keeps_length))
    turned = structural.convert(halved, complex_numbers.complex_dtype(x.aval.dtype))
    out = fourier.ifft(arithmetic.mul(turned, _twiddle_factors(turned, axis, 1)), axis=axis)
    return _undo_even_odd_order(complex_numbers.real(out), axis)


def _even_odd_order(x: Array, axis: int) -> Array:
    """Puts the elements at even indices first, followed by those at odd indices in reverse order."""
    odd = shape.rev(_slice_every_second(x, axis, 1), (axis,))
    return shape.concatenate([_slice_every_second(x, axis, 0), odd], axis)


def _undo_even_odd_order(x: Array, axis: int) -> Array:
    """Undoes `_even_odd_order`."""
    n = x.aval.shape[axis]
    if n == 1:
        return x
    half = -(-n // 2)
    even = slicing.slice_axis(x, 0, half, axis)
    odd = shape.rev(slicing.slice_axis(x, half, n, axis), (axis,))
    zero = array_creation.zero(x.aval)
    spread = [(0, 0, 0)] * x.aval.ndim
    spread[axis] = (0, 1 - n % 2, 1)
    evens = slicing.pad(even, zero, spread)
    spread[axis] = (1, n % 2, 1)
    return elementwise.add(evens, slicing.pad(odd, zero, spread))


def _slice_every_second(x: Array, axis: int, start: int) -> Array:
    ndim, sizes = x.aval.ndim, x.aval.shape
    starts, steps = [0] * ndim, [1] * ndim
    starts[axis], steps[axis] = min(start, sizes[axis]), 2
    return slicing.slice(x, starts, sizes, steps)


def _twiddle_factors(x: Array, axis: int, sign: int) -> Array:
    """Returns `exp(sign * 1j * pi * k / (2 * n))` along the axis of `x`."""
    n, part = x.aval.shape[axis], dtypes.real_dtype(x.aval.dtype)
    angles = arithmetic.mul(array_creation.iota(part, n), sign * math.pi / (2 * n))
    factors = complex_numbers.complex(transcendental.cos(angles), transcendental.sin(angles))
    return structural.broadcast_in_dim(factors, x.aval.shape, (axis,))


def _ortho_factors(x: Array, axis: int) -> Array:
    """Returns the factors that make the transform orthonormal."""
    n = x.aval.shape[axis]
    return _factors_along(x, axis, math.sqrt(1 / n), math.sqrt(2 / n))


def _inverse_factors(x: Array, axis: int, keeps_length: bool) -> Array:
    """Returns the factors of the inverse transform."""
    n = x.aval.shape[axis]
    return _factors_along(x, axis, *(math.sqrt(n), math.sqrt(2 * n)) if keeps_length else (0.5, 1.0))


def _factors_along(x: Array, axis: int, first: float, rest: float) -> Array:
    dtype, n = x.aval.dtype, x.aval.shape[axis]
    factors = shape.concatenate(
        [array_creation.full((1,), first, dtype), array_creation.full((n - 1,), rest, dtype)], 0
    )
    return structural.broadcast_in_dim(factors, x.aval.shape, (axis,))
