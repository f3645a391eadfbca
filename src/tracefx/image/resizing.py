"""`resize` and `scale_and_translate`: one matrix of weights for each axis, contracted with the image."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final, SupportsIndex

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape
from tracefx.core.dtypes import DType
from tracefx.core.handler import ROOT, as_array, handling
from tracefx.core.values import Value, as_value
from tracefx.image.resize_methods import RESAMPLE_KERNELS, ResampleKernel, ResizeMethod
from tracefx.numpy import abs, arange, divide, logical_and, maximum, minimum, pad, sum, take, where
from tracefx.numpy.operand_promotion import promote_args_inexact, to_inexact
from tracefx.ops.contractions.contraction import Precision, PrecisionLike, dot_general
from tracefx.ops.operation import static_shape
from tracefx.ops.static_integers import canonicalize_axes
from tracefx.ops.structural import convert, transpose

_MIN_TOTAL_WEIGHT: Final = 1000 * float(np.finfo(np.float32).eps)
"""Weights whose sum is smaller are those of pixels that nothing is seen of."""

_MAX_CACHED_WEIGHTS: Final = 2**16
"""So many weights are kept from one call to the next."""


def resize(
    image: ArrayLike,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = Precision.HIGHEST,
) -> Array:
    """`image` resampled to `shape`, along all axes whose size changes.

    `method` is `"nearest"`, `"linear"`, `"cubic"`, `"lanczos3"`, `"lanczos5"`, `"area"` or `"cubic-pytorch"`, or a
    `ResizeMethod`. With `antialias`, where the image becomes smaller, all that lies under a new pixel has a part in it.
    Pixels have an area, the first from 0 to 1. Integers become floats, but with `"nearest"`.

    Raises ValueError for an unknown method, and for a shape with another number of axes.

    >>> import numpy as np
    >>> resize(np.array([0.0, 1.0]), (4,), "linear")
    Array([0.  , 0.25, 0.75, 1.  ], dtype=float32)
    """
    x = as_value(image, "image")
    sizes = _shape("resize", x, shape)
    kind = ResizeMethod.from_string(method) if isinstance(method, str) else method
    along = [d for d, (n, m) in enumerate(zip(x.aval.shape, sizes, strict=True)) if n != m]
    for d in along:
        if sizes[d] and not x.aval.shape[d]:
            raise ValueError(f"resize: axis {d} of the image, {x.aval}, has no pixels to make {sizes[d]} of")
    if kind is ResizeMethod.NEAREST:
        out = as_array(x)
        for d in along:
            n, m = out.shape[d], sizes[d]
            centers = (2 * np.arange(m, dtype=np.int64) + 1) * n // (2 * max(m, 1))
            out = take(out, centers.astype(np.int32), d, mode="clip", indices_are_sorted=True)
        return out
    x = to_inexact(x, "resize: image")
    dtype = _dtype_of_weights(x)
    weights = []
    for d in along:
        n, m = x.aval.shape[d], sizes[d]
        find = _cached_resize_weights if n * m <= _MAX_CACHED_WEIGHTS else _resize_weights
        weights.append(find(n, m, kind, antialias, dtype))
    return _contract_axes(x, along, weights, precision)


def scale_and_translate(
    image: ArrayLike,
    shape: Sequence[int],
    spatial_dims: Sequence[SupportsIndex],
    scale: ArrayLike,
    translation: ArrayLike,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = Precision.HIGHEST,
) -> Array:
    """`image` enlarged by `scale` and then moved by `translation`, on a ground of zeros of the given `shape`.

    `scale` and `translation` have a number for each axis of `spatial_dims`: what is at `x` comes to
    `x * scale + translation`, the first pixel reaching from 0 to 1. There are derivatives in both. `method` and
    `antialias` are as in `resize`.

    Raises ValueError for an unknown method, for `"nearest"`, and for a shape with another number of axes.

    >>> import numpy as np
    >>> scale_and_translate(np.array([1.0, 2.0, 3.0]), (3,), (0,), np.ones(1), np.ones(1), "linear")
    Array([0., 1., 2.], dtype=float32)
    """
    name = "scale_and_translate"
    x = as_value(image, "image")
    sizes = _shape(name, x, shape)
    kind = ResizeMethod.from_string(method) if isinstance(method, str) else method
    if kind is ResizeMethod.NEAREST:
        raise ValueError(f"{name}: the nearest pixel is found by resize alone; choose another method")
    along = canonicalize_axes(name, spatial_dims, x.aval.ndim, "spatial_dims")
    scales, moves = [as_array(v) for v in promote_args_inexact(name, scale, translation)]
    for what, given in (("scale", scales), ("translation", moves)):
        if given.shape != (len(along),):
            raise ValueError(f"{name}: {what} must have a number for each of {len(along)} axes, got {given.aval}")
    weights = [_weights(x.aval.shape[d], sizes[d], scales[i], moves[i], kind, antialias) for i, d in enumerate(along)]
    return _contract_axes(to_inexact(x, f"{name}: image"), along, weights, precision)


def _shape(name: str, x: Value, shape: Sequence[int]) -> Shape:
    sizes = static_shape(name, shape)
    if len(sizes) != x.aval.ndim:
        raise ValueError(f"{name}: shape must have a size for each axis of the image, got {sizes} for {x.aval}")
    return sizes


def _dtype_of_weights(x: Value) -> DType:
    dtype = dtypes.real_dtype(x.aval.dtype)
    return dtypes.float32 if dtypes.itemsize_bits(dtype) < 32 else dtype


def _resize_weights(n: int, m: int, method: ResizeMethod, antialias: bool, dtype: DType) -> Array:
    """The weights that make `n` pixels to `m`."""
    scale = as_array(convert(as_value(m / n if m else 1.0), dtype))
    return _weights(n, m, scale, 0.0, method, antialias)


@functools.lru_cache(maxsize=64)
def _cached_resize_weights(n: int, m: int, method: ResizeMethod, antialias: bool, dtype: DType) -> Array:
    """The same, computed once: for a program they are constants."""
    with handling(ROOT):
        return _resize_weights(n, m, method, antialias, dtype)


def _contract_axes(x: Value, axes: Sequence[int], weights: Sequence[Array], precision: PrecisionLike) -> Array:
    """The image, each of the axes contracted with the first one of its weights."""
    # Axes that shrink come first, so that there is less to do for the others. A contracted axis goes to the end.
    order = list(range(x.aval.ndim))
    for i in sorted(range(len(axes)), key=lambda i: weights[i].shape[1] / max(weights[i].shape[0], 1)):
        place = order.index(axes[i])
        x = dot_general(x, convert(weights[i], x.aval.dtype), (((place,), (0,)), ((), ())), precision)
        order.append(order.pop(place))
    return transpose(x, sorted(range(len(order)), key=order.__getitem__))


def _weights(n: int, m: int, scale: Array, move: ArrayLike, method: ResizeMethod, antialias: bool) -> Array:
    """What each of `n` pixels weighs in each of `m` new ones: `f32[n, m]`."""
    dtype = scale.dtype
    inverse = 1.0 / scale
    centers = (arange(m, dtype=dtype) + 0.5) * inverse - move * inverse - 0.5
    if method is ResizeMethod.AREA:
        start = arange(m, dtype=dtype) * inverse - move * inverse
        left = arange(n, dtype=dtype)[:, None]
        found = maximum(0.0, minimum(start + inverse, left + 1.0) - maximum(start, left))
        return _mask_outside(_normalize_weights(found), centers, n)
    if method is ResizeMethod.CUBIC_PYTORCH and not antialias:
        kernel = RESAMPLE_KERNELS[method]
        return _normalize_weights(
            _fold_edge_weights(_kernel_weights(kernel, centers, -kernel.radius, n + kernel.radius, 1.0), kernel.radius)
        )
    kernel = RESAMPLE_KERNELS[ResizeMethod.CUBIC if method is ResizeMethod.CUBIC_PYTORCH else method]
    width: ArrayLike = maximum(inverse, 1.0) if antialias else 1.0
    return _mask_outside(_normalize_weights(_kernel_weights(kernel, centers, 0, n, width)), centers, n)


def _kernel_weights(kernel: ResampleKernel, centers: Array, start: int, stop: int, width: ArrayLike) -> Array:
    pixels = arange(start, stop, dtype=centers.dtype)[:, None]
    return kernel.weight(divide(abs(centers - pixels), width))


def _fold_edge_weights(weights: Array, beyond: int) -> Array:
    """The weights of pixels beyond either end, added to those of the last ones there are."""
    inside = weights[beyond : weights.shape[0] - beyond]
    rest = (0, inside.shape[0] - 1)
    before = sum(weights[:beyond], 0, keepdims=True)
    after = sum(weights[weights.shape[0] - beyond :], 0, keepdims=True)
    return inside + pad(before, (rest, (0, 0))) + pad(after, (rest[::-1], (0, 0)))


def _normalize_weights(weights: Array) -> Array:
    """Weights that add up to 1 for each new pixel: part of a kernel may lie outside."""
    total = sum(weights, 0, keepdims=True)
    return where(abs(total) > _MIN_TOTAL_WEIGHT, divide(weights, where(total != 0, total, 1)), 0)


def _mask_outside(weights: Array, centers: Array, n: int) -> Array:
    """The weights, but zero for new pixels whose center is outside of the image."""
    return where(logical_and(centers >= -0.5, centers <= n - 0.5), weights, 0)
