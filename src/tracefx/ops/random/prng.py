"""Random key primitives: seeding, splitting, folding in data, drawing bits.

Keys have dtypes of their own, which arithmetic does not accept. The dtype determines the generator, and each primitive
is defined by operations on the key's words: `fry` uses the cipher Threefry-2x32; `rbg` draws bits with XLA's
RngBitGenerator and splits and folds with Threefry; `urbg` uses RngBitGenerator for everything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.core import Array, DType, Shape, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array, bind, bind1
from tracefx.core.primitive import Batchable, BatchDims, Expandable, MappedAxis, Primitive
from tracefx.core.type_sharding import Spec
from tracefx.dimensions.symbolic_dimensions import exceeds
from tracefx.errors import ShapeError
from tracefx.lowering import Builder, IrValue, Lowerable, SharedExpansion
from tracefx.ops.collectives.collective import NOT_IN_JAX
from tracefx.ops.elementwise.bitwise import bitwise_or, bitwise_xor, shift_left, shift_right_logical
from tracefx.ops.operation import require_arity, run_compiled
from tracefx.ops.random.rng_bit_generator import rng_bit_generator
from tracefx.ops.random.threefry import threefry2x32
from tracefx.ops.shape.array_creation import iota
from tracefx.ops.shape.shape import concatenate, squeeze, stack
from tracefx.ops.shape.slicing import slice
from tracefx.ops.structural import batch_first, broadcast_in_dim, convert_element_type, reshape
from tracefx.text.printer import HasJaxParams

BIT_WIDTHS: Final[Mapping[int, DType]] = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}
"""The dtype of random bits, by width."""


def impl_name(dtype: DType) -> str:
    """Returns the name of a key dtype's generator: `fry` for `key<fry>`."""
    return dtypes.name(dtype)[len("key<") : -1]


def _require_keys(name: str, aval: ShapedArray) -> None:
    """Raises TypeError unless the operand consists of random keys."""
    if not dtypes.is_key(aval.dtype):
        raise TypeError(f"{name} takes random keys, got {aval}; make them with tracefx.random.key")


class KeyOperation(Primitive, Batchable):
    """A primitive that applies to each key of an array. The keys' axes lead in its operands and results.

    >>> from tracefx import bind, ops, random
    >>> bind(ops.RandomSplit((2,)), random.key(0))[0].shape
    (2,)
    """

    __slots__ = ()

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [(*avals[0].spec, *[None] * out.ndim)[: out.ndim] for out in outs]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_compiled(self, args)

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        operands = [batch_first(x, dim, axis) for x, dim in zip(args, dims, strict=True)]
        outs = bind(self, *operands)
        return outs, [0] * len(outs)

    def single_aval(self, avals: Sequence[ShapedArray]) -> ShapedArray:
        """Returns the aval of the only operand; raises if there are others."""
        require_arity(self.name, 1, avals)
        return avals[0]


# ------------------------------------------------------------------ conversion between keys and words


@final
@frozen(eq=False)
class RandomWrap(KeyOperation, Lowerable, HasJaxParams):
    """Converts words to keys; the last axis of the operand holds the words of one key.

    Args:
        dtype: The dtype of the keys, which names the generator.

    `words: u32[..., 2] -> key<fry>[...]`, with four words for other generators. Bound by `random.wrap_key_data`.
    """

    name = "random_wrap"
    dtype: DType

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        words, count = self.single_aval(avals), dtypes.key_data_size(self.dtype)
        if words.dtype != dtypes.uint32:
            raise TypeError(f"{dtypes.name(self.dtype)} consists of u32 words, got {words}")
        if words.shape[-1:] != (count,):
            raise ShapeError(f"{dtypes.name(self.dtype)} has {count} words along the last axis, got {words}")
        return [ShapedArray(words.shape[:-1], self.dtype)]

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        (words,) = operands
        return [builder.retype_keys(words, self.abstract_eval(words.aval)[0])]

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {"impl": impl_name(self.dtype)}


