"""Convolution and correlation of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracefx.core import Array, ArrayLike, DTypeLike, Value, dtypes
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.operand_promotion import convert_dtype, inexact_dtype, promote_dtypes
from tracefx.ops import structural
from tracefx.ops.contractions import convolution
from tracefx.ops.contractions.contraction import PrecisionLike
from tracefx.ops.elementwise import complex
from tracefx.ops.shape import slicing
from tracefx.transforms.eager_calls import eager_cached

_MODES: Final = frozenset({"full", "same", "valid"})


@eager_cached(kernel=KERNELS["convolve"])
def convolve(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "full",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Returns the convolution of two vectors: the sums of `a[k - j] * v[j]` over `j`.

    Integers become floats, unless `preferred_element_type` is given.

    Args:
        a: A vector, `f32[n]`.
        v: A vector, `f32[m]`.
        mode: `"full"` returns all sums, `f32[n + m - 1]`; `"same"` the middle ones, as many as the longer vector has
            elements; `"valid"` those in which all elements of the shorter vector take part.
        precision: The precision of the products, as for `lax.dot`; None means the default.
        preferred_element_type: The dtype of the result, in which the sums are computed; None means the promoted dtype.

    Returns:
        A vector of the sums.

    Raises:
        ValueError: If an operand is not a vector or is empty, or the mode is unknown.

    >>> import numpy as np
    >>> convolve(np.array([1, 2, 3]), np.array([0.0, 1.0, 0.5]))
    Array([0. , 1. , 2.5, 4. , 1.5], dtype=float32)
    """
    x, y = _vector_operands("convolve", a, v, preferred_element_type)
    if x.aval.size < y.aval.size:
        x, y = y, x
    return _correlate_vectors("convolve", x, slicing.rev(y, (0,)), mode, precision, preferred_element_type)


@eager_cached(kernel=KERNELS["correlate"])
def correlate(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "valid",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Returns the cross-correlation of two vectors: the sums of `a[k + j] * conj(v[j])` over `j`.

    Integers become floats, unless `preferred_element_type` is given.

    Args:
        a: A vector, `f32[n]`.
        v: A vector, `f32[m]`.
        mode: `"full"`, `"same"` or `"valid"`: which sums to return, as for `convolve`.
        precision: The precision of the products, as for `lax.dot`; None means the default.
        preferred_element_type: The dtype of the result, in which the sums are computed; None means the promoted dtype.

    Returns:
        A vector of the sums.

    Raises:
        ValueError: If an operand is not a vector or is empty, or the mode is unknown.

    >>> import numpy as np
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
    """Returns two promoted operands; raises ValueError unless both are nonempty vectors."""
    x, y = promote_dtypes(name, a, v, inexact=preferred is None)
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
    """Returns the correlation of `x` with the shorter `y`, `x` padded as the mode asks."""
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
    """Returns the sums of products of `y` with each window of the zero-padded `x`; windows slide along all axes."""
    images, kernels = [structural.reshape(each, (1, 1, *each.aval.shape)) for each in (x, y)]
    steps = (1,) * x.aval.ndim
    out = convolution.conv_general_dilated(
        images, kernels, steps, padding, precision=precision, preferred_element_type=preferred
    )
    return structural.reshape(out, out.shape[2:])
