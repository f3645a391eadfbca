"""Samples of the primitives for random keys."""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np
from jax import lax as jax_lax
from jax._src.random import prng, threefry2x32

from tests.laws.samples.making import Function, Sample, make_sample
from tracefx.core import dtypes
from tracefx.ops.random.prng import (
    RandomBits,
    RandomClone,
    RandomFoldIn,
    RandomSeed,
    RandomSplit,
    RandomUnwrap,
    RandomWrap,
    impl_name,
)
from tracefx.ops.random.rng_bit_generator import RngBitGenerator
from tracefx.ops.random.threefry import Threefry2x32

jax.config.update("jax_explicit_x64_dtypes", "allow")


def u32(*words: Any) -> Any:
    return np.array(words, np.uint32)


def keys(dtype: Any, *words: Any) -> Any:
    return u32(*words).view(dtype)[..., 0]


FRY: Final = keys(dtypes.key_fry, [1, 2], [3, 4])
RBG: Final = keys(dtypes.key_rbg, [1, 2, 3, 4], [5, 6, 7, 8])
URBG: Final = keys(dtypes.key_urbg, [1, 2, 3, 4], [5, 6, 7, 8])


def _random_split(p: Any) -> Function:
    return lambda keys: _each_key(lambda key: prng.random_split(key, p.shape), keys)


def _random_fold_in(p: Any) -> Function:
    return lambda keys, data: _each_key(prng.random_fold_in, keys, data)


SAMPLES: Final[tuple[Sample, ...]] = (
    make_sample(
        Threefry2x32(),
        (u32(1, 2), u32(3, 4), u32(5, 6), u32(7, 8)),
        reference=lambda p: threefry2x32.threefry2x32_p.bind,
    ),
    make_sample(
        RngBitGenerator((3,), dtypes.uint32),
        (u32(1, 2, 3, 4),),
        reference=lambda p: lambda state: _each_state(state, p.shape, p.dtype),
    ),
    make_sample(RngBitGenerator((2, 2), dtypes.uint8), (u32([1, 2, 3, 4], [5, 6, 7, 8]),)),
    make_sample(
        RandomSeed(dtypes.key_fry),
        (np.array([0, -3], np.int32),),
        (np.array([1 << 40], np.int64),),
        reference=lambda p: lambda seeds: prng.random_seed(seeds, _implementation(p.dtype)),
    ),
    make_sample(RandomSeed(dtypes.key_rbg), (np.array([0, 7], np.int32),)),
    *[make_sample(RandomSplit((3, 2)), (each,), reference=_random_split) for each in (FRY, RBG, URBG)],
    *[make_sample(RandomFoldIn(), (each, u32(5, 6)), reference=_random_fold_in) for each in (FRY, RBG, URBG)],
    *[make_sample(RandomBits(width, (3,)), (FRY,)) for width in (8, 32, 64)],
    *[make_sample(RandomBits(width, (3,), partitionable=False), (FRY,)) for width in (8, 32, 64)],
    make_sample(RandomSplit((3, 2), partitionable=False), (FRY,)),
    make_sample(
        RandomBits(16, (2, 2)),
        (RBG,),
        reference=lambda p: lambda keys: _each_key(lambda key: prng.random_bits(key, p.bit_width, p.shape), keys),
    ),
    make_sample(RandomClone(), (FRY,), reference=lambda p: jax.random.clone),
    make_sample(
        RandomWrap(dtypes.key_fry),
        (u32([1, 2], [3, 4]),),
        reference=lambda p: lambda words: prng.random_wrap(words, impl=_implementation(p.dtype)),
    ),
    make_sample(RandomUnwrap(), (FRY,), (RBG,), reference=lambda p: prng.random_unwrap),
)


def _implementation(dtype: Any) -> Any:
    return next(impl for impl in prng.prngs.values() if impl.tag == impl_name(dtype))


def _each_key(f: Function, keys: Any, *data: Any) -> Any:
    """Applies `f` to every key separately: batched `rbg` in JAX draws all numbers from the first key."""
    if not keys.ndim or not keys.shape[0]:
        return f(keys, *data)
    return jax.numpy.stack([_each_key(f, *each) for each in zip(keys, *data, strict=True)])


def _each_state(state: Any, shape: Any, dtype: Any) -> Any:
    if state.ndim < 2:
        return jax_lax.rng_bit_generator(state, shape, dtype)
    if not state.shape[0]:
        return [state, jax.numpy.zeros((0, *shape), dtype)]
    results = [_each_state(each, shape, dtype) for each in state]
    return [jax.numpy.stack([each[i] for each in results]) for i in range(2)]
