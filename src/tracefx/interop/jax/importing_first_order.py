"""Import rules for primitives without sub-jaxprs that have no tracefx primitive of the same name and parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from attrs import evolve

from tracefx import random
from tracefx.control.platform import PlatformIndex
from tracefx.core import Array, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array, bind, bind1
from tracefx.core.primitive import Primitive
from tracefx.interop.jax.importing_programs import Importer, ImportRule, JaxEquation, result_types
from tracefx.interop.jax.parameters import operation_from_jax
from tracefx.lax.elementwise import log2, one_minus_square, polynomial
from tracefx.lax.indexed_apply import apply_at_indices
from tracefx.ops.elementwise.bit_representation import bitcast_convert_type
from tracefx.ops.elementwise.bitwise import bitwise_xor
from tracefx.ops.elementwise.comparison import eq, le, lt
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select
from tracefx.ops.elementwise.transcendental import Log
from tracefx.ops.indexing.scatter import Scatter
from tracefx.ops.random.prng import RandomBits, RandomSeed, random_unwrap, random_wrap
from tracefx.ops.random.rng_bit_generator import rng_bit_generator
from tracefx.ops.reductions.reduction import reduce_max, reduce_min
from tracefx.ops.shape.shape import iota, squeeze
from tracefx.ops.shape.slicing import slice
from tracefx.ops.structural import broadcast_to, constant_like_aval, reduce_sum, reshape, transpose
from tracefx.sparse.bcoo import BCOO
from tracefx.sparse.bcsr import BCSR, bcsr_dot_general
from tracefx.sparse.contractions import bcoo_dot_general
from tracefx.transforms.vmap import vmap

# ------------------------------------------------------------------ renamed primitives and identities


def _identity(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Returns the operands: memory layouts and copies have no meaning here."""
    return args


