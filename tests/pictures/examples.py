"""Example programs for the tests of `pictures`: a network with a loop, a branch, a call and a custom rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import Array, lax, nn

Params = list[tuple[Array, Array]]


def layer(w: Array, b: Array, x: Array) -> Array:
    return fnp.maximum(x @ w + b, 0.0)


@fx.jit
def normalise(x: Array) -> Array:
    return x / fnp.sqrt(fnp.sum(x**2, axis=-1, keepdims=True))


@fx.custom_jvp
def clipped(x: Array) -> Array:
    return fnp.minimum(x, 6.0)


clipped.defjvp(lambda primals, tangents: (clipped(primals[0]), tangents[0]))


def loss(params: Params, x: Array, y: Array) -> Array:
    (w, b), (v, c) = params
    h = normalise(layer(w, b, x))

    def step(h: Array, _: None) -> tuple[Array, None]:
        return fnp.tanh(h * 1.1), None

    h, _ = lax.scan(step, h, None, length=5)
    with fx.named_scope("head"):
        logits = clipped(normalise(h) @ v + c)
    logits = lax.cond(logits[0, 0] > 0, lambda x: x * 2.0, lambda x: fnp.exp(x), logits)
    return -fnp.mean(fnp.sum(nn.log_softmax(logits) * nn.one_hot(y, 10), -1))


def settling(x: Array) -> Array:
    """A while loop, whose number of steps is unknown."""
    return lax.while_loop(lambda y: fnp.sum(y) > 1.0, lambda y: fnp.sin(y) * 0.5, x)


@fx.checkpoint
def waves(x: Array) -> Array:
    return fnp.sum(fnp.sin(fnp.sin(x)))


def array(*shape: int, dtype: str = "float32") -> Any:
    """A `ShapeDtypeStruct`, in place of an array argument."""
    return fx.ShapeDtypeStruct(shape, dtype)


LOSS_ARGS: Final[tuple[Any, ...]] = (
    [(array(64, 32), array(32)), (array(32, 10), array(10))],
    array(8, 64),
    array(8, dtype="int32"),
)

PROGRAMS: Final[dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "loss": (loss, LOSS_ARGS),
    "grad": (fx.grad(loss), LOSS_ARGS),
    "settling": (settling, (array(4),)),
    "vmap": (fx.vmap(settling), (array(3, 4),)),
    "checkpoint": (fx.grad(waves), (array(16),)),
    "identity": (lambda x: x, (array(3),)),
    "numbers": (lambda: fnp.arange(3) * 2, ()),
}


def program(name: str) -> fx.ClosedJaxpr:
    """The jaxpr of the example with this name."""
    function, args = PROGRAMS[name]
    return fx.make_jaxpr(function)(*args)


def long_chain(x: Array, steps: int = 100) -> Array:
    """A chain of steps. Its gradient reads values far from the equations that compute them."""
    values = [x]
    for i in range(steps):
        x = fnp.sin(x) * 2.0 + values[i // 2]
        values.append(x)
    return fnp.sum(x)
