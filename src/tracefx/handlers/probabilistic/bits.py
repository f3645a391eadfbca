"""Random bits from keys, counter by counter.

Threefry-2x32 with 20 rounds: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011). The
numbers are those of `jax.random` for the same key. A key is `u32[2]`.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np

import tracefx.numpy as fnp
from tracefx import lax
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape
from tracefx.core.dtypes import DType
from tracefx.core.handler import as_array

U32: Final = np.dtype("uint32")
_PARITY: Final = np.uint32(0x1BD11BDA)
_TURNS: Final = np.array([[13, 15, 26, 6], [17, 29, 16, 24]], U32)
_Rounds: TypeAlias = tuple[Array, Array, Array, Array, Array, Array, Array]


def threefry(key: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """A block of two words, `u32[...]` each, for every pair of counters."""
    first, second = key[0], key[1]

    def rounds(carry: _Rounds, number: Array) -> tuple[_Rounds, None]:
        x, y, a, b, c, turns, others = carry
        for i in range(4):
            x = x + y
            y = ((y << turns[i]) | (y >> (np.uint32(32) - turns[i]))) ^ x
        return (x + b, y + c + number, b, c, a, others, turns), None

    keys = (first, second, first ^ second ^ _PARITY)
    start = (x + first, y + second, *keys, fnp.asarray(_TURNS[0]), fnp.asarray(_TURNS[1]))
    # A loop, since written out, twenty rounds for each draw take XLA seconds to compile.
    (x, y, _, _, _, _, _), _ = lax.scan(rounds, start, fnp.arange(1, 6, dtype=U32))
    return x, y


def _blocks(key: Array, shape: Shape) -> tuple[Array, Array]:
    """The blocks of the counters from 0 on."""
    counters = lax.iota(U32, math.prod(shape)).reshape(shape)
    return threefry(key, fnp.zeros_like(counters), counters)


def key_of(seed: ArrayLike) -> Array:
    """A key from an integer; a key, `u32[2]`, stays what it is."""
    if isinstance(seed, int) and not isinstance(seed, bool):
        return fnp.asarray(np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], U32))
    if isinstance(seed, (bool, float, complex)):
        raise TypeError(f"seed: the key must be an integer or a key, u32[2], got {seed!r}")
    x = as_array(seed)
    if x.shape == (2,) and x.dtype == U32:
        return x
    if x.shape == () and dtypes.is_integer(x.dtype):
        bits = np.dtype(x.dtype).itemsize * 8
        low = x.astype(U32)
        high = (x >> 32).astype(U32) if bits == 64 else fnp.zeros_like(low)
        return fnp.stack([high, low])
    raise TypeError(f"seed: the key must be an integer or a key, u32[2], got an array of type {x.aval}")


def split(key: Array, count: int = 2) -> Array:
    """`u32[count, 2]`: new keys, each for numbers that have nothing to do with those of the others."""
    return fnp.stack(_blocks(key, (count,)), axis=-1)


def uniform(key: Array, shape: Shape, dtype: DType) -> Array:
    """Numbers at least 0 and less than 1. Those of small types are rounded from `f32`."""
    first, second = _blocks(key, shape)
    if dtype == np.float64:
        word = (first.astype(np.uint64) << np.uint64(32)) | second.astype(np.uint64)
        word = (word >> np.uint64(12)) | np.uint64(0x3FF0000000000000)
        return lax.bitcast_convert_type(word, dtype) - np.float64(1)
    word = ((first ^ second) >> np.uint32(9)) | np.uint32(0x3F800000)
    return (lax.bitcast_convert_type(word, np.float32) - np.float32(1)).astype(dtype)


def normal(key: Array, shape: Shape, dtype: DType) -> Array:
    """Numbers of the standard normal distribution."""
    inner = dtype if dtype == np.float64 else np.dtype("float32")
    low = np.nextafter(np.array(-1, inner), np.array(0, inner))
    u = uniform(key, shape, inner)
    u = fnp.maximum(low, u * (inner.type(1) - low) + low)
    return (lax.erf_inv(u) * inner.type(np.sqrt(2))).astype(dtype)