@final
class RandomUnwrap(KeyOperation, Lowerable):
    """Converts keys to their words, along a new last axis.

    `keys: key<fry>[...] -> u32[..., 2]`, with four words for other generators. Bound by `random.key_data`.
    """

    name = "random_unwrap"

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        keys = self.single_aval(avals)
        _require_keys(self.name, keys)
        return [ShapedArray((*keys.shape, dtypes.key_data_size(keys.dtype)), dtypes.uint32)]

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        (keys,) = operands
        return [builder.retype_keys(keys, self.abstract_eval(keys.aval)[0])]


@final
class RandomClone(KeyOperation, Lowerable):
    """Returns its operand, as keys that may be used again.

    `keys: key<fry>[...] -> key<fry>[...]`, keys of any generator. Bound by `random.clone`.
    """

    name = "random_clone"

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        keys = self.single_aval(avals)
        _require_keys(self.name, keys)
        return [keys]

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return operands


def random_wrap(words: Value, impl: DType) -> Array:
    """Returns the keys of dtype `impl` that consist of `words`."""
    return bind1(RandomWrap(impl), words)


def random_unwrap(keys: Value) -> Array:
    """Returns the words of keys, along a new last axis."""
    return bind1(RandomUnwrap(), keys)


# ------------------------------------------------------------------ new keys


@final
@frozen(eq=False)
class RandomSeed(KeyOperation, Expandable, HasJaxParams):
    """The key of each integer seed.

    Args:
        dtype: The dtype of the keys, which names the generator.

    `seeds: i32[...] -> key<fry>[...]`, integers. Bound by `random.key`.
    """

    name = "random_seed"
    dtype: DType

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        seeds = self.single_aval(avals)
        if not dtypes.is_integer(seeds.dtype):
            raise TypeError(f"the seed of a random key must be an integer, got {seeds}")
        return [ShapedArray(seeds.shape, self.dtype)]

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return [random_wrap(_seed_words(as_array(args[0]), self.dtype), self.dtype)]

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {"impl": impl_name(self.dtype)}


@final
@frozen(eq=False)
class RandomSplit(KeyOperation, SharedExpansion):
    """Derives an array of new keys from each key.

    Args:
        shape: The shape of the array of new keys.
        partitionable: Whether each new key is computed from its own index, which is the default; otherwise as in JAX
            with `jax_threefry_partitionable=False`.

    `keys: key<fry>[...] -> key<fry>[..., *shape]`, keys of any generator. Bound by `random.split`.
    """

    name = "random_split"
    shape: Shape
    partitionable: bool = field(default=True, metadata={**NOT_IN_JAX, "hide_default": True})

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        keys = self.single_aval(avals)
        _require_keys(self.name, keys)
        return [keys.update(shape=(*keys.shape, *self.shape))]

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        (keys,) = args
        impl, words = keys.aval.dtype, random_unwrap(keys)
        if impl == dtypes.key_fry:
            new = _threefry_split(words, self.shape, self.partitionable)
        elif impl == dtypes.key_rbg:
            halves = [_threefry_split(half, self.shape, self.partitionable) for half in _halves(words)]
            new = concatenate(halves, halves[0].ndim - 1)
        else:
            new = _hash_words(words, math.prod(self.shape))
            new = reshape(new, (*keys.aval.shape, *self.shape, 4))
        return [random_wrap(new, impl)]


