"""Convolutions of arrays with any number of axes: by products, or by Fourier transforms."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import SupportsIndex

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape
from tracefx.core.values import Value, as_value
from tracefx.numpy import fft
from tracefx.numpy.convolution import sliding_dot
from tracefx.numpy.operand_promotion import convert_dtype, inexact_dtype, promote_dtypes
from tracefx.numpy.shapes import flip
from tracefx.numpy.ufuncs import conjugate, multiply
from tracefx.ops.contractions.contraction import PrecisionLike
from tracefx.ops.shape import slicing
from tracefx.ops.static_integers import canonicalize_axes

_MODES = ("full", "same", "valid")


def _check_mode(name: str, mode: str) -> None:
    if mode not in _MODES:
        raise ValueError(f"{name}: mode must be 'full', 'same' or 'valid', got {mode!r}")


def _operands(name: str, in1: ArrayLike, in2: ArrayLike) -> tuple[Value, Value]:
    """The operands, of one dtype that has fractions and one number of axes."""
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
        case "same":  # the middle, as large as the first operand: the second may be the window or what it moves over
            padding = [(n - 1 - (m - 1) // 2, n - m + (m - 1) // 2) for n, m in zip(window, second, strict=True)]
        case _:
            padding = [(n - 1, n - 1) for n in window]
    return sliding_dot(x, slicing.rev(y, tuple(range(len(window)))), padding, precision)


def convolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """The sums of products of `in1` with the reversed `in2` at each place, over all axes.

    `mode` is `"full"`, or `"same"` for the middle part, as large as `in1`, or `"valid"` for those places at which one
    operand lies within the other. `method` is `"direct"`, which `"auto"` stands for, or `"fft"`.

    Raises ValueError for other modes and methods, for different numbers of axes, and where neither operand is at least
    as large as the other along all axes.

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
            f"{name}: around the operands there are zeros: boundary must be 'fill' and fillvalue 0, got {boundary!r} "
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
    """`convolve` of two matrices.

    Raises NotImplementedError for a `boundary` other than zeros.

    >>> import numpy as np
    >>> convolve2d(np.ones((2, 2)), np.ones((2, 2))).tolist()
    [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]
    """
    x, y = _check_2d("convolve2d", in1, in2, boundary, fillvalue)
    return _convolve_direct("convolve2d", x, y, mode, precision)


def correlate(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """The sums of products of `in1` with the conjugate of `in2` at each place; the rest is as in `convolve`.

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
    """`correlate` of two matrices. As in SciPy, the middle of a window of even size is where its first half ends, and
    in mode `"valid"` the conjugate is that of the smaller operand.

    >>> import numpy as np
    >>> correlate2d(np.arange(4).reshape(2, 2), np.array([[1, 0]]), mode="valid").tolist()
    [[0.0], [2.0]]
    """
    name = "correlate2d"
    x, y = _check_2d(name, in1, in2, boundary, fillvalue)
    if mode == "same":
        return flip(_convolve_direct(name, flip(x), _conjugate_if_complex(y), mode, precision))
    larger = _all_at_least(y.aval.shape, x.aval.shape) and x.aval.shape != y.aval.shape
    if mode == "valid" and larger:
        return _convolve_direct(name, flip(y), _conjugate_if_complex(x), mode, precision)
    return _convolve_direct(name, x, flip(_conjugate_if_complex(y)), mode, precision)


def fftconvolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: Sequence[SupportsIndex] | SupportsIndex | None = None
) -> Array:
    """`convolve` by Fourier transforms, along some axes: for each place of the others, where the sizes must agree.

    Raises ValueError as `convolve` does, and for different sizes along other axes.

    >>> import numpy as np
    >>> fftconvolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0])).round(3)
    Array([1., 3., 5., 3.], dtype=float32)
    """
    x, y = _operands("fftconvolve", in1, in2)
    _check_mode("fftconvolve", mode)
    ndim = x.aval.ndim
    along = tuple(range(ndim))
    if axes is not None:
        given = (axes,) if isinstance(axes, SupportsIndex) else tuple(axes)
        along = tuple(sorted(canonicalize_axes("fftconvolve", given, ndim, "axes")))
    if builtins.any(x.aval.shape[d] != y.aval.shape[d] for d in range(ndim) if d not in along):
        raise ValueError(f"fftconvolve: along axes other than {along} the sizes must agree, got {x.aval} and {y.aval}")
    left, right = [tuple([v.aval.shape[d] for d in along]) for v in (x, y)]
    if mode == "valid" and _all_at_least(right, left):
        x, y, left, right = y, x, right, left
    elif mode == "valid" and not _all_at_least(left, right):
        raise ValueError(
            "fftconvolve: in mode 'valid' one operand must be at least as large as the other along all axes, got "
            f"{x.aval} and {y.aval}"
        )
    whole = tuple([n + m - 1 for n, m in zip(left, right, strict=True)])
    if builtins.all(n == 1 or m == 1 for n, m in zip(left, right, strict=True)):
        out = multiply(x, y)
    elif dtypes.is_complex(x.aval.dtype):
        out = fft.ifftn(multiply(fft.fftn(x, whole, along), fft.fftn(y, whole, along)), whole, along)
    else:
        out = fft.irfftn(multiply(fft.rfftn(x, whole, along), fft.rfftn(y, whole, along)), whole, along)
    if mode == "full":
        return out
    sizes = left if mode == "same" else tuple([n - m + 1 for n, m in zip(left, right, strict=True)])
    start, limit = [0] * ndim, list(out.shape)
    for d, n, size in zip(along, whole, sizes, strict=True):
        start[d] = (n - size) // 2
        limit[d] = start[d] + size
    return slicing.slice(out, start, limit)
