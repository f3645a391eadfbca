"""Training on a mesh: where weights and data lie, the step, and the same step written for each device."""

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
    attended,
    embedded,
    loss,
    new_params,
    normalized,
    surprise,
    thought,
)
from tracefx import NamedSharding, P, lax, random, tree

TEXT = Path(__file__).parents[2] / "LICENSE"
RATE = 3e-3
Loss: TypeAlias = Callable[[Params[Array], Array], Array]

# Products in pairs: the first of each is cut along its columns, the second along its rows, so that between the two
# nothing has to be sent. What is small is the same on all devices.
SPECS: Params[fx.PartitionSpec] = Params(
    letters=P(),
    places=P(),
    blocks=Block(
        qkv=P(None, None, None, "model", None),
        out=P(None, "model", None, None),
        up=P(None, None, "model"),
        down=P(None, "model", None),
    ),
)
ROWS = P("data")


class State(NamedTuple):
    """What a step takes and gives: weights, and Adam's means of slopes and of their squares."""

    params: Params[Array]
    mean: Params[Array]
    square: Params[Array]
    steps: Array


def new_state(sizes: Sizes, seed: int) -> State:
    params = new_params(sizes, random.key(seed))
    mean, square = [tree.map(fnp.zeros_like, params) for _ in range(2)]  # arrays of their own, since they are donated
    return State(params, mean, square, fnp.zeros((), int))


def updated(state: State, slopes: Params[Array]) -> State:
    """One step of Adam (Kingma and Ba, 2015, algorithm 1)."""
    steps = state.steps + 1
    mean = tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, slopes)
    square = tree.map(lambda s, g: 0.99 * s + 0.01 * g**2, state.square, slopes)

    def moved(p: Array, m: Array, s: Array) -> Array:
        return p - RATE * (m / (1 - 0.9**steps)) / (fnp.sqrt(s / (1 - 0.99**steps)) + 1e-8)

    return State(tree.map(moved, state.params, mean, square), mean, square, steps)


def step_of(loss: Loss) -> Callable[[State, Array], tuple[State, Array]]:
    def step(state: State, text: Array) -> tuple[State, Array]:
        value, slopes = fx.value_and_grad(loss)(state.params, text)
        return updated(state, slopes), value

    return step


def by_hand(mesh: fx.Mesh) -> Loss:
    """`loss`, written for each device: it has a part of the batch, of the heads and of the hidden layers.

    What a pair of products gives is a part of a sum over the devices along `model`.
    """

    def of_parts(params: Params[Array], text: Array) -> Array:
        def step(x: Array, block: Block[Array]) -> tuple[Array, None]:
            x = x + lax.psum(attended(block, normalized(x)), "model")
            return x + lax.psum(thought(block, normalized(x)), "model"), None

        x, _ = lax.scan(step, embedded(params, text), params.blocks)
        return fnp.asarray(lax.pmean(surprise(params, x, text), "data"))

    return fx.shard_map(of_parts, mesh=mesh, in_specs=(SPECS, ROWS), out_specs=P())


def batches(sizes: Sizes, rows: int, seed: int) -> Iterator[NDArray[np.int32]]:
    """Pieces of the text, the same in every process: i32[rows, context + 1]."""
    text = np.frombuffer(TEXT.read_bytes(), np.uint8).astype(np.int32) % sizes.letters
    rng = np.random.default_rng(seed)
    while True:
        starts = rng.integers(0, len(text) - sizes.context - 1, rows)
        yield text[starts[:, None] + np.arange(sizes.context + 1)]


def train(sizes: Sizes, rows: int, steps: int, mesh: fx.Mesh | None, loss: Loss = loss, seed: int = 0) -> list[float]:
    """The losses of so many steps: on a mesh, or, without one, on the first device."""
    state, text = new_state(sizes, seed), batches(sizes, rows, seed)
    if mesh is not None:
        of_params = tree.map(lambda spec: NamedSharding(mesh, spec), SPECS)
        whole = NamedSharding(mesh, P())
        state = fx.device_put(state, State(of_params, of_params, of_params, whole))  # type: ignore[arg-type]  # where arrays lie
    step = fx.jit(step_of(loss), donate_argnums=0)
    losses = []
    for _ in range(steps):
        batch: object = next(text)
        if mesh is not None:
            batch = fx.device_put(batch, NamedSharding(mesh, ROWS))
        state, value = step(state, batch)  # type: ignore[arg-type]  # an array of either library
        losses.append(float(value))
    return losses
