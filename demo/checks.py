"""What the demo checks: a gradient against JAX's, and gradients of a batch's examples against a loop over them."""

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
    """The loss of `demo.digits`, in JAX."""
    *hidden, (weights, biases) = params
    for w, b in hidden:
        images = jnp.maximum(images @ w + b, 0)
    log_probabilities = jax.nn.log_softmax(images @ weights + biases)
    return -jnp.mean(jnp.take_along_axis(log_probabilities, labels[:, None], axis=-1))


def difference_from_jax(gradient: Any, params: Any, images: fx.Array, labels: fx.Array) -> float:
    """The largest difference of a gradient of the loss from JAX's, in relation to the largest entry of its array."""
    as_numpy = tree.map(np.asarray, params)
    expected = jax.jit(jax.grad(jax_loss))(as_numpy, np.asarray(images), np.asarray(labels))
    return _difference(gradient, expected)


def difference_from_loop(
    gradients: Any, gradient: Callable[..., Any], params: Any, images: fx.Array, labels: fx.Array
) -> float:
    """The largest relative difference of the examples' gradients, stacked, from those of one example after another."""
    one_by_one = [gradient(params, image, label) for image, label in zip(images, labels, strict=True)]
    return _difference(gradients, tree.map(lambda *rows: np.stack([np.asarray(r) for r in rows]), *one_by_one))


def _difference(ours: Any, expected: Any) -> float:
    """The largest difference in two trees, relative to the largest entry of its array. A NaN is one, too."""
    pairs = zip(tree.leaves(ours), tree.leaves(expected), strict=True)
    return float(np.max([_of_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in pairs]))


def _of_arrays(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(x - y))) / max(float(np.max(np.abs(y))), 1e-30)
