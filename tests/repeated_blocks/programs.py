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


def uneven_networks(layers: int) -> dict[str, Program]:
    """Gradients of networks of which not all parts are equal blocks."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return (0.3 * rng.normal(size=shape)).astype(np.float32)

    parameters = [(weights(32, 64), weights(64), weights(64, 32)) for _ in range(layers)]
    stacked = tuple([np.stack(arrays) for arrays in zip(*parameters, strict=True)])

    def network(between: Callable[[int, Any], Any]) -> Callable[..., Any]:
        def loss(parameters: Any, x: Any) -> Any:
            for i in range(layers):
                w, b, v = parameters[i] if isinstance(parameters, list) else [array[i] for array in parameters]
                x = between(i, x + fx.nn.gelu(normalized(x) @ w + b) @ v)
            return fnp.sum(x**2)

        return fx.value_and_grad(loss)

    def inspected(i: int, x: Any) -> Any:
        fx.debug.callback(lambda value: None, x[0, 0])
        return x

    def activation(i: int) -> Callable[[Any], Any]:
        sine: Any = fx.custom_vjp(lambda x: fnp.sin(x))
        sine.defvjp(lambda x: (fnp.sin(x), x), lambda x, g: ((fnp.cumsum(g, i % 2) if i % 3 else g) * fnp.cos(x),))
        return sine  # type: ignore[no-any-return]  # a function of arrays

    x = weights(32, 32)
    return {
        "another custom rule in each layer": (network(lambda i, x: activation(i)(x)), (parameters, x)),
        "effects in the forward pass": (network(inspected), (parameters, x)),
        "another operation in two of three layers": (
            network(lambda i, x: fnp.roll(x, 1, i % 2) if i % 3 else x),
            (parameters, x),
        ),
        "one other layer": (network(lambda i, x: 3.0 * x if i == layers // 2 else x), (parameters, x)),
        "sines between layers": (network(lambda i, x: fnp.sin(x)), (parameters, x)),
        "stacked parameters": (network(lambda i, x: x), (stacked, x[:4])),
    }


def generated_program(seed: int) -> Callable[[Any], tuple[Any, Any]]:
    """A program of random operations with planted repeats, of which one may differ in one operation or operand."""
    rng = np.random.default_rng(seed)
    unary: list[Callable[[Any], Any]] = [
        fnp.sin,
        fnp.cos,
        fnp.tanh,
        fnp.negative,
        lambda x: fnp.cumsum(x),
        lambda x: x[::-1],
        fnp.abs,
    ]
    binary: list[Callable[[Any, Any], Any]] = [fnp.add, fnp.multiply, fnp.maximum, lambda x, y: fnp.where(x > y, x, y)]
    steps = [
        (rng.integers(2), rng.integers(7), rng.integers(4), rng.integers(4), rng.integers(4))
        for _ in range(rng.integers(2, 9))
    ]
    count, odd = int(rng.integers(3, 8)), int(rng.integers(-4, 8))

    def block(values: list[Any], b: int) -> list[Any]:
        for i, (kind, u, v, first, second) in enumerate(steps):
            x, y = values[-1 - first], values[-1 - second]
            if b == odd and i == len(steps) // 2:
                new = fnp.sin(x) * (b + 1.5)
            else:
                new = unary[u](x) if kind else binary[v](x, y)
            values = [*values[-8:], new]
        return values

    def f(x: Any) -> Any:
        values = [x, x + 1.0, x * 2.0, x - 0.5]
        for b in range(count):
            values = block(values, b)
        return values[-1], values[-3]

    return f
