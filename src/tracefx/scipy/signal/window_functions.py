"""Window functions for spectral analysis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from tracefx.core import NDArray

WindowFunction: TypeAlias = Callable[..., NDArray]
"""A function of positions between -1 and 1, and of the parameters of the window."""
COSINE_WEIGHTS: Final[Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        "boxcar": (1.0,),
        "hann": (0.5, 0.5),
        "hamming": (0.54, 0.46),
        "blackman": (0.42, 0.50, 0.08),
        "nuttall": (0.3635819, 0.4891775, 0.1365995, 0.0106411),
        "blackmanharris": (0.35875, 0.48829, 0.14128, 0.01168),
        "flattop": (0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368),
    }
)
"""The weights of windows that are sums of cosines."""


def _sum_of_cosines(t: NDArray, *weights: float) -> NDArray:
    terms = [w * np.cos(k * np.pi * t) for k, w in enumerate(weights)]
    return np.asarray(sum(terms))


def _parzen(t: NDArray) -> NDArray:
    a = np.abs(t)
    return np.where(a <= 0.5, 1 - 6 * a**2 + 6 * a**3, 2 * (1 - a) ** 3)


def _bohman(t: NDArray) -> NDArray:
    a = np.abs(t)
    return np.asarray((1 - a) * np.cos(np.pi * a) + np.sin(np.pi * a) / np.pi)


def _tukey(t: NDArray, part: float = 0.5) -> NDArray:
    if part <= 0:
        return np.ones_like(t)
    beyond = np.clip((np.abs(t) - 1 + min(part, 1.0)) / min(part, 1.0), 0, 1)
    return np.asarray((1 + np.cos(np.pi * beyond)) / 2)


WINDOW_FUNCTIONS: Final[Mapping[str, WindowFunction]] = MappingProxyType(
    {
        "bartlett": lambda t: 1 - np.abs(t),
        "barthann": lambda t: 0.62 - 0.24 * np.abs(t) + 0.38 * np.cos(np.pi * t),
        "bohman": _bohman,
        "general_cosine": lambda t, weights: _sum_of_cosines(t, *weights),
        "general_hamming": lambda t, weight: _sum_of_cosines(t, weight, 1 - weight),
        "kaiser": lambda t, beta: np.i0(beta * np.sqrt(np.maximum(1 - t * t, 0))) / np.i0(beta),
        "lanczos": np.sinc,
        "tukey": _tukey,
    }
)
"""Windows, by name, that are functions of the position between the ends."""


def get_window(window: str | tuple[Any, ...], n: int) -> NDArray:
    """Returns one period of a window, as `n` numbers.

    Args:
        window: the name of the window, or a tuple of its name and parameters.
        n: the length.

    Raises:
        ValueError: if the name is unknown.
    """
    name, *parameters = (window,) if isinstance(window, str) else window
    if n == 1:
        return np.ones(1)
    positions = np.arange(n) - n / 2  # periodic: the end of a period is the start of the next
    if name in COSINE_WEIGHTS:
        return _sum_of_cosines(2 * positions / n, *COSINE_WEIGHTS[name])
    if name in WINDOW_FUNCTIONS:
        return WINDOW_FUNCTIONS[name](2 * positions / n, *parameters)
    match name, parameters:
        case "triang", []:
            width = n + 1 + (n + 1) % 2
            return np.asarray(1 - np.abs(2 * positions) / width)
        case "parzen", []:
            return _parzen(2 * positions / (n + 1))
        case "cosine", []:
            return np.asarray(np.cos(np.pi * positions / (n + 1)))
        case "gaussian", [deviation]:
            return np.asarray(np.exp(-((positions / deviation) ** 2) / 2))
        case "general_gaussian", [power, deviation]:
            return np.asarray(np.exp(-(np.abs(positions / deviation) ** (2 * power)) / 2))
        case "exponential", [] | [None] | [None, _]:
            decay = parameters[1] if len(parameters) > 1 else 1.0
            return np.asarray(np.exp(-np.abs(positions) / decay))
        case _:
            pass
    known = [
        *COSINE_WEIGHTS,
        *WINDOW_FUNCTIONS,
        "triang",
        "parzen",
        "cosine",
        "gaussian",
        "general_gaussian",
        "exponential",
    ]
    raise ValueError(f"window must be an array, or one of the names {', '.join(sorted(known))}, got {window!r}")
