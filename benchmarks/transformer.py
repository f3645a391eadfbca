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


def forward_of(library: Library) -> Callable[..., Any]:
    """The scores of every word at every place: `f32[batch, length, words]`."""
    numpy, nn = library.numpy, library.nn

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

    def forward(params: Mapping[str, Any], words: Any) -> Any:
        x = params["words"][words] + params["places"]
        for block in params["blocks"]:
            x = x + attention(normalized(x, *block["before attention"]), block)
            x = x + perceptron(normalized(x, *block["before perceptron"]), block)
        return normalized(x, *params["last"]) @ params["words"].T

    return forward


def loss_of(library: Library) -> Callable[..., Any]:
    """How surprising the next words are, on average."""
    numpy, nn, forward = library.numpy, library.nn, forward_of(library)

    def loss(params: Mapping[str, Any], words: Any, following: Any) -> Any:
        log_probabilities = nn.log_softmax(forward(params, words), axis=-1)
        return -numpy.mean(numpy.take_along_axis(log_probabilities, following[..., None], axis=-1))

    return loss
