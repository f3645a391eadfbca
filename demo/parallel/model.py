"""A small GPT over bytes: functions of a pytree of weights, independent of devices."""

from __future__ import annotations

import math
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import nn, random

Array: TypeAlias = fx.Array
T = TypeVar("T")
"""The type of the leaves: an array, or its partition spec."""


class Sizes(NamedTuple):
    """The sizes of the model. The mesh axis of the weights divides `heads` and `hidden`."""

    blocks: int = 2
    heads: int = 4
    head: int = 16
    hidden: int = 128
    context: int = 32
    tokens: int = 128

    @property
    def width(self) -> int:
        return self.heads * self.head


class Block(NamedTuple, Generic[T]):
    """The weights of a block; those of several blocks are stacked along a first axis."""

    qkv: T  # f32[width, 3, heads, head]
    out: T  # f32[heads, head, width]
    up: T  # f32[width, hidden]
    down: T  # f32[hidden, width]


class Params(NamedTuple, Generic[T]):
    tokens: T  # f32[tokens, width]
    positions: T  # f32[context, width]
    blocks: Block[T]


def new_params(sizes: Sizes, key: Array) -> Params[Array]:
    """Returns random weights, scaled by the square root of the number of inputs."""
    keys = iter(random.split(key, 6))

    def normal(inputs: int, *shape: int) -> Array:
        return random.normal(next(keys), shape) / math.sqrt(inputs)

    n, width = sizes.blocks, sizes.width
    return Params(
        normal(1, sizes.tokens, width) * 0.1,
        normal(1, sizes.context, width) * 0.1,
        Block(
            normal(width, n, width, 3, sizes.heads, sizes.head),
            normal(width, n, sizes.heads, sizes.head, width),
            normal(width, n, width, sizes.hidden),
            normal(sizes.hidden, n, sizes.hidden, width),
        ),
    )


def normalize(x: Array) -> Array:
    centred = x - fnp.mean(x, axis=-1, keepdims=True)
    return centred / fnp.sqrt(fnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def attention(block: Block[Array], x: Array) -> Array:
    """Returns causal self-attention with the heads that `block` contains: f32[batch, context, width]."""
    queries, keys, values = fnp.moveaxis(fnp.einsum("bsw,wchd->bschd", x, block.qkv), 2, 0)
    scores = fnp.einsum("bqhd,bkhd->bhqk", queries, keys) / block.qkv.shape[-1] ** 0.5
    causal = fnp.tril(fnp.ones((x.shape[1], x.shape[1]), bool))
    weights = nn.softmax(fnp.where(causal, scores, -1e9))
    return fnp.einsum("bhqk,bkhd,hdw->bqw", weights, values, block.out)


def feed_forward(block: Block[Array], x: Array) -> Array:
    """Returns the output of the hidden units that `block` contains: f32[batch, context, width]."""
    return nn.gelu(x @ block.up) @ block.down


def loss(params: Params[Array], text: Array) -> Array:
    """Returns the mean cross-entropy of the next tokens, in nats: i32[batch, context + 1] to f32[]."""

    def step(x: Array, block: Block[Array]) -> tuple[Array, None]:
        x = x + attention(block, normalize(x))
        return x + feed_forward(block, normalize(x)), None

    return cross_entropy(params, fx.lax.scan(step, embed(params, text), params.blocks)[0], text)


def embed(params: Params[Array], text: Array) -> Array:
    return params.tokens[text[:, :-1]] + params.positions


def cross_entropy(params: Params[Array], x: Array, text: Array) -> Array:
    logits = normalize(x) @ params.tokens.T
    return -fnp.mean(fnp.take_along_axis(nn.log_softmax(logits), text[:, 1:, None], axis=-1))