def _add_any(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    x, y = args
    return [add(x, y)]


def _reshape(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    (x,), params = args, eqn.params
    if params["dimensions"] is not None:
        x = transpose(x, params["dimensions"])
    return [reshape(x, params["new_sizes"])]


def _empty(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    return [constant_like_aval(aval, 0) for aval in result_types(eqn)]


# ------------------------------------------------------------------ compositions of operations


def _log2(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    (x,), logarithm = args, operation_from_jax("log", eqn.params)
    assert isinstance(logarithm, Log)
    return [log2(x, accuracy=logarithm.accuracy)]


def _one_minus_square(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    (x,) = args
    return [one_minus_square(x)]


def _polynomial(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """The operands after `x` are coefficients, lowest degree first."""
    x, *coefficients = args
    return [polynomial(x, coefficients, unroll=eqn.params.get("unroll"))]


# ------------------------------------------------------------------ collectives

_Reduce = Callable[[Value, Sequence[int]], Array]


def collective_reduction_rule(reduce: _Reduce, operation: str) -> ImportRule:
    """Returns the rule for a sum or extremum over axes; `reduce` reduces positional axes of an operand."""

    def rule(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
        """Reduces over named axes, and over axes that `jax.vmap` has made positional."""
        axes = eqn.params["axes"]
        positions = [a for a in axes if isinstance(a, int)]
        names = tuple([a for a in axes if not isinstance(a, int)])
        values: Sequence[Value] = [reduce(x, positions) for x in args] if positions else args
        if not names:
            return values
        sizes = tuple(map(importer.size, names))
        params = {"axis_index_groups": None, **eqn.params, "axes": names}
        prim = operation_from_jax(operation, params, axis_sizes=sizes)
        return [bind1(prim, x) for x in values]

    return rule


def single_axis_rule(operation: str) -> ImportRule:
    """Returns the rule for a collective that has the size of its axis as a field."""

    def rule(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
        name = eqn.params["axis_name"]
        sizes = map(importer.size, name) if isinstance(name, tuple) else [importer.size(name)]
        return bind(operation_from_jax(operation, eqn.params, axis_size=math.prod(sizes)), *args)

    return rule


# ------------------------------------------------------------------ scatters


def _scatter(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Converts a scatter. With `update_jaxpr` it applies that function to the selected elements, ignoring updates."""
    prim = operation_from_jax("scatter", eqn.params)
    if eqn.params["update_jaxpr"] is None:
        return bind(prim, *args)
    assert isinstance(prim, Scatter)
    x, indices, updates = args
    consts = list(map(importer.constant, eqn.params["update_consts"]))

    def update(old: Array) -> Array:
        unused_update = constant_like_aval(ShapedArray((), updates.aval.dtype), 0)

        def update_element(element: Array) -> Array:
            (out,) = importer.run(eqn.params["update_jaxpr"], [*consts, element, unused_update])
            return as_array(out)

        return reshape(vmap(update_element)(reshape(old, (old.size,))), old.shape)

    return [apply_at_indices(prim, x, indices, update, updates.aval.shape)]


# ------------------------------------------------------------------ total order of floats


def _total_order_rule(compare: Callable[[Value, Value], Array]) -> ImportRule:
    """Compares floats in IEEE 754 total order: NaNs are ordered, -0.0 is below 0.0; as signed integers of the bits."""

    def rule(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
        x, y = args
        if not dtypes.is_float(x.aval.dtype):
            return [compare(x, y)]
        return [compare(_total_order_key(x), _total_order_key(y))]

    return rule


def _total_order_key(x: Value) -> Array:
    bits = dtypes.itemsize_bits(x.aval.dtype)
    ints = bitcast_convert_type(x, f"int{bits}")
    largest = constant_like_aval(ShapedArray(ints.shape, ints.dtype), (1 << (bits - 1)) - 1)
    return select(lt(ints, constant_like_aval(ints.aval.strong(), 0)), bitwise_xor(ints, as_array(largest)), ints)


# ------------------------------------------------------------------ random numbers


def _random_gamma(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Draws with each key separately; `jax.vmap` gives several keys."""
    keys, a = map(as_array, args)
    draw = random.loggamma if eqn.params["log_space"] else random.gamma
    if not keys.ndim:
        return [draw(keys, a, a.shape, a.dtype)]
    element_shape = a.shape[keys.ndim :]
    flat = reshape(a, (keys.size, *element_shape))
    out = vmap(lambda key, a: draw(key, a, element_shape, a.dtype))(reshape(keys, (keys.size,)), flat)
    return [reshape(out, a.shape)]


def _random_bits(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Draws random bits. For several keys, except Threefry keys, JAX draws the bits of all from the first key."""
    (keys,) = args
    prim = operation_from_jax("random_bits", eqn.params)
    if keys.aval.dtype == dtypes.key_fry or not keys.aval.ndim:
        return bind(prim, keys)
    assert isinstance(prim, RandomBits)
    return bind(evolve(prim, shape=(*keys.aval.shape, *prim.shape)), _first_key(keys))


def _random_split(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Splits keys. For several `unsafe_rbg` keys JAX derives all new keys from bits that the first key draws."""
    (keys,) = args
    if keys.aval.dtype != dtypes.key_urbg or not keys.aval.ndim:
        return bind(operation_from_jax("random_split", eqn.params), keys)
    shape = (*keys.aval.shape, *eqn.params["shape"])
    words_shape = (*keys.aval.shape, 10 * math.prod(eqn.params["shape"]), 4)
    words = rng_bit_generator(random_unwrap(_first_key(keys)), words_shape, dtypes.uint32)[1]
    strides = [1] * keys.aval.ndim + [10, 1]
    return [
        random_wrap(reshape(slice(words, [0] * len(words_shape), words_shape, strides), (*shape, 4)), keys.aval.dtype)
    ]


def _random_fold_in(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Folds data into keys. For several `unsafe_rbg` keys JAX derives them from bits that the first data key draws."""
    keys, data = args
    if keys.aval.dtype != dtypes.key_urbg or not data.aval.ndim:
        return _broadcast_operands(importer, eqn, args)
    seed = bind1(RandomSeed(dtypes.key_urbg), _first_key(data))
    words_shape = (*data.aval.shape, 10, 4)
    words = rng_bit_generator(random_unwrap(seed), words_shape, dtypes.uint32)[1]
    last = squeeze(slice(words, [0] * (len(words_shape) - 2) + [9, 0], words_shape), (len(words_shape) - 2,))
    shape = (*eqn.outvars[0].aval.shape, 4)
    mixed = bitwise_xor(broadcast_to(random_unwrap(keys), shape), broadcast_to(last, shape))
    return [random_wrap(mixed, dtypes.key_urbg)]


def _first_key(keys: Value) -> Array:
    """Returns the first key of an array of keys."""
    ndim = keys.aval.ndim
    return reshape(slice(keys, [0] * ndim, [1] * ndim), ())


def _broadcast_operands(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Broadcasts the operands to the result's shape and binds the primitive of the same name."""
    shape = eqn.outvars[0].aval.shape
    return bind(operation_from_jax(eqn.primitive.name, eqn.params), *[broadcast_to(x, shape) for x in args])


def _iota_2x32_shape(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Returns the linear indices of an array's elements as two 32-bit words."""
    shape = eqn.params["shape"]
    size = math.prod(shape)
    if size >= 1 << 32:
        raise NotImplementedError(f"from_jax: iota_2x32_shape of {shape} has more than 2**32 elements")
    high = as_array(constant_like_aval(ShapedArray(shape, dtypes.uint32), 0))
    return [high, reshape(iota(np.uint32, size), shape)]


# ------------------------------------------------------------------ sparse arrays


def _sparse_product(array: type[BCOO | BCSR], product: Callable[..., BCOO | Array]) -> ImportRule:
    def rule(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
        *arrays, rhs = map(as_array, args)
        params = eqn.params
        info = params["lhs_spinfo"]
        lhs = array(arrays, shape=info.shape, indices_sorted=info.indices_sorted, unique_indices=info.unique_indices)
        numbers, dtype = params["dimension_numbers"], params["preferred_element_type"]
        return [as_array(product(lhs, rhs, dimension_numbers=numbers, preferred_element_type=dtype))]

    return rule


# ------------------------------------------------------------------ platforms


def _platform_index(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    *named, default = eqn.params["platforms"]
    groups = named if default is None else [*named, default]
    if any(len(group) != 1 for group in groups):
        raise NotImplementedError(
            f"from_jax: platform_index of {eqn.params['platforms']}: a branch must be for one platform or the default"
        )
    return bind(PlatformIndex(tuple([name for (name,) in groups]), default is None))


def _tracefx_operation(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Binds a tracefx primitive that `to_jax` wrapped in a primitive of JAX."""
    prim: Primitive = eqn.params["operation"]
    return bind(prim, *args)


RULES: Final[Mapping[str, ImportRule]] = MappingProxyType(
    {
        "add_any": _add_any,
        "all_to_all": single_axis_rule("all_to_all"),
        "axis_index": single_axis_rule("axis_index"),
        "bcoo_dot_general": _sparse_product(BCOO, bcoo_dot_general),
        "bcsr_dot_general": _sparse_product(BCSR, bcsr_dot_general),
        "copy": _identity,
        "empty": _empty,
        "empty2": _empty,
        "eq_to": _total_order_rule(eq),
        "iota_2x32_shape": _iota_2x32_shape,
        "layout_constraint": _identity,
        "le_to": _total_order_rule(le),
        "log2": _log2,
        "lt_to": _total_order_rule(lt),
        "one_minus_square": _one_minus_square,
        "platform_index": _platform_index,
        "polynomial": _polynomial,
        "pmax": collective_reduction_rule(reduce_max, "pmax"),
        "pmin": collective_reduction_rule(reduce_min, "pmin"),
        "ppermute": single_axis_rule("ppermute"),
        "psum": collective_reduction_rule(reduce_sum, "psum"),
        "random_bits": _random_bits,
        "random_fold_in": _random_fold_in,
        "random_gamma": _random_gamma,
        "random_split": _random_split,
        "relayout": _identity,
        "reshape": _reshape,
        "scatter": _scatter,
        "threefry2x32": _broadcast_operands,
        "tracefx_operation": _tracefx_operation,
        "with_memory_space_constraint": _identity,
    }
)
"""Import rules by name of JAX's primitive."""
