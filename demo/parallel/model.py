"""A small GPT over bytes: an ordinary function of a tree of weights, which knows nothing of devices."""

from __future__ import annotations

import math
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import nn, random

Array: TypeAlias = fx.Array
T = TypeVar("T")
"""What there is for each of the weights: an array, or where it lies."""


class Sizes(NamedTuple):
    """How large the model is; `heads` and `hidden` are cut by the axis of the mesh along which weights lie."""

    blocks: int = 2
    heads: int = 4
    head: int = 16
    hidden: int = 128
    context: int = 32
    letters: int = 128

    @property
    def width(self) -> int:
        return self.heads * self.head


class Block(NamedTuple, Generic[T]):
    """The weights of one block; those of several are stacked along a first axis."""

    qkv: T  # f32[width, 3, heads, head]
    out: T  # f32[heads, head, width]
    up: T  # f32[width, hidden]
    down: T  # f32[hidden, width]


class Params(NamedTuple, Generic[T]):
    letters: T  # f32[letters, width]
    places: T  # f32[context, width]
    blocks: Block[T]


def new_params(sizes: Sizes, key: Array) -> Params[Array]:
    """Random weights, scaled so that what leaves a product is about as large as what enters it."""
    keys = iter(random.split(key, 6))

    def drawn(inputs: int, *shape: int) -> Array:
        return random.normal(next(keys), shape) / math.sqrt(inputs)

    n, width = sizes.blocks, sizes.width
    return Params(
        drawn(1, sizes.letters, width) * 0.1,
        drawn(1, sizes.context, width) * 0.1,
        Block(
            drawn(width, n, width, 3, sizes.heads, sizes.head),
            drawn(width, n, sizes.heads, sizes.head, width),
            drawn(width, n, width, sizes.hidden),
            drawn(sizes.hidden, n, sizes.hidden, width),
        ),
    )


def normalized(x: Array) -> Array:
    centred = x - fnp.mean(x, axis=-1, keepdims=True)
    return centred / fnp.sqrt(fnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def attended(block: Block[Array], x: Array) -> Array:
    """What the heads at hand make of it, of which each letter sees those before it: f32[batch, context, width]."""
    queries, keys, values = fnp.moveaxis(fnp.einsum("bsw,wchd->bschd", x, block.qkv), 2, 0)
    scores = fnp.einsum("bqhd,bkhd->bhqk", queries, keys) / block.qkv.shape[-1] ** 0.5
    seen = fnp.tril(fnp.ones((x.shape[1], x.shape[1]), bool))
    shares = nn.softmax(fnp.where(seen, scores, -1e9))
    return fnp.einsum("bhqk,bkhd,hdw->bqw", shares, values, block.out)


def thought(block: Block[Array], x: Array) -> Array:
    """What the part of the hidden layer at hand makes of it."""
    return nn.gelu(x @ block.up) @ block.down


def loss(params: Params[Array], text: Array) -> Array:
    """The mean surprise at the next letter, in nats: i32[batch, context + 1] to f32[]."""

    def step(x: Array, block: Block[Array]) -> tuple[Array, None]:
        x = x + attended(block, normalized(x))
        return x + thought(block, normalized(x)), None

    return surprise(params, fx.lax.scan(step, embedded(params, text), params.blocks)[0], text)


def embedded(params: Params[Array], text: Array) -> Array:
    return params.letters[text[:, :-1]] + params.places


def surprise(params: Params[Array], x: Array, text: Array) -> Array:
    logits = normalized(x) @ params.letters.T
    return -fnp.mean(fnp.take_along_axis(nn.log_softmax(logits), text[:, 1:, None], axis=-1))
