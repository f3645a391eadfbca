"""A GPT of six blocks for either library: tokens to the cross-entropy loss of the next tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks.libraries import Library

TOKENS: Final = 512
WIDTH: Final = 128
HEADS: Final = 4
BLOCKS: Final = 6
BATCH: Final = 4
LENGTH: Final = 64


def parameters() -> dict[str, Any]:
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Any:
        return (random.normal(size=(rows, columns)) / rows**0.5).astype(np.float32)

    def normalizing() -> tuple[Any, Any]:
        return np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)

    return {
        "tokens": matrix(TOKENS, WIDTH),
        "positions": matrix(LENGTH, WIDTH),
        "blocks": [
            {
                "first": normalizing(),
                "attention": matrix(WIDTH, 3 * WIDTH),
                "out": matrix(WIDTH, WIDTH),
                "second": normalizing(),
                "up": matrix(WIDTH, 4 * WIDTH),
                "down": matrix(4 * WIDTH, WIDTH),
            }
            for _ in range(BLOCKS)
        ],
        "last": normalizing(),
    }


def text() -> tuple[Any]:
    """Returns a batch of token sequences: `i32[BATCH, LENGTH + 1]`."""
    return (np.random.default_rng(1).integers(0, TOKENS, (BATCH, LENGTH + 1)).astype(np.int32),)


def loss_of(library: Library, epsilon: float = 1e-5) -> Callable[..., Any]:
    numpy, nn = library.numpy, library.nn

    def normalized(x: Any, params: tuple[Any, Any]) -> Any:
        scale, shift = params
        mean = numpy.mean(x, axis=-1, keepdims=True)
        variance = numpy.mean((x - mean) ** 2, axis=-1, keepdims=True)
        return (x - mean) / numpy.sqrt(variance + epsilon) * scale + shift

    def block(x: Any, params: dict[str, Any]) -> Any:
        parts = numpy.split(normalized(x, params["first"]) @ params["attention"], 3, axis=-1)
        query, key, value = [each.reshape(*x.shape[:-1], HEADS, WIDTH // HEADS) for each in parts]
        attended = nn.dot_product_attention(query, key, value, is_causal=True)
        x = x + attended.reshape(x.shape) @ params["out"]
        return x + nn.gelu(normalized(x, params["second"]) @ params["up"]) @ params["down"]

    def loss(params: dict[str, Any], tokens: Any) -> Any:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = params["tokens"][inputs] + params["positions"]
        for each in params["blocks"]:
            x = block(x, each)
        scores = nn.log_softmax(normalized(x, params["last"]) @ params["tokens"].T)
        return -numpy.mean(numpy.take_along_axis(scores, targets[..., None], axis=-1))

    return loss
