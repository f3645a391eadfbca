"""Training on a mesh: the partition specs of weights and data, the step, and the loss with `shard_map`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

import tracefx as fx
import tracefx.numpy as fnp
from demo.parallel.model import (
    Array,
    Block,
    Params,
    Sizes,
    attention,
    cross_entropy,
    embed,
    feed_forward,
    loss,
    new_params,
    normalize,
)
from tracefx import NamedSharding, P, lax, random, tree

TEXT = Path(__file__).parents[2] / "LICENSE"
RATE = 3e-3
Loss: TypeAlias = Callable[[Params[Array], Array], Array]

# Products come in pairs. The weights of the first are sharded along columns and those of the second along rows, so no
# communication is needed between them. Small arrays are replicated.
SPECS: Params[fx.PartitionSpec] = Params(
    tokens=P(),
    positions=P(),
    blocks=Block(
        qkv=P(None, None, None, "model", None),
        out=P(None, "model", None, None),
        up=P(None, None, "model"),
        down=P(None, "model", None),
    ),
)
ROWS = P("data")


class State(NamedTuple):
    """The weights, and the moving averages of Adam: of gradients and of their squares."""

    params: Params[Array]
    mean: Params[Array]
    square: Params[Array]
    steps: Array


def new_state(sizes: Sizes, seed: int) -> State:
    params = new_params(sizes, random.key(seed))
    mean, square = [tree.map(fnp.zeros_like, params) for _ in range(2)]  # separate arrays, because they are donated
    return State(params, mean, square, fnp.zeros((), int))


def adam(state: State, gradient: Params[Array]) -> State:
    """Takes a step of Adam (Kingma and Ba, 2015, algorithm 1)."""
    steps = state.steps + 1
    mean = tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, gradient)
    square = tree.map(lambda s, g: 0.99 * s + 0.01 * g**2, state.square, gradient)

    def update(p: Array, m: Array, s: Array) -> Array:
        return p - RATE * (m / (1 - 0.9**steps)) / (fnp.sqrt(s / (1 - 0.99**steps)) + 1e-8)

    return State(tree.map(update, state.params, mean, square), mean, square, steps)


def step_of(loss: Loss) -> Callable[[State, Array], tuple[State, Array]]:
    def step(state: State, text: Array) -> tuple[State, Array]:
        value, gradient = fx.value_and_grad(loss)(state.params, text)
        return adam(state, gradient), value

    return step


def mapped_loss(mesh: fx.Mesh) -> Loss:
    """Returns `loss` as a `shard_map`: each device has a part of the batch, of the heads and of the hidden units.

    The result of a pair of products is a partial sum over the devices along `model`.
    """

    def local_loss(params: Params[Array], text: Array) -> Array:
        def step(x: Array, block: Block[Array]) -> tuple[Array, None]:
            x = x + lax.psum(attention(block, normalize(x)), "model")
            return x + lax.psum(feed_forward(block, normalize(x)), "model"), None

        x, _ = lax.scan(step, embed(params, text), params.blocks)
        return fnp.asarray(lax.pmean(cross_entropy(params, x, text), "data"))

    return fx.shard_map(local_loss, mesh=mesh, in_specs=(SPECS, ROWS), out_specs=P())


def batches(sizes: Sizes, rows: int, seed: int) -> Iterator[NDArray[np.int32]]:
    """Yields random pieces of the text, the same in every process: i32[rows, context + 1]."""
    text = np.frombuffer(TEXT.read_bytes(), np.uint8).astype(np.int32) % sizes.tokens
    rng = np.random.default_rng(seed)
    while True:
        starts = rng.integers(0, len(text) - sizes.context - 1, rows)
        yield text[starts[:, None] + np.arange(sizes.context + 1)]


def train(sizes: Sizes, rows: int, steps: int, mesh: fx.Mesh | None, loss: Loss = loss, seed: int = 0) -> list[float]:
    """Trains for some steps, on a mesh or on the first device; returns the losses."""
    state, text = new_state(sizes, seed), batches(sizes, rows, seed)
    if mesh is not None:
        shardings = tree.map(lambda spec: NamedSharding(mesh, spec), SPECS)
        replicated = NamedSharding(mesh, P())
        state = fx.device_put(state, State(shardings, shardings, shardings, replicated))  # type: ignore[arg-type]  # shardings in place of arrays
    step = fx.jit(step_of(loss), donate_argnums=0)
    losses = []
    for _ in range(steps):
        batch: object = next(text)
        if mesh is not None:
            batch = fx.device_put(batch, NamedSharding(mesh, ROWS))
        state, value = step(state, batch)  # type: ignore[arg-type]  # an array of either library
        losses.append(float(value))
    return losses
