"""Trains a classifier of handwritten digits: `make demo`, or `python -m demo.digits`.

The data are the 1,797 images of the UCI handwritten digits, 8 x 8 pixels each, from scikit-learn. The model is a
multilayer perceptron: functions of a list of layers, which tracefx differentiates, batches and compiles. At the end its
gradient is compared with JAX's, and its per-example gradients with those of a loop.
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

MIN_ACCURACY: Final = 0.96
TOLERANCE: Final = 1e-4  # of gradients, relative to the largest entry of the array
PICTURE: Final = Path("out/digits.png")


# ---------------------------------------------------------------------------------------------------- the model


class Layer(NamedTuple):
    weights: fx.Array  # f32[n, m]
    biases: fx.Array  # f32[m]


Params: TypeAlias = list[Layer]
"""Lists, tuples, named tuples and dicts of arrays are pytrees, which all transformations accept."""


def new_params(sizes: Sequence[int], random: np.random.Generator) -> Params:
    """Returns random weights with the variance 2 / n for layers with n inputs (He et al., 2015)."""
    return [
        Layer(fnp.asarray(random.normal(0, (2 / n) ** 0.5, (n, m))), fnp.zeros(m)) for n, m in itertools.pairwise(sizes)
    ]


def predict(params: Params, images: fx.Array) -> fx.Array:
    """Returns the log-probabilities of the ten digits: f32[..., 64] to f32[..., 10]."""
    *hidden, last = params
    for layer in hidden:
        images = fnp.maximum(images @ layer.weights + layer.biases, 0)
    scores = images @ last.weights + last.biases
    scores = scores - fnp.max(scores, axis=-1, keepdims=True)
    return scores - fnp.log(fnp.sum(fnp.exp(scores), axis=-1, keepdims=True))


def loss(params: Params, images: fx.Array, labels: fx.Array) -> fx.Array:
    """Returns the cross-entropy of the labels, i32[...]: the mean over a batch, or that of one example."""
    is_label = labels[..., None] == fnp.arange(10)
    return -fnp.mean(fnp.sum(fnp.where(is_label, predict(params, images), 0), axis=-1))


@fx.jit
def classify(params: Params, images: fx.Array) -> fx.Array:
    """Returns the most probable digit of each image: f32[n, 64] to i32[n]."""
    return fnp.argmax(predict(params, images), axis=-1)


# ------------------------------------------------------------------------------------------------- the training

compiled_loss = fx.jit(loss)
loss_and_gradient = fx.jit(fx.value_and_grad(loss))
per_example_gradients = fx.jit(fx.vmap(fx.grad(loss), in_axes=(None, 0, 0)))


class State(NamedTuple):
    params: Params
    velocity: Params


@fx.jit
def step(state: State, images: fx.Array, labels: fx.Array) -> tuple[State, fx.Array]:
    """Takes a step of gradient descent with momentum; returns the next state, and the loss before the step."""
    value, gradient = loss_and_gradient(state.params, images, labels)
    velocity = tree.map(lambda v, g: MOMENTUM * v - RATE * g, state.velocity, gradient)
    return State(tree.map(lambda p, v: p + v, state.params, velocity), velocity), value


class Examples(NamedTuple):
    images: fx.Array  # f32[n, 64], from 0 to 1
    labels: fx.Array  # i32[n]

    def take(self, rows: slice | NDArray[np.int64]) -> Examples:
        return Examples(self.images[rows], self.labels[rows])


def load_data(random: np.random.Generator) -> tuple[Examples, Examples]:
    """Returns training data, four fifths of the digits in random order, and test data, the others."""
    digits = load_digits()
    all_digits = Examples(fnp.asarray(digits.data / 16), fnp.asarray(digits.target))
    order = random.permutation(len(digits.target))
    count = len(order) * 4 // 5
    return all_digits.take(order[:count]), all_digits.take(order[count:])


def batches(data: Examples, size: int, random: np.random.Generator) -> Iterator[Examples]:
    """Yields batches of the examples in random order; omits the last examples if they do not fill a batch."""
    order = random.permutation(len(data.labels))
    for start in range(0, len(order) - size + 1, size):
        yield data.take(order[start : start + size])


def accuracy(params: Params, data: Examples) -> float:
    return float(fnp.mean(classify(params, data.images) == data.labels))


class TrainingResult(NamedTuple):
    params: Params
    losses: list[float]  # one per step
    test_losses: list[float]  # one per epoch


def train(
    data: Examples, test: Examples, epochs: int, random: np.random.Generator, progress: Progress | None = None
) -> TrainingResult:
    """Trains a model from random parameters."""
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
    return TrainingResult(state.params, losses, test_losses)


# ------------------------------------------------------------------------------------------------------ the demo


def main() -> int:
    """Trains, checks and draws; returns 1 if a check fails, else 0."""
    start = time.perf_counter()
    random = np.random.default_rng(SEED)
    data, test = load_data(random)
    print(f"{len(data.labels)} handwritten digits for training, {len(test.labels)} for testing.")

    batch = data.take(slice(BATCH))
    print("\nThe jaxpr of the loss of a batch, fx.make_jaxpr(loss)(params, images, labels):\n")
    print(fx.make_jaxpr(loss)(new_params(SIZES, random), *batch), end="\n\n")

    with Progress("training", EPOCHS) as progress:
        params, losses, test_losses = train(data, test, EPOCHS, random, progress)

    test_accuracy = accuracy(params, test)
    _, gradient = loss_and_gradient(params, *batch)
    per_example = per_example_gradients(params, *batch)
    from_jax = difference_from_jax(gradient, params, *batch)
    from_loop = difference_from_loop(per_example, fx.jit(fx.grad(loss)), params, *batch)
    limit = f"relative difference, at most {TOLERANCE:.0e}"
    passed = [
        report("test accuracy", f"{test_accuracy:.2%}", f"at least {MIN_ACCURACY:.0%}", test_accuracy >= MIN_ACCURACY),
        report("gradient beside JAX's", f"{from_jax:.1e}", limit, from_jax <= TOLERANCE),
        report(f"{BATCH} per-example gradients beside a loop's", f"{from_loop:.1e}", limit, from_loop <= TOLERANCE),
    ]

    draw(PICTURE, losses, test_losses, *test, classify(params, test.images))
    print(f"\n{PICTURE}: the losses, and the misclassified digits. {time.perf_counter() - start:.0f} s in total.")
    return 0 if all(passed) else 1


def report(name: str, value: str, requirement: str, passed: bool) -> bool:
    print(f"{'ok  ' if passed else 'FAIL'}  {name}: {value} ({requirement})")
    return passed


if __name__ == "__main__":
    sys.exit(main())
