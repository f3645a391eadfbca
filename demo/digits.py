"""Train a classifier of handwritten digits: `make demo`, or `python -m demo.digits`.

The data are the 1,797 images of the UCI handwritten digits, 8 x 8 pixels each, in the copy that scikit-learn brings.
The model is a multilayer perceptron: ordinary functions of a list of layers, which tracefx differentiates, batches and
compiles. At the end its gradient is compared with JAX's, and its gradients of single examples with those of a loop.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import tracefx as fx
import tracefx.numpy as fnp
from demo.checks import difference_from_jax, difference_from_loop
from demo.picture import draw
from demo.progress import Progress
from tracefx import tree

SEED: Final = 0
SIZES: Final = (64, 128, 64, 10)
EPOCHS: Final = 40
BATCH: Final = 64
RATE: Final = 0.02
MOMENTUM: Final = 0.9

LEAST_ACCURACY: Final = 0.96
CLOSE: Final = 1e-4  # how far gradients may differ, relative to the largest entry of their array
PICTURE: Final = Path("out/digits.png")


# ---------------------------------------------------------------------------------------------------- the model


class Layer(NamedTuple):
    weights: fx.Array  # f32[n, m]
    biases: fx.Array  # f32[m]


Params: TypeAlias = list[Layer]
"""Lists, tuples, named tuples and dicts of arrays are trees: every transformation takes and gives them."""


def new_params(sizes: Sequence[int], random: np.random.Generator) -> Params:
    """Random weights, scaled so that what leaves a layer is about as large as what enters it."""
    return [
        Layer(fnp.asarray(random.normal(0, (2 / n) ** 0.5, (n, m))), fnp.zeros(m)) for n, m in itertools.pairwise(sizes)
    ]


def predict(params: Params, images: fx.Array) -> fx.Array:
    """The logarithms of the ten digits' probabilities: f32[..., 64] to f32[..., 10]."""
    *hidden, last = params
    for layer in hidden:
        images = fnp.maximum(images @ layer.weights + layer.biases, 0)
    scores = images @ last.weights + last.biases
    scores = scores - fnp.max(scores, axis=-1, keepdims=True)
    return scores - fnp.log(fnp.sum(fnp.exp(scores), axis=-1, keepdims=True))


def loss(params: Params, images: fx.Array, labels: fx.Array) -> fx.Array:
    """How unlikely the model finds the labels, i32[...]: on average over a batch, or for one example."""
    right = labels[..., None] == fnp.arange(10)
    return -fnp.mean(fnp.sum(fnp.where(right, predict(params, images), 0), axis=-1))


@fx.jit
def classify(params: Params, images: fx.Array) -> fx.Array:
    """The likeliest digit of each image: f32[n, 64] to i32[n]."""
    return fnp.argmax(predict(params, images), axis=-1)


# ------------------------------------------------------------------------------------------------- the training

compiled_loss = fx.jit(loss)
loss_and_gradient = fx.jit(fx.value_and_grad(loss))
gradients_by_example = fx.jit(fx.vmap(fx.grad(loss), in_axes=(None, 0, 0)))


class State(NamedTuple):
    params: Params
    velocity: Params


@fx.jit
def step(state: State, images: fx.Array, labels: fx.Array) -> tuple[State, fx.Array]:
    """One step of gradient descent with momentum: the next state, and the loss before the step."""
    value, gradient = loss_and_gradient(state.params, images, labels)
    velocity = tree.map(lambda v, g: MOMENTUM * v - RATE * g, state.velocity, gradient)
    return State(tree.map(lambda p, v: p + v, state.params, velocity), velocity), value


class Examples(NamedTuple):
    images: fx.Array  # f32[n, 64], from 0 to 1
    labels: fx.Array  # i32[n]

    def take(self, rows: slice | NDArray[np.int64]) -> Examples:
        return Examples(self.images[rows], self.labels[rows])


def load_data(random: np.random.Generator) -> tuple[Examples, Examples]:
    """The digits in random order: four fifths of them to train with, the others to test with."""
    digits = load_digits()
    everything = Examples(fnp.asarray(digits.data / 16), fnp.asarray(digits.target))
    order = random.permutation(len(digits.target))
    count = len(order) * 4 // 5
    return everything.take(order[:count]), everything.take(order[count:])


def batches(data: Examples, size: int, random: np.random.Generator) -> Iterator[Examples]:
    """All examples once, in random order and in batches of one size; the few left over wait for another epoch."""
    order = random.permutation(len(data.labels))
    for start in range(0, len(order) - size + 1, size):
        yield data.take(order[start : start + size])


def accuracy(params: Params, data: Examples) -> float:
    return float(fnp.mean(classify(params, data.images) == data.labels))


class Trained(NamedTuple):
    params: Params
    losses: list[float]  # one a step
    test_losses: list[float]  # one an epoch


def train(
    data: Examples, test: Examples, epochs: int, random: np.random.Generator, progress: Progress | None = None
) -> Trained:
    """A model trained for some epochs from random parameters."""
    params = new_params(SIZES, random)
    state = State(params, tree.map(fnp.zeros_like, params))
    losses: list[float] = []
    test_losses: list[float] = []
    for epoch in range(1, epochs + 1):
        for batch in batches(data, BATCH, random):
            state, value = step(state, *batch)
            losses.append(float(value))
        test_losses.append(float(compiled_loss(state.params, *test)))
        if progress is not None:
            recent = np.mean(losses[-len(losses) // epoch :])
            progress.show(epoch, f"loss {recent:.4f}  test accuracy {accuracy(state.params, test):.1%}")
    return Trained(state.params, losses, test_losses)


# ------------------------------------------------------------------------------------------------------ the demo


def main() -> int:
    """Train, check, draw; 1 if a check fails, else 0."""
    start = time.perf_counter()
    random = np.random.default_rng(SEED)
    data, test = load_data(random)
    print(f"{len(data.labels)} handwritten digits to train with, {len(test.labels)} to test with.")

    batch = data.take(slice(BATCH))
    print("\nWhat tracefx makes of the loss of a batch, fx.make_jaxpr(loss)(params, images, labels):\n")
    print(fx.make_jaxpr(loss)(new_params(SIZES, random), *batch), end="\n\n")

    with Progress("training", EPOCHS) as progress:
        params, losses, test_losses = train(data, test, EPOCHS, random, progress)

    score = accuracy(params, test)
    _, gradient = loss_and_gradient(params, *batch)
    by_example = gradients_by_example(params, *batch)
    from_jax = difference_from_jax(gradient, params, *batch)
    from_loop = difference_from_loop(by_example, fx.jit(fx.grad(loss)), params, *batch)
    close = f"relative difference, at most {CLOSE:.0e}"
    good = [
        report("test accuracy", f"{score:.2%}", f"at least {LEAST_ACCURACY:.0%}", score >= LEAST_ACCURACY),
        report("gradient against JAX's", f"{from_jax:.1e}", close, from_jax <= CLOSE),
        report(f"{BATCH} gradients at once against a loop's", f"{from_loop:.1e}", close, from_loop <= CLOSE),
    ]

    draw(PICTURE, losses, test_losses, *test, classify(params, test.images))
    print(f"\n{PICTURE}: the losses, and the digits that are misread. {time.perf_counter() - start:.0f} s in all.")
    return 0 if all(good) else 1


def report(what: str, value: str, wanted: str, good: bool) -> bool:
    print(f"{'ok  ' if good else 'FAIL'}  {what}: {value} ({wanted})")
    return good


if __name__ == "__main__":
    sys.exit(main())
