"""`ResizeMethod`, and the resampling kernels behind it: weights as a function of distance in pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, unique
from types import MappingProxyType
from typing import Final, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core import Array
from tracefx.numpy import abs, divide, maximum, sin, where


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
