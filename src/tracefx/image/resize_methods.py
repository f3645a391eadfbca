"""How pixels weigh by their distance from where an image is sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, unique
from types import MappingProxyType
from typing import Final, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core.array import Array
from tracefx.numpy import abs, divide, maximum, sin, where


@unique
class ResizeMethod(Enum):
    """How an image is resampled."""

    NEAREST = 0
    """Each pixel is the one whose area its center lies in."""
    LINEAR = 1
    LANCZOS3 = 2
    """Lanczos's kernel, a windowed sinc, that reaches three pixels far."""
    LANCZOS5 = 3
    CUBIC = 4
    """Keys's cubic convolution, with the parameter -0.5."""
    CUBIC_PYTORCH = 5
    """The same with the parameter -0.75 and repeated edges, unless it is antialiased: as in PyTorch and OpenCV."""
    AREA = 6
    """Each pixel is the mean over the area that it has in the image."""

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of that name; ValueError if there is none.

        >>> ResizeMethod.from_string("bilinear")
        <ResizeMethod.LINEAR: 1>
        """
        found = _NAMES.get(s)
        if found is None:
            raise ValueError(f"the method to resize by must be one of {', '.join(_NAMES)}, got {s!r}")
        return found


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
    """Weights by distance in pixels, which is positive, and how far they reach."""

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
"""Methods that weigh by distance; what a pixel's area weighs depends on both its ends."""
