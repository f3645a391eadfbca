"""Random keys: creating, splitting and inspecting them, and drawing random bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from tracefx.core import Array, ArrayLike, DType, DTypeLike, Value, as_value, dtypes, is_arraylike
from tracefx.core.handler import as_array, bind1
from tracefx.core.named_sharding import OutSharding
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
from tracefx.settings import NUMERIC_OPTIONS

IMPLEMENTATIONS: Final[Mapping[str, DType]] = MappingProxyType(
    {"threefry2x32": dtypes.key_fry, "rbg": dtypes.key_rbg, "unsafe_rbg": dtypes.key_urbg}
)
_NAMES: Final[Mapping[DType, str]] = MappingProxyType({dtype: name for name, dtype in IMPLEMENTATIONS.items()})
_DTYPE_BY_WORD_COUNT: Final[Mapping[int, DType]] = MappingProxyType({2: dtypes.key_fry, 4: dtypes.key_rbg})
"""The key dtype assumed for keys that are passed as raw `uint32` words."""


def key_dtype(impl_spec: str | DType | None = None) -> DType:
    """Returns the key dtype of a random number generator.

    NumPy prints it as a record of words; arrays, abstract values and error messages show it as `key<fry>`.

    Args:
        impl_spec: the generator: `"threefry2x32"` (the default), `"rbg"` or `"unsafe_rbg"`; or its key dtype.

    Returns:
        The dtype.

    Raises:
        TypeError: if `impl_spec` is a dtype, but not a key dtype.
        ValueError: if no generator has this name.

    >>> from tracefx import random
    >>> random.key(0).dtype == random.key_dtype("threefry2x32")
    True
    """
    if impl_spec is None:
        return IMPLEMENTATIONS[NUMERIC_OPTIONS.value.prng_impl]
    if isinstance(impl_spec, str):
        dtype = IMPLEMENTATIONS.get(impl_spec)
        if dtype is None:
            raise ValueError(f"unknown random generator {impl_spec!r}; expected one of {', '.join(IMPLEMENTATIONS)}")
        return dtype
    if not dtypes.is_key(dtypes.as_dtype(impl_spec, "impl_spec")):
        raise TypeError(f"a random generator must be given as one of {', '.join(IMPLEMENTATIONS)}, or as a key dtype")
    return impl_spec


def key(seed: int | ArrayLike, *, impl: str | DType | None = None, dtype: str | DType | None = None) -> Array:
    """Creates a random key from an integer seed. Derive all keys of a program from one by `split`.

    Args:
        seed: an integer, or an array `int[]`, of which up to 64 bits are used.
        impl: the generator: `"threefry2x32"` (the default), `"rbg"` or `"unsafe_rbg"`; or its key dtype.
        dtype: another name for `impl`.

    Returns:
        `key<...>[]`.

    Raises:
        TypeError: if `seed` is not a single integer.
        OverflowError: if `seed` is a Python integer of more than 64 bits.
        ValueError: if the generator is unknown, or both `impl` and `dtype` are given.

    >>> from tracefx import random
    >>> random.key(0)
    Array(key<fry>[], words=[0, 0])
    """
    return _key_from_seed("key", seed, _resolve_impl("key", impl, dtype))


def _resolve_impl(name: str, impl: str | DType | None, dtype: str | DType | None) -> DType:
    """Returns the key dtype given by `impl` or its synonym `dtype`."""
    if dtype is not None and impl is not None:
        raise ValueError(f"{name}: impl and dtype are synonyms; pass only one of them")
    return key_dtype(impl if dtype is None else dtype)


def PRNGKey(seed: int | ArrayLike, *, impl: str | DType | None = None) -> Array:
    """Creates a random key in the legacy form: an array of its `uint32` words.

    All functions of this package accept it as a key. It serves programs older than key dtypes. Words are plain numbers:
    nothing prevents arithmetic on them, and those of `unsafe_rbg` are taken for `rbg`. New programs use `key`.

    Args:
        seed: an integer, or an array `int[]`, of which up to 64 bits are used.
        impl: the generator: `"threefry2x32"` (the default), `"rbg"` or `"unsafe_rbg"`; or its key dtype.

    Returns:
        `u32[2]` or `u32[4]`.

    Raises:
        TypeError: if `seed` is not a single integer.
        OverflowError: if `seed` is a Python integer of more than 64 bits.
        ValueError: if the generator is unknown.

    >>> from tracefx import random
    >>> random.PRNGKey(0)
    Array([0, 0], dtype=uint32)
    """
    made = _key_from_seed("PRNGKey", seed, key_dtype(impl))
    return made if NUMERIC_OPTIONS.value.typed_raw_keys else random_unwrap(made)


def _key_from_seed(name: str, seed: int | ArrayLike, dtype: DType) -> Array:
    if isinstance(seed, int):
        if not -(1 << 63) <= seed < 1 << 64:
            raise OverflowError(f"{name}: the seed {seed} has more than 64 bits: hash it, or split it with fold_in")
        wide = np.array(seed & ((1 << 64) - 1), np.uint64).view(np.int64)
        x = as_value(wide.astype(dtypes.default_int()))  # truncated to the bits of the default integer dtype
    else:
        x = as_value(seed, "seed")
    if dtypes.is_key(x.aval.dtype):
        raise TypeError(f"{name} takes an integer as the seed, got a key, {x.aval}; use split to derive new keys")
    if x.aval.shape or not dtypes.is_integer(x.aval.dtype):
        raise TypeError(f"{name} takes a single integer as the seed, got {x.aval}; for several keys use tracefx.vmap")
    return bind1(RandomSeed(dtype), x)


def check_key(name: str, key: ArrayLike) -> tuple[Array, bool]:
    """Returns a single key for the function `name`, and whether it was given as raw words.

    Raises:
        TypeError: if `key` is not a random key.
        ValueError: if `key` is an array of keys.
    """
    keys, as_words = check_keys(name, key)
    if keys.ndim:
        raise ValueError(
            f"{name} takes a single key, got an array of keys, {keys.aval}; map it over them with tracefx.vmap"
        )
    return keys, as_words


def check_keys(name: str, key: ArrayLike) -> tuple[Array, bool]:
    """Returns an array of keys for the function `name`, and whether it was given as raw words.

    Raises:
        TypeError: if `key` is neither a random key nor raw words.
    """
    if not is_arraylike(key):
        raise TypeError(
            f"{name} takes a random key as its first argument, got {key!r} of type {type(key).__name__}; make one with "
            "tracefx.random.key(seed)"
        )
    x: Value = as_value(key)
    if dtypes.is_key(x.aval.dtype):
        return as_array(x), False
    words = x.aval.shape[-1] if x.aval.shape else 0
    if x.aval.dtype != dtypes.uint32 or words not in _DTYPE_BY_WORD_COUNT:
        raise TypeError(f"{name} takes a random key, got {x.aval}; make one with tracefx.random.key(seed)")
    return random_wrap(x, _DTYPE_BY_WORD_COUNT[words]), True


def _wrap_like_input(keys: Array, as_words: bool) -> Array:
    """Returns keys as raw words if the input was given so."""
    return random_unwrap(keys) if as_words else keys


def split(key: ArrayLike, num: int | Sequence[int] = 2) -> Array:
    """Splits a key into new independent keys. The original key must not be used again.

    Args:
        key: a random key, `key<...>[]`.
        num: the number of new keys, or the shape of an array of them.

    Returns:
        `key<...>[num]`, or raw words if `key` was given as such.

    Raises:
        TypeError: if `key` is not a random key.
        ValueError: if `key` is an array of keys; map over it with `vmap`.

    >>> from tracefx import random
    >>> first, second = random.split(random.key(0))
    >>> first
    Array(key<fry>[], words=[1797259609, 2579123966])
    """
    checked_key, as_words = check_key("split", key)
    shape = static_shape("split", tuple(num) if isinstance(num, Sequence) else (num,), "num")
    return _wrap_like_input(bind1(RandomSplit(shape, NUMERIC_OPTIONS.value.partitionable), checked_key), as_words)


def fold_in(key: ArrayLike, data: ArrayLike) -> Array:
    """Derives a new key from a key and an integer, e.g. a step counter; different integers give different keys.

    Args:
        key: a random key, `key<...>[]`.
        data: an unsigned integer of 32 bits, or an array `int[]`, of which 32 bits are used.

    Returns:
        `key<...>[]`, or raw words if `key` was given as such.

    Raises:
        TypeError: if `data` is not a single integer.
        OverflowError: if `data` is a negative Python integer, or one of more than 32 bits.

    >>> from tracefx import random
    >>> random.fold_in(random.key(0), 7)
    Array(key<fry>[], words=[2716826189, 292468403])
    """
    checked_key, as_words = check_key("fold_in", key)
    if isinstance(data, int):
        if not 0 <= data < 1 << 32:
            raise OverflowError(f"fold_in: data must be an integer from 0 to 2**32 - 1, got {data}; hash it first")
        data = np.uint32(data)
    x = as_value(data, "data")
    if x.aval.shape or not (dtypes.is_integer(x.aval.dtype) or dtypes.is_bool(x.aval.dtype)):
        raise TypeError(f"fold_in takes a single integer as data, got {x.aval}; for several use tracefx.vmap")
    return _wrap_like_input(bind1(RandomFoldIn(), checked_key, convert(x, dtypes.uint32)), as_words)


def key_data(keys: ArrayLike) -> Array:
    """Returns the raw words of keys.

    Args:
        keys: an array of keys.

    Returns:
        `u32[..., 2]` or `u32[..., 4]`, depending on the generator.

    >>> from tracefx import random
    >>> random.key_data(random.key(3))
    Array([0, 3], dtype=uint32)
    """
    checked_keys, as_words = check_keys("key_data", keys)
    return as_array(as_value(keys)) if as_words else random_unwrap(checked_keys)


def wrap_key_data(
    key_bits_array: ArrayLike, *, impl: str | DType | None = None, dtype: str | DType | None = None
) -> Array:
    """Creates keys from raw words: the inverse of `key_data`.

    Args:
        key_bits_array: `u32[..., n]`, with the words along the last axis.
        impl: the generator: `"threefry2x32"` (the default), `"rbg"` or `"unsafe_rbg"`; or its key dtype.
        dtype: another name for `impl`.

    Returns:
        `key<...>[...]`.

    Raises:
        ShapeError: if the number of words is not that of the generator.
        TypeError: if the dtype is not uint32.
        ValueError: if the generator is unknown, or both `impl` and `dtype` are given.

    >>> from tracefx import random
    >>> random.wrap_key_data(np.array([0, 3], np.uint32))
    Array(key<fry>[], words=[0, 3])
    """
    return random_wrap(as_value(key_bits_array, "key_bits_array"), _resolve_impl("wrap_key_data", impl, dtype))


def key_impl(keys: ArrayLike) -> str:
    """Returns the name of the generator that keys belong to.

    Args:
        keys: an array of keys.

    Returns:
        `"threefry2x32"`, `"rbg"` or `"unsafe_rbg"`.

    >>> from tracefx import random
    >>> random.key_impl(random.key(0))
    'threefry2x32'
    """
    return _NAMES[check_keys("key_impl", keys)[0].aval.dtype]


def clone(key: ArrayLike) -> Array:
    """Copies keys, to use them again deliberately: key reuse checkers treat the copies as new keys.

    Args:
        key: an array of keys.

    Returns:
        The same keys.

    >>> from tracefx import random
    >>> random.clone(random.key(0))
    Array(key<fry>[], words=[0, 0])
    """
    checked_keys, as_words = check_keys("clone", key)
    return _wrap_like_input(bind1(RandomClone(), checked_keys), as_words)


def bits(
    key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *, out_sharding: OutSharding = None
) -> Array:
    """Draws uniform random bits as unsigned integers.

    Args:
        key: a random key, `key<...>[]`.
        shape: the shape of the result.
        dtype: `uint8`, `uint16`, `uint32` or `uint64`; by default `uint32`, or `uint64` if 64-bit types are enabled.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape]`.

    Raises:
        ValueError: if `dtype` is another dtype.

    >>> from tracefx import random
    >>> random.bits(random.key(0), (2,))
    Array([4070199207, 4202968722], dtype=uint32)
    """
    checked_key, _ = check_key("bits", key)
    uint_dtype = dtypes.default_uint() if dtype is None else dtypes.as_dtype(dtype)
    if uint_dtype not in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64):
        raise ValueError(f"bits: dtype must be an unsigned integer of 8 bits or more, got {uint_dtype}")
    return random_bits(checked_key, dtypes.itemsize_bits(uint_dtype), sizes_of("bits", shape))


def random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    """Draws random bits as unsigned integers of `bit_width` bits."""
    return bind1(RandomBits(bit_width, shape, NUMERIC_OPTIONS.value.partitionable), key)