@final
class RandomFoldIn(KeyOperation, SharedExpansion):
    """Derives a new key from each key and the word at the same position.

    `keys: key<fry>[...], data: u32[...] -> key<fry>[...]`, keys of any generator. Bound by `random.fold_in`.
    """

    name = "random_fold_in"

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        require_arity(self.name, 2, avals)
        keys, data = avals
        _require_keys(self.name, keys)
        if data.dtype != dtypes.uint32:
            raise TypeError(f"random_fold_in takes u32 words, got {data}; convert them with astype")
        if data.shape != keys.shape:
            raise ShapeError(f"random_fold_in takes one word for each key, got {data} for {keys}")
        return [keys]

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        keys, data = args
        impl, words, numbers = keys.aval.dtype, random_unwrap(keys), as_array(data)
        if impl == dtypes.key_fry:
            new = _threefry_fold_in(words, numbers)
        elif impl == dtypes.key_rbg:
            new = concatenate([_threefry_fold_in(half, numbers) for half in _halves(words)], keys.aval.ndim)
        else:
            new = bitwise_xor(words, squeeze(_hash_words(_seed_words(numbers, impl), 1, last=True), (keys.aval.ndim,)))
        return [random_wrap(new, impl)]


# ------------------------------------------------------------------ bits


@final
@frozen(eq=False)
class RandomBits(KeyOperation, SharedExpansion):
    """Draws an array of uniformly random unsigned integers from each key.

    Args:
        bit_width: The number of bits of an integer: 8, 16, 32 or 64.
        shape: The shape of the array.
        partitionable: Whether Threefry computes each integer from its own index, which is the default; otherwise as in
            JAX with `jax_threefry_partitionable=False`.

    `keys: key<fry>[...] -> u32[..., *shape]` with `bit_width=32`; keys of any generator. Bound by `random.bits`.
    """

    name = "random_bits"
    bit_width: int
    shape: Shape
    partitionable: bool = field(default=True, metadata={**NOT_IN_JAX, "hide_default": True})

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        keys = self.single_aval(avals)
        _require_keys(self.name, keys)
        return [ShapedArray((*keys.shape, *self.shape), BIT_WIDTHS[self.bit_width])]

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        (keys,) = args
        words, dtype = random_unwrap(keys), BIT_WIDTHS[self.bit_width]
        if keys.aval.dtype != dtypes.key_fry:
            return [rng_bit_generator(words, self.shape, dtype)[1]]
        if not self.partitionable:
            full = (*keys.aval.shape, *self.shape)
            return [reshape(_threefry_sequence(words, math.prod(self.shape), self.bit_width), full)]
        high, low = _threefry_blocks(words, self.shape)
        if self.bit_width == 64:
            return [bitwise_or(shift_left(convert_element_type(high, dtype), 32), convert_element_type(low, dtype))]
        return [convert_element_type(bitwise_xor(high, low), dtype)]


# ------------------------------------------------------------------ words


def _seed_words(seeds: Array, impl: DType) -> Array:
    """Returns the words of keys made from seeds: the high and low halves of each seed, twice for `rbg`.

    The high half of a seed of at most 32 bits is 0.
    """
    if dtypes.itemsize_bits(seeds.dtype) == 64:
        high = convert_element_type(shift_right_logical(seeds, 32), dtypes.uint32)
    else:
        high = broadcast_in_dim(np.uint32(0), seeds.shape, ())
    words = stack([high, convert_element_type(seeds, dtypes.uint32)], seeds.ndim)
    return words if impl == dtypes.key_fry else concatenate([words, words], seeds.ndim)


def _columns(words: Array) -> list[Array]:
    """Returns the first words of all keys, the second words, and so on."""
    *shape, count = words.shape
    starts, ends = [0] * len(shape), list(shape)
    return [squeeze(slice(words, (*starts, i), (*ends, i + 1)), (len(shape),)) for i in range(count)]


def _halves(words: Array) -> list[Array]:
    """Returns the two Threefry keys that a key of `rbg` consists of."""
    *shape, _ = words.shape
    starts, ends = [0] * len(shape), list(shape)
    return [slice(words, (*starts, i), (*ends, i + 2)) for i in (0, 2)]


