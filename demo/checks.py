"""Checks of the demo: a gradient is compared with JAX's, and per-example gradients with those of a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import tracefx as fx
from tracefx import tree


def jax_loss(params: Sequence[tuple[jax.Array, jax.Array]], images: jax.Array, labels: jax.Array) -> jax.Array:
    """Computes the loss of `demo.digits` with JAX."""
    *hidden, (weights, biases) = params
    for w, b in hidden:
        images = jnp.maximum(images @ w + b, 0)
    log_probabilities = jax.nn.log_softmax(images @ weights + biases)
    return -jnp.mean(jnp.take_along_axis(log_probabilities, labels[:, None], axis=-1))


def difference_from_jax(gradient: Any, params: Any, images: fx.Array, labels: fx.Array) -> float:
    """Returns the largest difference between a gradient and JAX's, relative to the largest entry of the array."""
    as_numpy = tree.map(np.asarray, params)
    expected = jax.jit(jax.grad(jax_loss))(as_numpy, np.asarray(images), np.asarray(labels))
    return _difference(gradient, expected)


def difference_from_loop(
    gradients: Any, gradient: Callable[..., Any], params: Any, images: fx.Array, labels: fx.Array
) -> float:
    """Returns the largest relative difference between stacked per-example gradients and those of a loop."""
    one_by_one = [gradient(params, image, label) for image, label in zip(images, labels, strict=True)]
    return _difference(gradients, tree.map(lambda *rows: np.stack([np.asarray(r) for r in rows]), *one_by_one))


def _difference(ours: Any, expected: Any) -> float:
    """Returns the largest difference of two trees, relative to the largest entry of the array; NaN if one is NaN."""
    pairs = zip(tree.leaves(ours), tree.leaves(expected), strict=True)
    return float(np.max([_array_difference(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in pairs]))


def _array_difference(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(x - y))) / max(float(np.max(np.abs(y))), 1e-30)
