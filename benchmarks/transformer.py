"""A small transformer language model for either library."""

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
TOKENS: Final = 96


def parameters(blocks: int = BLOCKS, width: int = WIDTH) -> dict[str, Any]:
    """Returns the weights of the blocks, the embeddings of tokens and positions, and the last normalization."""
    random = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return random.normal(0, shape[0] ** -0.5, shape).astype(np.float32)

    def norm() -> tuple[Any, Any]:
        return np.ones(width, np.float32), np.zeros(width, np.float32)

    def block() -> dict[str, Any]:
        return {
            "before attention": norm(),
            "queries, keys, values": weights(width, 3 * width),
            "attended": weights(width, width),
            "before perceptron": norm(),
            "wide": (weights(width, 4 * width), np.zeros(4 * width, np.float32)),
            "narrow": (weights(4 * width, width), np.zeros(width, np.float32)),
        }

    return {
        "tokens": weights(TOKENS, width),
        "positions": weights(LENGTH, width),
        "blocks": [block() for _ in range(blocks)],
        "last": norm(),
    }


def text() -> tuple[Any, Any]:
    """Returns tokens and the token after each."""
    tokens = np.random.default_rng(1).integers(0, TOKENS, (BATCH, LENGTH + 1)).astype(np.int32)
    return tokens[:, :-1], tokens[:, 1:]


def forward_of(library: Library, dropout: float = 0.0) -> Callable[..., Any]:
    """Returns the function of the logits: `f32[batch, length, tokens]`. With dropout it takes a random key."""
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
        width = x.shape[2] // HEADS
        heads = (x @ params["queries, keys, values"]).reshape(*x.shape[:2], 3, HEADS, width)
        q, k, v = heads[:, :, 0], heads[:, :, 1], heads[:, :, 2]
        scores = numpy.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(width)
        causal = numpy.tril(numpy.ones((LENGTH, LENGTH), bool))
        weights = nn.softmax(numpy.where(causal, scores, -1e9), axis=-1)
        return numpy.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ params["attended"]

    def perceptron(x: Any, params: Mapping[str, Any]) -> Any:
        (wide, wide_shift), (narrow, narrow_shift) = params["wide"], params["narrow"]
        return nn.gelu(x @ wide + wide_shift) @ narrow + narrow_shift

    def forward(params: Mapping[str, Any], tokens: Any, key: Any = None) -> Any:
        x = params["tokens"][tokens] + params["positions"]
        for i, block in enumerate(params["blocks"]):
            x = x + dropped(attention(normalized(x, *block["before attention"]), block), key, 2 * i)
            x = x + dropped(perceptron(normalized(x, *block["before perceptron"]), block), key, 2 * i + 1)
        return normalized(x, *params["last"]) @ params["tokens"].T

    return forward


def loss_of(library: Library, dropout: float = 0.0) -> Callable[..., Any]:
    """Returns the cross-entropy loss of the next tokens. With dropout it takes a random key."""
    numpy, nn, forward = library.numpy, library.nn, forward_of(library, dropout)

    def loss(params: Mapping[str, Any], tokens: Any, targets: Any, key: Any = None) -> Any:
        log_probabilities = nn.log_softmax(forward(params, tokens, key), axis=-1)
        return -numpy.mean(numpy.take_along_axis(log_probabilities, targets[..., None], axis=-1))

    return loss


def adam_step_of(library: Library, rate: float) -> Callable[..., Any]:
    """Returns a step of Adam with dropout: `step(state, tokens, targets, seed) -> state` of parameters and moments."""
    numpy, map_leaves, loss = library.numpy, library.core.tree_util.tree_map, loss_of(library, 0.1)

    def step(state: Any, tokens: Any, targets: Any, seed: Any) -> Any:
        params, means, squares = state
        gradient = library.core.grad(loss)(params, tokens, targets, library.core.random.key(seed))
        means = map_leaves(lambda m, g: 0.9 * m + 0.1 * g, means, gradient)
        squares = map_leaves(lambda v, g: 0.999 * v + 0.001 * g * g, squares, gradient)
        params = map_leaves(lambda p, m, v: p - rate * m / (numpy.sqrt(v) + 1e-8), params, means, squares)
        return params, means, squares

    return step


def adam_arguments(blocks: int) -> tuple[Any, ...]:
    """Returns the arguments of `adam_step_of`."""
    return tuple([parameters(blocks) for _ in range(3)]), *text(), 0