def _threefry_blocks(words: Array, shape: Shape) -> tuple[Array, Array]:
    """Returns both words of a Threefry block for each element of `shape`, with its row-major index as the counter."""
    lead = words.shape[:-1]
    size, full, axes = math.prod(shape), (*lead, *shape), tuple(range(len(lead), len(lead) + len(shape)))
    if not exceeds(size, (1 << 32) - 1):
        low = reshape(iota(dtypes.uint32, size), shape)
        high = broadcast_in_dim(np.uint32(0), shape, ())
    else:
        indices = reshape(iota(dtypes.uint64, size), shape)
        low = convert_element_type(indices, dtypes.uint32)
        high = convert_element_type(shift_right_logical(indices, 32), dtypes.uint32)
    first, second = [broadcast_in_dim(column, full, tuple(range(len(lead)))) for column in _columns(words)]
    return threefry2x32(first, second, *[broadcast_in_dim(counter, full, axes) for counter in (high, low)])


def _threefry_words(words: Array, count: int) -> Array:
    """Returns `count` words from each key: the first words of all Threefry blocks, then the second ones.

    The counters of a block are its index and the index of its second word, which is 0 if that is not used.
    """
    if exceeds(count, (1 << 32) - 1):
        raise ValueError(f"{count} words are too many for counters of 32 bits: use jax_threefry_partitionable=True")
    lead, half = words.shape[:-1], (count + 1) // 2
    index = iota(dtypes.uint32, half)
    second = concatenate([slice(iota(dtypes.uint32, count), (half,), (count,)), iota(dtypes.uint32, count % 2)], 0)
    axes, full = tuple(range(len(lead))), (*lead, half)
    keys = [broadcast_in_dim(column, full, axes) for column in _columns(words)]
    blocks = threefry2x32(*keys, *[broadcast_in_dim(x, full, (len(lead),)) for x in (index, second)])
    return slice(concatenate(list(blocks), len(lead)), (0,) * len(full), (*lead, count))


def _threefry_sequence(words: Array, size: int, bit_width: int) -> Array:
    """Returns `size` integers from each key, made of words in a sequence."""
    lead, dtype = words.shape[:-1], BIT_WIDTHS[bit_width]
    drawn, axis = _threefry_words(words, -(-size * bit_width // 32)), len(lead)
    starts = (0,) * len(lead)
    if bit_width == 64:
        high, low = [
            convert_element_type(slice(drawn, (*starts, i * size), (*lead, (i + 1) * size)), dtype) for i in (0, 1)
        ]
        return bitwise_or(shift_left(high, 64 // 2), low)
    per_word = 32 // bit_width
    parts = [convert_element_type(shift_right_logical(drawn, i * bit_width), dtype) for i in range(per_word)]
    return slice(reshape(stack(parts, axis + 1), (*lead, drawn.shape[-1] * per_word)), (*starts, 0), (*lead, size))


def _threefry_split(words: Array, shape: Shape, partitionable: bool = True) -> Array:
    """Returns the words of new keys."""
    if not partitionable:
        return reshape(_threefry_words(words, 2 * math.prod(shape)), (*words.shape[:-1], *shape, 2))
    first, second = _threefry_blocks(words, shape)
    return stack([first, second], first.ndim)


def _threefry_fold_in(words: Array, numbers: Array) -> Array:
    """Returns the words of new keys."""
    counters = _columns(_seed_words(numbers, dtypes.key_fry))
    return stack(threefry2x32(*_columns(words), *counters), numbers.ndim)


_ITERATIONS: Final = 10
"""The number of draws of XLA's generator after which its bits serve as a hash of its state."""


def _hash_words(words: Array, count: int, last: bool = False) -> Array:
    """Returns new states `u32[..., count, 4]`: the first, or the last, of every `_ITERATIONS` draws."""
    _, drawn = rng_bit_generator(words, (_ITERATIONS * count, 4))
    lead, first = drawn.shape[:-2], _ITERATIONS - 1 if last else 0
    starts, ends = (*[0] * len(lead), first, 0), (*lead, _ITERATIONS * count, 4)
    return slice(drawn, starts, ends, (*[1] * len(lead), _ITERATIONS, 1))
