"""Convolutions and correlations of vectors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DTypeLike, NDArray
from tracefx.core.values import Value
from tracefx.numpy.evaluated import Kernel, by_numpy
from tracefx.numpy.operand_promotion import convert_dtype, inexact_dtype, promote_dtypes
from tracefx.ops import structural
from tracefx.ops.contractions import convolution
from tracefx.ops.contractions.contraction import PrecisionLike
from tracefx.ops.elementwise import complex
from tracefx.ops.shape import slicing

_MODES: Final = frozenset({"full", "same", "valid"})


def _vector_kernel(numpys: Callable[..., NDArray]) -> Callable[..., Kernel | None]:
    """What NumPy's function makes of vectors."""

    def kernel(a: ShapedArray, v: ShapedArray, mode: str | None = None, **options: object) -> Kernel | None:
        plain = all(option is None for option in options.values())
        return functools.partial(numpys, **({} if mode is None else {"mode": mode})) if plain else None

    return kernel


@by_numpy(_vector_kernel(np.convolve), arrays=2, replays=False, patient=False)
def convolve(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "full",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The sums of `a[k - j] * v[j]` over `j`, for each `k`: `f32[n]` and `f32[m]` give `f32[n + m - 1]`.

    `mode` is `"full"`, or `"same"` for the middle part, as long as the longer vector, or `"valid"` for those sums
    in which the shorter one has all its elements. Integers become floats, unless `preferred_element_type`, the dtype
    of the result in which it is summed, is given.

    Raises ValueError for operands that aren't vectors or have no elements, and for other modes.

    >>> convolve(np.array([1, 2, 3]), np.array([0.0, 1.0, 0.5]))
    Array([0. , 1. , 2.5, 4. , 1.5], dtype=float32)
    """
    x, y = _vector_operands("convolve", a, v, preferred_element_type)
    if x.aval.size < y.aval.size:
        x, y = y, x
    return _correlate_vectors("convolve", x, slicing.rev(y, (0,)), mode, precision, preferred_element_type)


@by_numpy(_vector_kernel(np.correlate), arrays=2, replays=False, patient=False)
def correlate(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "valid",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The sums of `a[k + j] * conj(v[j])` over `j`, for each `k`; `mode` and the rest are those of `convolve`.

    >>> correlate(np.array([1, 2, 3]), np.array([0.0, 1.0, 0.5]))
    Array([3.5], dtype=float32)
    """
    x, y = _vector_operands("correlate", a, v, preferred_element_type)
    if dtypes.is_complex(y.aval.dtype):
        y = complex.conj(y)
    if x.aval.size >= y.aval.size:
        return _correlate_vectors("correlate", x, y, mode, precision, preferred_element_type)
    return slicing.rev(_correlate_vectors("correlate", y, x, mode, precision, preferred_element_type), (0,))


def _vector_operands(name: str, a: ArrayLike, v: ArrayLike, preferred: DTypeLike | None) -> tuple[Value, Value]:
    x, y = promote_dtypes(name, a, v)
    if x.aval.ndim != 1 or y.aval.ndim != 1:
        raise ValueError(f"{name}: operands must be vectors, got {x.aval} and {y.aval}")
    if not (x.aval.size and y.aval.size):
        raise ValueError(f"{name}: operands must have elements, got {x.aval} and {y.aval}")
    if preferred is None:
        dtype, weak = inexact_dtype(x.aval.dtype), x.aval.weak_type
        x, y = [convert_dtype(each, dtype, weak) for each in (x, y)]
    return x, y


def _correlate_vectors(
    name: str, x: Value, y: Value, mode: str, precision: PrecisionLike, preferred: DTypeLike | None
) -> Array:
    """The products of `x` with `y` at each place, of which there is one more for each element of padding."""
    n = y.aval.size
    match mode:
        case "valid":
            pads = (0, 0)
        case "same":
            pads = (n // 2, n - n // 2 - 1)
        case "full":
            pads = (n - 1, n - 1)
        case _:
            raise ValueError(f"{name}: mode must be 'full', 'same' or 'valid', got {mode!r}")
    return sliding_dot(x, y, [pads], precision, preferred)


def sliding_dot(
    x: Value,
    y: Value,
    padding: Sequence[tuple[int, int]],
    precision: PrecisionLike = None,
    preferred: DTypeLike | None = None,
) -> Array:
    """The sums of products of `y` with the part of `x`, padded by zeros, at each place: over all axes."""
    images, kernels = [structural.reshape(each, (1, 1, *each.aval.shape)) for each in (x, y)]
    steps = (1,) * x.aval.ndim
    out = convolution.conv_general_dilated(
        images, kernels, steps, padding, precision=precision, preferred_element_type=preferred
    )
    return structural.reshape(out, out.shape[2:])
