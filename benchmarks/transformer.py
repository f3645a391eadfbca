"""A small language model, blocks of attention and perceptron, written with one library or the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from benchmarks.libraries import Library

BLOCKS: Final = 6
BATCH: Final = 4
LENGTH: Final = 64
WIDTH: Final = 128
HEADS: Final = 4
WORDS: Final = 96


def parameters(blocks: int = BLOCKS) -> dict[str, Any]:
    """Weights of every block, the embeddings of words and places, and the scale and shift before the last product."""
    random = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return random.normal(0, shape[0] ** -0.5, shape).astype(np.float32)

    def norm() -> tuple[Any, Any]:
        return np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)

    def block() -> dict[str, Any]:
        return {
            "before attention": norm(),
            "queries, keys, values": weights(WIDTH, 3 * WIDTH),
            "attended": weights(WIDTH, WIDTH),
            "before perceptron": norm(),
            "wide": (weights(WIDTH, 4 * WIDTH), np.zeros(4 * WIDTH, np.float32)),
            "narrow": (weights(4 * WIDTH, WIDTH), np.zeros(WIDTH, np.float32)),
        }

    return {
        "words": weights(WORDS, WIDTH),
        "places": weights(LENGTH, WIDTH),
        "blocks": [block() for _ in range(blocks)],
        "last": norm(),
    }


def text() -> tuple[Any, Any]:
    """Words by number, and the word after each."""
    words = np.random.default_rng(1).integers(0, WORDS, (BATCH, LENGTH + 1)).astype(np.int32)
    return words[:, :-1], words[:, 1:]


def forward_of(library: Library, dropout: float = 0.0) -> Callable[..., Any]:
    """The scores of every word at every place: `f32[batch, length, words]`. With dropout it takes a random key."""
    numpy, nn, random = library.numpy, library.nn, library.core.random

    def dropped(x: Any, key: Any, number: int) -> Any:
        if key is None:
            return x
        keep = random.bernoulli(random.fold_in(key, number), 1 - dropout, x.shape)
        return numpy.where(keep, x / (1 - dropout), 0)

    def normalized(x: Any, scale: Any, shift: Any) -> Any:
        mean = numpy.mean(x, axis=-1, keepdims=True)
        variance = numpy.var(x, axis=-1, keepdims=True)
        return (x - mean) / numpy.sqrt(variance + 1e-5) * scale + shift

    def attention(x: Any, params: Mapping[str, Any]) -> Any:
        heads = (x @ params["queries, keys, values"]).reshape(*x.shape[:2], 3, HEADS, WIDTH // HEADS)
        q, k, v = heads[:, :, 0], heads[:, :, 1], heads[:, :, 2]
        scores = numpy.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(WIDTH // HEADS)
        earlier = numpy.tril(numpy.ones((LENGTH, LENGTH), bool))
        shares = nn.softmax(numpy.where(earlier, scores, -1e9), axis=-1)
        return numpy.einsum("bhqk,bkhd->bqhd", shares, v).reshape(x.shape) @ params["attended"]

    def perceptron(x: Any, params: Mapping[str, Any]) -> Any:
        (wide, wide_shift), (narrow, narrow_shift) = params["wide"], params["narrow"]
        return nn.gelu(x @ wide + wide_shift) @ narrow + narrow_shift

    def forward(params: Mapping[str, Any], words: Any, key: Any = None) -> Any:
        x = params["words"][words] + params["places"]
        for i, block in enumerate(params["blocks"]):
            x = x + dropped(attention(normalized(x, *block["before attention"]), block), key, 2 * i)
            x = x + dropped(perceptron(normalized(x, *block["before perceptron"]), block), key, 2 * i + 1)
        return normalized(x, *params["last"]) @ params["words"].T

    return forward


def loss_of(library: Library, dropout: float = 0.0) -> Callable[..., Any]:
    """How surprising the next words are, on average. With dropout it takes a random key."""
    numpy, nn, forward = library.numpy, library.nn, forward_of(library, dropout)

    def loss(params: Mapping[str, Any], words: Any, following: Any, key: Any = None) -> Any:
        log_probabilities = nn.log_softmax(forward(params, words, key), axis=-1)
        return -numpy.mean(numpy.take_along_axis(log_probabilities, following[..., None], axis=-1))

    return loss


def adam_step_of(library: Library, rate: float) -> Callable[..., Any]:
    """A step of Adam with dropout: `step(state, words, following, seed) -> state`, of parameters and two moments."""
    numpy, map_leaves, loss = library.numpy, library.core.tree_util.tree_map, loss_of(library, 0.1)

    def step(state: Any, words: Any, following: Any, seed: Any) -> Any:
        params, means, squares = state
        gradient = library.core.grad(loss)(params, words, following, library.core.random.key(seed))
        means = map_leaves(lambda m, g: 0.9 * m + 0.1 * g, means, gradient)
        squares = map_leaves(lambda v, g: 0.999 * v + 0.001 * g * g, squares, gradient)
        params = map_leaves(lambda p, m, v: p - rate * m / (numpy.sqrt(v) + 1e-8), params, means, squares)
        return params, means, squares

    return step


def adam_arguments(blocks: int) -> tuple[Any, ...]:
    """The arguments of `adam_step_of`."""
    return tuple([parameters(blocks) for _ in range(3)]), *text(), 0
