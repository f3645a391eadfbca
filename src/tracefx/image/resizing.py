"""`resize` and `scale_and_translate`: one weight matrix for each resized axis, by the kernel of a `ResizeMethod`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, unique
from types import MappingProxyType
from typing import Final, SupportsIndex, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.bounded_cache import memoize
from tracefx.core import Array, ArrayLike, DType, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.device import DEFAULT_DEVICE, Device
from tracefx.core.handler import ROOT, as_array, handling
from tracefx.numpy import abs, arange, divide, logical_and, maximum, minimum, pad, sin, sum, take, where
from tracefx.numpy.operand_promotion import promote_args_inexact, to_inexact
from tracefx.ops.contractions.contraction import Precision, PrecisionLike, dot_general
from tracefx.ops.operation import static_shape
from tracefx.ops.static_integers import canonicalize_axes
from tracefx.ops.structural import convert, full_like_aval, transpose


@unique
class ResizeMethod(Enum):
    """The interpolation method of `resize` and `scale_and_translate`."""

    NEAREST = 0
    """Nearest neighbor: copies the pixel that contains the center of the new pixel."""
    LINEAR = 1
    """Linear interpolation: a triangle kernel of radius 1."""
    LANCZOS3 = 2
    """Lanczos kernel, a windowed sinc, of radius 3."""
    LANCZOS5 = 3
    """Lanczos kernel of radius 5."""
    CUBIC = 4
    """Keys cubic convolution with parameter -0.5."""
    CUBIC_PYTORCH = 5
    """Keys cubic convolution with parameter -0.75 and replicated edges, as in PyTorch; if antialiased, as `CUBIC`."""
    AREA = 6
    """Area average: the mean over the part of the image that the new pixel covers."""

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """Returns the method with this name.

        Args:
            s: `"nearest"`; `"linear"`, `"bilinear"`, `"trilinear"` or `"triangle"`; `"lanczos3"`; `"lanczos5"`;
                `"cubic"`, `"bicubic"` or `"tricubic"`; `"cubic-pytorch"` or `"bicubic-pytorch"`; or `"area"`.

        Raises:
            ValueError: if no method has this name.

        >>> ResizeMethod.from_string("bilinear")
        <ResizeMethod.LINEAR: 1>
        """
        method = _NAMES.get(s)
        if method is None:
            raise ValueError(f"the resize method must be one of {', '.join(_NAMES)}, got {s!r}")
        return method


_NAMES: Final[Mapping[str, ResizeMethod]] = MappingProxyType(
    {
        "nearest": ResizeMethod.NEAREST,
        **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
        "lanczos3": ResizeMethod.LANCZOS3,
        "lanczos5": ResizeMethod.LANCZOS5,
        **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
        **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
        "area": ResizeMethod.AREA,
    }
)

KernelFunction: TypeAlias = Callable[[Array], Array]


@final
@frozen
class ResampleKernel:
    """A resampling kernel: a radius in pixels, and the weight of a pixel as a function of its nonnegative distance."""

    radius: int
    weight: KernelFunction


def _triangle(x: Array) -> Array:
    return maximum(0, 1 - abs(x))


def _lanczos(radius: int) -> KernelFunction:
    def weight(x: Array) -> Array:
        waves = radius * sin(np.pi * x) * sin(np.pi * x / radius)
        inner = where(x > 1e-3, divide(waves, where(x != 0, np.pi**2 * x**2, 1)), 1)
        return where(x > radius, 0.0, inner)

    return weight


def _cubic(a: float) -> KernelFunction:
    def weight(x: Array) -> Array:
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return where(x >= 2, 0.0, where(x >= 1, far, near))

    return weight


RESAMPLE_KERNELS: Final[Mapping[ResizeMethod, ResampleKernel]] = MappingProxyType(
    {
        ResizeMethod.LINEAR: ResampleKernel(1, _triangle),
        ResizeMethod.LANCZOS3: ResampleKernel(3, _lanczos(3)),
        ResizeMethod.LANCZOS5: ResampleKernel(5, _lanczos(5)),
        ResizeMethod.CUBIC: ResampleKernel(2, _cubic(-0.5)),
        ResizeMethod.CUBIC_PYTORCH: ResampleKernel(2, _cubic(-0.75)),
    }
)
"""The kernels of the methods whose weights depend on distance alone. (`AREA` weights depend on both pixel edges.)"""


_MIN_TOTAL_WEIGHT: Final = 1000 * float(np.finfo(np.float32).eps)
"""New pixels whose kernel weights sum to less than this get weight 0: the kernel lies outside the image."""

_MAX_CACHED_WEIGHTS: Final = 2**16
"""Largest weight matrix, in elements, that is cached between calls."""


def resize(
    image: ArrayLike,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = Precision.HIGHEST,
) -> Array:
    """Resamples an image to a new shape, along every axis whose size changes.

    Pixels have unit extent: pixel `i` covers the interval from `i` to `i + 1`.

    Args:
        image: an array of any rank. Integers are converted to floats, except with `"nearest"`.
        shape: the new size of every axis.
        method: `"nearest"`, `"linear"`, `"cubic"`, `"lanczos3"`, `"lanczos5"`, `"area"`, `"cubic-pytorch"` (or an
            alias, see `ResizeMethod.from_string`), or a `ResizeMethod`.
        antialias: whether to widen the kernel when an axis shrinks, so that every pixel under a new one contributes to
            it.
        precision: the precision of the contractions, as in `lax.dot_general`.

    Returns:
        The resampled image, of shape `shape`.

    Raises:
        ValueError: if the method is unknown, if `shape` has another rank than `image`, or if a nonempty axis is asked
            for where `image` has none.

    >>> import numpy as np
    >>> resize(np.array([0.0, 1.0]), (4,), "linear")
    Array([0.  , 0.25, 0.75, 1.  ], dtype=float32)
    """
    x = as_value(image, "image")
    sizes = _shape("resize", x, shape)
    resize_method = ResizeMethod.from_string(method) if isinstance(method, str) else method
    resized_axes = [d for d, (n, m) in enumerate(zip(x.aval.shape, sizes, strict=True)) if n != m]
    for d in resized_axes:
        if sizes[d] and not x.aval.shape[d]:
            raise ValueError(
                f"resize: axis {d} of the image, {x.aval}, is empty and can't be resized to {sizes[d]} pixels"
            )
    if resize_method is ResizeMethod.NEAREST:
        out = as_array(x)
        for d in resized_axes:
            n, m = out.shape[d], sizes[d]
            centers = (2 * np.arange(m, dtype=np.int64) + 1) * n // (2 * max(m, 1))
            out = take(out, centers.astype(np.int32), d, mode="clip", indices_are_sorted=True)
        return out
    x = to_inexact(x, "resize: image")
    dtype = _dtype_of_weights(x)
    weights = []
    for d in resized_axes:
        n, m = x.aval.shape[d], sizes[d]
        options = n, m, resize_method, antialias, dtype
        is_cached = n * m <= _MAX_CACHED_WEIGHTS
        weights.append(_cached_weights(*options, DEFAULT_DEVICE.value) if is_cached else _resize_weights(*options))
    return _contract_axes(x, resized_axes, weights, precision)


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
    """Resamples an image that is scaled and then translated along some axes.

    A point at `x` moves to `x * scale + translation`, where pixel `i` covers the interval from `i` to `i + 1`. New
    pixels whose center falls outside the image are 0. Differentiable with respect to `image`, `scale` and
    `translation`.

    Args:
        image: an array of any rank. Integers are converted to floats.
        shape: the size of every axis of the result.
        spatial_dims: the axes to scale and translate.
        scale: `f32[n]`, one factor for each axis of `spatial_dims`.
        translation: `f32[n]`, one offset in new pixels for each axis of `spatial_dims`.
        method: as for `resize`, except that `"nearest"` is not supported.
        antialias: whether to widen the kernel where the image shrinks.
        precision: the precision of the contractions, as in `lax.dot_general`.

    Returns:
        The resampled image, of shape `shape`.

    Raises:
        ValueError: if the method is unknown or `"nearest"`, if `shape` has another rank than `image`, or if `scale` or
            `translation` doesn't have one number for each axis of `spatial_dims`.

    >>> import numpy as np
    >>> scale_and_translate(np.array([1.0, 2.0, 3.0]), (3,), (0,), np.ones(1), np.ones(1), "linear")
    Array([0., 1., 2.], dtype=float32)
    """
    name = "scale_and_translate"
    x = as_value(image, "image")
    sizes = _shape(name, x, shape)
    resize_method = ResizeMethod.from_string(method) if isinstance(method, str) else method
    if resize_method is ResizeMethod.NEAREST:
        raise ValueError(f"{name}: method 'nearest' is not supported; use resize, or choose another method")
    resized_axes = canonicalize_axes(name, spatial_dims, x.aval.ndim, "spatial_dims")
    scales, translations = [as_array(v) for v in promote_args_inexact(name, scale, translation)]
    for argument, value in (("scale", scales), ("translation", translations)):
        if value.shape != (len(resized_axes),):
            raise ValueError(
                f"{name}: {argument} must have one number for each of {len(resized_axes)} axes, got {value.aval}"
            )
    weights = [
        _weights(x.aval.shape[d], sizes[d], scales[i], translations[i], resize_method, antialias)
        for i, d in enumerate(resized_axes)
    ]
    return _contract_axes(to_inexact(x, f"{name}: image"), resized_axes, weights, precision)


def _shape(name: str, x: Value, shape: Sequence[int]) -> Shape:
    sizes = static_shape(name, shape)
    if len(sizes) != x.aval.ndim:
        raise ValueError(f"{name}: shape must have one size for each axis of the image, got {sizes} for {x.aval}")
    return sizes


def _dtype_of_weights(x: Value) -> DType:
    """Returns the real dtype of the weights: float32 at least."""
    dtype = dtypes.real_dtype(x.aval.dtype)
    return dtypes.float32 if dtypes.itemsize_bits(dtype) < 32 else dtype


def _resize_weights(n: int, m: int, method: ResizeMethod, antialias: bool, dtype: DType) -> Array:
    """Returns the weight matrix `f32[n, m]` that resizes `n` pixels to `m`."""
    scale = full_like_aval(ShapedArray((), dtype), m / n if m else 1.0)
    return _weights(n, m, scale, 0.0, method, antialias)


@memoize(64)
def _cached_weights(
    n: int, m: int, method: ResizeMethod, antialias: bool, dtype: DType, device: Device | None
) -> Array:
    """Memoizes `_resize_weights`, evaluated under the root handler, so that programs hold constants.

    `device` must be the current default device: it is part of the cache key.
    """
    assert device is DEFAULT_DEVICE.value
    with handling(ROOT):
        return _resize_weights(n, m, method, antialias, dtype)


def _contract_axes(x: Value, axes: Sequence[int], weights: Sequence[Array], precision: PrecisionLike) -> Array:
    """Contracts each of the axes of the image with axis 0 of its weight matrix."""
    # The axes that shrink most come first, which makes the other contractions cheaper. A leading axis stays in place as
    # an axis of the left operand, and the image is not copied; any other axis comes last.
    order = list(range(x.aval.ndim))
    for i in sorted(range(len(axes)), key=lambda i: weights[i].shape[1] / max(weights[i].shape[0], 1)):
        position = order.index(axes[i])
        matrix = convert(weights[i], x.aval.dtype)
        if position == 0:
            swapped = precision[::-1] if isinstance(precision, tuple) else precision
            x = dot_general(matrix, x, (((0,), (0,)), ((), ())), swapped)
        else:
            x = dot_general(x, matrix, (((position,), (0,)), ((), ())), precision)
            order.append(order.pop(position))
    return transpose(x, sorted(range(len(order)), key=order.__getitem__))


def _weights(n: int, m: int, scale: Array, translation: ArrayLike, method: ResizeMethod, antialias: bool) -> Array:
    """Returns the weight of each of `n` pixels in each of `m` new ones: `f32[n, m]`."""
    dtype = scale.dtype
    inverse = 1.0 / scale
    centers = (arange(m, dtype=dtype) + 0.5) * inverse - translation * inverse - 0.5
    if method is ResizeMethod.AREA:
        start = arange(m, dtype=dtype) * inverse - translation * inverse
        left = arange(n, dtype=dtype)[:, None]
        overlap = maximum(0.0, minimum(start + inverse, left + 1.0) - maximum(start, left))
        return _mask_outside(_normalize_weights(overlap), centers, n)
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


def _fold_edge_weights(weights: Array, margin: int) -> Array:
    """Adds the weights of pixels outside the image to those of the edge pixels, which replicates the edges."""
    inside = weights[margin : weights.shape[0] - margin]
    edge_padding = (0, inside.shape[0] - 1)
    before = sum(weights[:margin], 0, keepdims=True)
    after = sum(weights[weights.shape[0] - margin :], 0, keepdims=True)
    return inside + pad(before, (edge_padding, (0, 0))) + pad(after, (edge_padding[::-1], (0, 0)))


def _normalize_weights(weights: Array) -> Array:
    """Scales the weights of each new pixel to sum to 1, since part of a kernel may lie outside the image."""
    total = sum(weights, 0, keepdims=True)
    return where(abs(total) > _MIN_TOTAL_WEIGHT, divide(weights, where(total != 0, total, 1)), 0)


def _mask_outside(weights: Array, centers: Array, n: int) -> Array:
    """Sets the weights of new pixels whose center is outside the image to zero."""
    return where(logical_and(centers >= -0.5, centers <= n - 0.5), weights, 0)
