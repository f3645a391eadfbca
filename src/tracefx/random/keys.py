"""Random keys: where all random numbers come from, made once and split ever after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.core.handler import as_array, bind1
from tracefx.core.values import Value, as_value
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.ops.operation import static_shape
from tracefx.ops.random.prng import (
    RandomBits,
    RandomClone,
    RandomFoldIn,
    RandomSeed,
    RandomSplit,
    random_unwrap,
    random_wrap,
)
from tracefx.ops.structural import convert

IMPLEMENTATIONS: Final[Mapping[str, DType]] = MappingProxyType(
    {"threefry2x32": dtypes.key_fry, "rbg": dtypes.key_rbg, "unsafe_rbg": dtypes.key_urbg}
)
_NAMES: Final[Mapping[DType, str]] = MappingProxyType({dtype: name for name, dtype in IMPLEMENTATIONS.items()})
_DTYPE_BY_WORD_COUNT: Final[Mapping[int, DType]] = MappingProxyType({2: dtypes.key_fry, 4: dtypes.key_rbg})
"""What keys are that come as their words."""


def key_dtype(impl_spec: str | DType | None = None) -> DType:
    """The dtype of the keys of a generator, `threefry2x32` if none is named, `rbg` or `unsafe_rbg`.

    Printed by itself it is what NumPy calls it, a record of words; arrays, types and errors say `key<fry>`.

    Raises ValueError for another name, TypeError for a dtype that isn't one of keys.

    >>> from tracefx import random
    >>> random.key(0).dtype == random.key_dtype("threefry2x32")
    True
    """
    if impl_spec is None:
        return dtypes.key_fry
    if isinstance(impl_spec, str):
        found = IMPLEMENTATIONS.get(impl_spec)
        if found is None:
            raise ValueError(f"no random generator is called {impl_spec!r}; there are {', '.join(IMPLEMENTATIONS)}")
        return found
    if not dtypes.is_key(dtypes.as_dtype(impl_spec, "impl_spec")):
        raise TypeError(f"a random generator is named by one of {', '.join(IMPLEMENTATIONS)}, or by its dtype of keys")
    return impl_spec


def key(seed: int | ArrayLike, *, impl: str | DType | None = None, dtype: str | DType | None = None) -> Array:
    """A key, `key<...>[]`, made of an integer. All random numbers of a program can come from one key, by `split`.

    Args:
        seed: an integer, or an array `int[]`, of whose bits up to 64 count.
        impl: the generator: `threefry2x32`, the default, `rbg` or `unsafe_rbg`; or the dtype of its keys.
        dtype: another name for `impl`.

    Raises:
        TypeError: if `seed` is no single integer.
        ValueError: for an unknown generator, and if both `impl` and `dtype` are given.

    >>> from tracefx import random
    >>> random.key(0)
    Array(key<fry>[], words=[0, 0])
    """
    return _key_from_seed("key", seed, _resolve_impl("key", impl, dtype))


def _resolve_impl(name: str, impl: str | DType | None, dtype: str | DType | None) -> DType:
    if dtype is not None and impl is not None:
        raise ValueError(f"{name}: impl and dtype mean the same; give one of them")
    return key_dtype(impl if dtype is None else dtype)


def PRNGKey(seed: int | ArrayLike, *, impl: str | DType | None = None) -> Array:
    """The words of `key(seed, impl=impl)`, `u32[2]` or `u32[4]`, which all functions here take for the key itself.

    For programs that are older than keys of a dtype of their own. Words are numbers: nothing keeps them from being
    added up, and those of `unsafe_rbg` are taken for those of `rbg`.

    >>> from tracefx import random
    >>> random.PRNGKey(0)
    Array([0, 0], dtype=uint32)
    """
    return random_unwrap(_key_from_seed("PRNGKey", seed, key_dtype(impl)))


def _key_from_seed(name: str, seed: int | ArrayLike, dtype: DType) -> Array:
    if isinstance(seed, int) and not isinstance(seed, bool):
        wide = np.array(seed & ((1 << 64) - 1), np.uint64).view(np.int64)
        x = as_value(wide.astype(dtypes.default_int()))  # of larger ones, as many bits as integers have
    else:
        x = as_value(seed, "seed")
    if dtypes.is_key(x.aval.dtype):
        raise TypeError(f"{name} takes an integer as the seed, got a key, {x.aval}; split makes new keys of it")
    if x.aval.shape or not dtypes.is_integer(x.aval.dtype):
        raise TypeError(f"{name} takes a single integer as the seed, got {x.aval}; for several keys use tracefx.vmap")
    return bind1(RandomSeed(dtype), x)


def check_key(name: str, key: ArrayLike) -> tuple[Array, bool]:
    """A single key for function `name`, and whether it came as its words."""
    keys, as_words = check_keys(name, key)
    if keys.ndim:
        raise ValueError(
            f"{name} takes a single key, got an array of keys, {keys.aval}; map it over them with tracefx.vmap"
        )
    return keys, as_words


def check_keys(name: str, key: ArrayLike) -> tuple[Array, bool]:
    """An array of keys for function `name`, and whether it came as the words of keys."""
    x: Value = as_value(key, "key")
    if dtypes.is_key(x.aval.dtype):
        return as_array(x), False
    words = x.aval.shape[-1] if x.aval.shape else 0
    if x.aval.dtype != dtypes.uint32 or words not in _DTYPE_BY_WORD_COUNT:
        raise TypeError(f"{name} takes a random key, got {x.aval}; make one with tracefx.random.key(seed)")
    return random_wrap(x, _DTYPE_BY_WORD_COUNT[words]), True


def _wrap_like_input(keys: Array, as_words: bool) -> Array:
    return random_unwrap(keys) if as_words else keys


def split(key: ArrayLike, num: int | Sequence[int] = 2) -> Array:
    """New keys, `key<...>[num]`, of one that is not to be used any more. `num` may be a whole shape.

    Raises TypeError if `key` is none, ValueError for an array of keys, over which `vmap` maps.

    >>> from tracefx import random
    >>> first, second = random.split(random.key(0))
    >>> first
    Array(key<fry>[], words=[1797259609, 2579123966])
    """
    one, as_words = check_key("split", key)
    shape = static_shape("split", tuple(num) if isinstance(num, Sequence) else (num,), "num")
    return _wrap_like_input(bind1(RandomSplit(shape), one), as_words)


def fold_in(key: ArrayLike, data: ArrayLike) -> Array:
    """A new key of a key and an integer, `int[]`, such as the number of a step; another one for every integer.

    Raises TypeError if `data` is no single integer.

    >>> from tracefx import random
    >>> random.fold_in(random.key(0), 7)
    Array(key<fry>[], words=[2716826189, 292468403])
    """
    one, as_words = check_key("fold_in", key)
    if isinstance(data, int) and not isinstance(data, bool):
        data = np.uint32(data & 0xFFFFFFFF)
    x = as_value(data, "data")
    if x.aval.shape or not (dtypes.is_integer(x.aval.dtype) or dtypes.is_bool(x.aval.dtype)):
        raise TypeError(f"fold_in takes a single integer as data, got {x.aval}; for several use tracefx.vmap")
    return _wrap_like_input(bind1(RandomFoldIn(), one, convert(x, dtypes.uint32)), as_words)


def key_data(keys: ArrayLike) -> Array:
    """The words that keys are made of, `u32[..., 2]` or `u32[..., 4]`.

    >>> from tracefx import random
    >>> random.key_data(random.key(3))
    Array([0, 3], dtype=uint32)
    """
    found, as_words = check_keys("key_data", keys)
    return as_array(as_value(keys)) if as_words else random_unwrap(found)


def wrap_key_data(
    key_bits_array: ArrayLike, *, impl: str | DType | None = None, dtype: str | DType | None = None
) -> Array:
    """Keys, `key<...>[...]`, of their words, which are along the last axis: the opposite of `key_data`.

    Raises TypeError for a dtype other than uint32, ShapeError for another number of words than the generator's.

    >>> from tracefx import random
    >>> random.wrap_key_data(np.array([0, 3], np.uint32))
    Array(key<fry>[], words=[0, 3])
    """
    return random_wrap(as_value(key_bits_array, "key_bits_array"), _resolve_impl("wrap_key_data", impl, dtype))


def key_impl(keys: ArrayLike) -> str:
    """The name of the generator that keys are for.

    >>> from tracefx import random
    >>> random.key_impl(random.key(0))
    'threefry2x32'
    """
    return _NAMES[check_keys("key_impl", keys)[0].aval.dtype]


def clone(key: ArrayLike) -> Array:
    """The same keys, for another use on purpose: what looks for keys that are used twice takes them for new ones.

    >>> from tracefx import random
    >>> random.clone(random.key(0))
    Array(key<fry>[], words=[0, 0])
    """
    found, as_words = check_keys("clone", key)
    return _wrap_like_input(bind1(RandomClone(), found), as_words)


def bits(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Array:
    """Random bits, as unsigned integers of 8, 16, 32 or 64 bits: `dtype[*shape]`, uint32 unless 64 bits are enabled.

    Raises ValueError for other dtypes.

    >>> from tracefx import random
    >>> random.bits(random.key(0), (2,))
    Array([4070199207, 4202968722], dtype=uint32)
    """
    one, _ = check_key("bits", key)
    kind = dtypes.default_uint() if dtype is None else dtypes.as_dtype(dtype)
    if kind not in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64):
        raise ValueError(f"bits: dtype must be an unsigned integer of 8 bits or more, got {kind}")
    return random_bits(one, dtypes.itemsize_bits(kind), sizes_of("bits", shape))


def random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    return bind1(RandomBits(bit_width, shape), key)
