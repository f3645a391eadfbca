"""Convolutions and correlations of arrays of any rank, directly or by FFTs."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import SupportsIndex

from tracefx.core import Array, ArrayLike, Shape, Value, as_value, dtypes
from tracefx.numpy import fft
from tracefx.numpy.complex_parts import conjugate
from tracefx.numpy.convolution import sliding_dot
from tracefx.numpy.operand_promotion import convert_dtype, inexact_dtype, promote_dtypes
from tracefx.numpy.shapes import flip
from tracefx.numpy.ufuncs import multiply
from tracefx.ops.contractions.contraction import PrecisionLike
from tracefx.ops.shape import slicing
from tracefx.ops.static_integers import canonicalize_axes

_MODES = ("full", "same", "valid")


def _check_mode(name: str, mode: str) -> None:
    if mode not in _MODES:
        raise ValueError(f"{name}: mode must be 'full', 'same' or 'valid', got {mode!r}")


def _operands(name: str, in1: ArrayLike, in2: ArrayLike) -> tuple[Value, Value]:
    """Promotes the operands to one inexact dtype and checks that their ranks agree."""
    x, y = promote_dtypes(name, in1, in2)
    if x.aval.ndim != y.aval.ndim:
        raise ValueError(f"{name}: operands must have the same number of axes, got {x.aval} and {y.aval}")
    dtype, weak = inexact_dtype(x.aval.dtype), x.aval.weak_type
    return convert_dtype(x, dtype, weak), convert_dtype(y, dtype, weak)


def _all_at_least(left: Shape, right: Shape) -> bool:
    return builtins.all(n >= m for n, m in zip(left, right, strict=True))


def _convolve_direct(name: str, in1: ArrayLike, in2: ArrayLike, mode: str, precision: PrecisionLike) -> Array:
    _check_mode(name, mode)
    x, y = _operands(name, in1, in2)
    if not (x.aval.size and y.aval.size):
        raise ValueError(f"{name}: operands must have elements, got {x.aval} and {y.aval}")
    second = y.aval.shape
    if _all_at_least(y.aval.shape, x.aval.shape):
        x, y = y, x
    elif not _all_at_least(x.aval.shape, y.aval.shape):
        raise ValueError(
            f"{name}: one operand must be at least as large as the other along all axes, got {x.aval} and {y.aval}"
        )
    window = y.aval.shape
    match mode:
        case "valid":
            padding = [(0, 0)] * len(window)
        case "same":  # the central part of the shape of in1, whichever operand is the window
            padding = [(n - 1 - (m - 1) // 2, n - m + (m - 1) // 2) for n, m in zip(window, second, strict=True)]
        case _:
            padding = [(n - 1, n - 1) for n in window]
    return sliding_dot(x, slicing.rev(y, tuple(range(len(window)))), padding, precision)


def convolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """Convolves two arrays over all axes.

    Args:
        in1: the first operand.
        in2: the second operand, of the same rank.
        mode: `"full"`; `"same"`, the central part of the shape of `in1`; or `"valid"`, the part where one operand lies
            entirely within the other.
        method: `"direct"` or `"auto"`, which mean the same; or `"fft"`, see `fftconvolve`.
        precision: the precision of the products, as in `lax.conv_general_dilated`.

    Returns:
        The convolution, an array of floats or complex numbers.

    Raises:
        ValueError: if `mode` is unknown, an operand is empty, ranks differ, or neither operand is at least as large as
            the other along all axes.

    >>> import numpy as np
    >>> convolve(np.array([1, 2, 3]), np.array([1, 1]), mode="same")
    Array([1., 3., 5.], dtype=float32)
    """
    match method:
        case "fft":
            return fftconvolve(in1, in2, mode)
        case "direct" | "auto":
            return _convolve_direct("convolve", in1, in2, mode, precision)
        case _:
            raise ValueError(f"convolve: method must be 'auto', 'direct' or 'fft', got {method!r}")


def _check_2d(name: str, in1: ArrayLike, in2: ArrayLike, boundary: str, fillvalue: object) -> tuple[Value, Value]:
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(
            f"{name}: operands are padded with zeros: boundary must be 'fill' and fillvalue 0, got {boundary!r} "
            f"and {fillvalue!r}"
        )
    x, y = as_value(in1, "in1"), as_value(in2, "in2")
    if x.aval.ndim != 2 or y.aval.ndim != 2:
        raise ValueError(f"{name}: operands must have two axes, got {x.aval} and {y.aval}")
    return x, y


def convolve2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: PrecisionLike = None,
) -> Array:
    """Convolves two matrices.

    Args:
        in1: a matrix.
        in2: a matrix.
        mode: `"full"`; `"same"`, the central part of the shape of `in1`; or `"valid"`, the part where one operand lies
            entirely within the other.
        boundary: must be `"fill"`.
        fillvalue: must be 0.
        precision: the precision of the products, as in `lax.conv_general_dilated`.

    Returns:
        The convolution, an array of floats or complex numbers.

    Raises:
        NotImplementedError: if `boundary` or `fillvalue` is not supported.
        ValueError: if an operand is not a matrix, and for the reasons that `convolve` has.

    >>> import numpy as np
    >>> convolve2d(np.ones((2, 2)), np.ones((2, 2))).tolist()
    [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]
    """
    x, y = _check_2d("convolve2d", in1, in2, boundary, fillvalue)
    return _convolve_direct("convolve2d", x, y, mode, precision)


def correlate(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """Correlates two arrays over all axes: convolves with the reversed conjugate of `in2`.

    Args:
        in1: the first operand.
        in2: the second operand, of the same rank.
        mode: `"full"`; `"same"`, the central part of the shape of `in1`; or `"valid"`, the part where one operand lies
            entirely within the other.
        method: `"direct"` or `"auto"`, which mean the same; or `"fft"`, see `fftconvolve`.
        precision: the precision of the products, as in `lax.conv_general_dilated`.

    Returns:
        The correlation, an array of floats or complex numbers.

    Raises:
        ValueError: if `mode` is unknown, an operand is empty, ranks differ, or neither operand is at least as large as
            the other along all axes.

    >>> import numpy as np
    >>> correlate(np.array([1, 2, 3]), np.array([1, 0]), mode="valid")
    Array([1., 2.], dtype=float32)
    """
    return convolve(in1, flip(_conjugate_if_complex(as_value(in2, "in2"))), mode, method, precision)


def _conjugate_if_complex(x: Value) -> Value:
    return conjugate(x) if dtypes.is_complex(x.aval.dtype) else x


def correlate2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: PrecisionLike = None,
) -> Array:
    """Correlates two matrices.

    As in SciPy, the center of a window of even size is the end of its first half, and in mode `"valid"` the smaller
    operand is conjugated.

    Args:
        in1: a matrix.
        in2: a matrix.
        mode: `"full"`; `"same"`, the central part of the shape of `in1`; or `"valid"`, the part where one operand lies
            entirely within the other.
        boundary: must be `"fill"`.
        fillvalue: must be 0.
        precision: the precision of the products, as in `lax.conv_general_dilated`.

    Returns:
        The correlation, an array of floats or complex numbers.

    Raises:
        NotImplementedError: if `boundary` or `fillvalue` is not supported.
        ValueError: if an operand is not a matrix, and for the reasons that `convolve` has.

    >>> import numpy as np
    >>> correlate2d(np.arange(4).reshape(2, 2), np.array([[1, 0]]), mode="valid").tolist()
    [[0.0], [2.0]]
    """
    name = "correlate2d"
    x, y = _check_2d(name, in1, in2, boundary, fillvalue)
    if mode == "same":
        return flip(_convolve_direct(name, flip(x), _conjugate_if_complex(y), mode, precision))
    is_second_larger = _all_at_least(y.aval.shape, x.aval.shape) and x.aval.shape != y.aval.shape
    if mode == "valid" and is_second_larger:
        return _convolve_direct(name, flip(y), _conjugate_if_complex(x), mode, precision)
    return _convolve_direct(name, x, flip(_conjugate_if_complex(y)), mode, precision)


def fftconvolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: Sequence[SupportsIndex] | SupportsIndex | None = None
) -> Array:
    """Convolves two arrays along some axes by FFTs.

    Args:
        in1: the first operand.
        in2: the second operand, of the same rank.
        mode: `"full"`; `"same"`, the central part of the shape of `in1`; or `"valid"`, the part where one operand lies
            entirely within the other.
        axes: the axes to convolve along, all by default. Along the others the sizes must agree, and each slice is
            convolved separately.

    Returns:
        The convolution, an array of floats or complex numbers.

    Raises:
        ValueError: if `mode` is unknown, ranks or sizes along other axes differ, or in mode `"valid"` neither operand
            is at least as large as the other along all axes.

    >>> import numpy as np
    >>> fftconvolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0])).round(3)
    Array([1., 3., 5., 3.], dtype=float32)
    """
    x, y = _operands("fftconvolve", in1, in2)
    _check_mode("fftconvolve", mode)
    ndim = x.aval.ndim
    convolved_axes = tuple(range(ndim))
    if axes is not None:
        axis_tuple = (axes,) if isinstance(axes, SupportsIndex) else tuple(axes)
        convolved_axes = tuple(sorted(canonicalize_axes("fftconvolve", axis_tuple, ndim, "axes")))
    if builtins.any(x.aval.shape[d] != y.aval.shape[d] for d in range(ndim) if d not in convolved_axes):
        raise ValueError(
            f"fftconvolve: along axes other than {convolved_axes} the sizes must agree, got {x.aval} and {y.aval}"
        )
    left, right = [tuple([v.aval.shape[d] for d in convolved_axes]) for v in (x, y)]
    if mode == "valid" and _all_at_least(right, left):
        x, y, left, right = y, x, right, left
    elif mode == "valid" and not _all_at_least(left, right):
        raise ValueError(
            "fftconvolve: in mode 'valid' one operand must be at least as large as the other along all axes, got "
            f"{x.aval} and {y.aval}"
        )
    full_sizes = tuple([n + m - 1 for n, m in zip(left, right, strict=True)])
    if builtins.all(n == 1 or m == 1 for n, m in zip(left, right, strict=True)):
        out = multiply(x, y)
    elif dtypes.is_complex(x.aval.dtype):
        out = fft.ifftn(
            multiply(fft.fftn(x, full_sizes, convolved_axes), fft.fftn(y, full_sizes, convolved_axes)),
            full_sizes,
            convolved_axes,
        )
    else:
        out = fft.irfftn(
            multiply(fft.rfftn(x, full_sizes, convolved_axes), fft.rfftn(y, full_sizes, convolved_axes)),
            full_sizes,
            convolved_axes,
        )
    if mode == "full":
        return out
    sizes = left if mode == "same" else tuple([n - m + 1 for n, m in zip(left, right, strict=True)])
    start, limit = [0] * ndim, list(out.shape)
    for d, n, size in zip(convolved_axes, full_sizes, sizes, strict=True):
        start[d] = (n - size) // 2
        limit[d] = start[d] + size
    return slicing.slice(out, start, limit)
