"""Programs with repeated blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.core.jaxpr import Jaxpr

Program: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""


def trace(f: Any, *args: Any) -> Jaxpr:
    """Traces a function to a jaxpr whose constants are inputs."""
    return fx.make_jaxpr(f)(*args).jaxpr.closed()


def normalized(x: Any) -> Any:
    """Layer normalization."""
    centred = x - fnp.mean(x, -1, keepdims=True)
    return centred / fnp.sqrt(fnp.mean(centred**2, -1, keepdims=True) + 1e-3)


def deep_network(layers: int, width: int = 6) -> Program:
    """A residual network with layer normalization and `gelu`: a loss, its parameters and an example batch."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return (0.3 * rng.normal(size=shape)).astype(np.float32)

    parameters = [(weights(width, 2 * width), weights(2 * width), weights(2 * width, width)) for _ in range(layers)]

    def loss(parameters: Any, x: Any) -> Any:
        for w, b, v in parameters:
            x = x + fx.nn.gelu(normalized(x) @ w + b) @ v
        return fnp.sum(x**2)

    return loss, (parameters, weights(3, width))
