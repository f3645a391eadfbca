"""Rules for JAX's primitives without programs inside that are no operation of the same name and parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from attrs import evolve

from tracefx import random
from tracefx.control.platform import PlatformIndex
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import as_array, bind, bind1
from tracefx.core.primitive import Primitive
from tracefx.core.values import Value
from tracefx.interop.jax.importing_programs import Importer, ImportRule, JaxEquation, result_types
from tracefx.interop.jax.parameters import operation_from_jax
from tracefx.lax.indexed_apply import apply_at_indices
from tracefx.ops.elementwise.arithmetic import mul, sub
from tracefx.ops.elementwise.bit_representation import bitcast_convert_type
from tracefx.ops.elementwise.bitwise import bitwise_xor
from tracefx.ops.elementwise.comparison import eq, le, lt
from tracefx.ops.elementwise.complex import complex, imag, real
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select
from tracefx.ops.indexing.scatter import Scatter
from tracefx.ops.random.prng import RandomBits, RandomSeed, random_unwrap, random_wrap
from tracefx.ops.random.rng_bit_generator import rng_bit_generator
from tracefx.ops.reductions.reduction import reduce_max, reduce_min
from tracefx.ops.shape.shape import iota, squeeze
from tracefx.ops.shape.slicing import slice
from tracefx.ops.structural import broadcast_to, constant_like_aval, reduce_sum, reshape, transpose
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.vmap import vmap

# ------------------------------------------------------------------ the same under another name, or nothing at all


def _identity(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """How an array lies in memory, and who has copied it, is no matter."""
    return args


def _add_any(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    x, y = args
    return [add(x, y)]


def _reshape(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    (x,), params = args, eqn.params
    if params["dimensions"] is not None:
        x = transpose(x, params["dimensions"])
    return [reshape(x, params["new_sizes"])]


def _empty(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    return [constant_like_aval(aval, 0) for aval in result_types(eqn)]


# ------------------------------------------------------------------ compositions of operations


def _log2(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """The natural logarithm times `1 / log(2)`, for complex operands part by part: `inf * 0j` would be NaN."""
    logarithm = bind1(operation_from_jax("log", eqn.params), *args)
    dtype = logarithm.aval.dtype
    scale = constant_like_aval(ShapedArray((), dtypes.real_dtype(dtype)), 1 / math.log(2))
    if not dtypes.is_complex(dtype):
        return [mul(logarithm, scale)]
    return [complex(mul(real(logarithm), scale), mul(imag(logarithm), scale))]


@custom_jvp
def one_minus_square(x: Array) -> Array:
    """`1 - x**2`, accurate near -1 and 1. The product rule would lose the derivative `-2 * x` near 0."""
    return mul(add(1, x), sub(1, x))


one_minus_square.defjvps(lambda t, out, x: mul(t, mul(-2, x)))


def _one_minus_square(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    (x,) = args
    return [one_minus_square(as_array(x))]


def _polynomial(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Horner's rule. The coefficients are operands, the lowest degree first."""
    shape = eqn.outvars[0].aval.shape
    x, *rest, value = [operand if not operand.aval.shape else broadcast_to(operand, shape) for operand in args]
    for coefficient in reversed(rest):
        value = add(mul(value, x), coefficient)
    return [value if value.aval.shape == shape else broadcast_to(value, shape)]


# ------------------------------------------------------------------ collectives

_Reduce = Callable[[Value, Sequence[int]], Array]


def collective_reduction_rule(reduce: _Reduce, operation: str) -> ImportRule:
    """The rule for a sum, or the largest or least, along axes: `reduce` is what it is along axes of an operand."""

    def rule(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
        """Along named axes, and along those that `jax.vmap` has made axes of the operands."""
        axes = eqn.params["axes"]
        places = [a for a in axes if isinstance(a, int)]
        names = tuple([a for a in axes if not isinstance(a, int)])
        values: Sequence[Value] = [reduce(x, places) for x in args] if places else args
        if not names:
            return values
        sizes = tuple(map(translation.size, names))
        params = {"axis_index_groups": None, **eqn.params, "axes": names}
        prim = operation_from_jax(operation, params, axis_sizes=sizes)
        return [bind1(prim, x) for x in values]

    return rule


def single_axis_rule(operation: str) -> ImportRule:
    """The rule for a collective that has the size of its axis as a field."""

    def rule(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
        name = eqn.params["axis_name"]
        sizes = map(translation.size, name) if isinstance(name, tuple) else [translation.size(name)]
        return bind(operation_from_jax(operation, eqn.params, axis_size=math.prod(sizes)), *args)

    return rule


# ------------------------------------------------------------------ scatters


def _scatter(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """With a program of its own it applies that program, which doesn't look at the updates, to what it finds."""
    prim = operation_from_jax("scatter", eqn.params)
    if eqn.params["update_jaxpr"] is None:
        return bind(prim, *args)
    assert isinstance(prim, Scatter)
    x, indices, updates = args
    consts = list(map(translation.constant, eqn.params["update_consts"]))

    def changed(old: Array) -> Array:
        none = constant_like_aval(ShapedArray((), updates.aval.dtype), 0)

        def one(element: Array) -> Array:
            (out,) = translation.run(eqn.params["update_jaxpr"], [*consts, element, none])
            return as_array(out)

        return reshape(vmap(one)(reshape(old, (old.size,))), old.shape)

    return [apply_at_indices(prim, x, indices, changed, updates.aval.shape)]


# ------------------------------------------------------------------ comparisons in the order of all numbers


def _total_order_rule(compare: Callable[[Value, Value], Array]) -> ImportRule:
    """NaNs have a place in this order, and -0.0 is below 0.0: that of the bits, read as numbers with a sign."""

    def rule(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
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


def _random_gamma(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Each key of several, as there are under `jax.vmap`, draws what it draws alone."""
    keys, a = map(as_array, args)
    draw = random.loggamma if eqn.params["log_space"] else random.gamma
    if not keys.ndim:
        return [draw(keys, a, a.shape, a.dtype)]
    rest = a.shape[keys.ndim :]
    flat = reshape(a, (keys.size, *rest))
    out = vmap(lambda key, a: draw(key, a, rest, a.dtype))(reshape(keys, (keys.size,)), flat)
    return [reshape(out, a.shape)]


def _random_bits(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Of several keys that aren't of Threefry, as there are under `jax.vmap`, JAX has the first draw for all."""
    (keys,) = args
    prim = operation_from_jax("random_bits", eqn.params)
    if keys.aval.dtype == dtypes.key_fry or not keys.aval.ndim:
        return bind(prim, keys)
    assert isinstance(prim, RandomBits)
    return bind(evolve(prim, shape=(*keys.aval.shape, *prim.shape)), _first_key(keys))


def _random_split(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """The same for keys that are made of what a key draws."""
    (keys,) = args
    if keys.aval.dtype != dtypes.key_urbg or not keys.aval.ndim:
        return bind(operation_from_jax("random_split", eqn.params), keys)
    shape = (*keys.aval.shape, *eqn.params["shape"])
    drawn = (*keys.aval.shape, 10 * math.prod(eqn.params["shape"]), 4)
    words = rng_bit_generator(random_unwrap(_first_key(keys)), drawn, dtypes.uint32)[1]
    strides = [1] * keys.aval.ndim + [10, 1]
    return [random_wrap(reshape(slice(words, [0] * len(drawn), drawn, strides), (*shape, 4)), keys.aval.dtype)]


def _random_fold_in(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """The same for keys that are made of what a key of the data draws."""
    keys, data = args
    if keys.aval.dtype != dtypes.key_urbg or not data.aval.ndim:
        return _broadcast_operands(translation, eqn, args)
    seed = bind1(RandomSeed(dtypes.key_urbg), _first_key(data))
    drawn = (*data.aval.shape, 10, 4)
    words = rng_bit_generator(random_unwrap(seed), drawn, dtypes.uint32)[1]
    last = squeeze(slice(words, [0] * (len(drawn) - 2) + [9, 0], drawn), (len(drawn) - 2,))
    shape = (*eqn.outvars[0].aval.shape, 4)
    mixed = bitwise_xor(broadcast_to(random_unwrap(keys), shape), broadcast_to(last, shape))
    return [random_wrap(mixed, dtypes.key_urbg)]


def _first_key(keys: Value) -> Array:
    """The first of several keys."""
    ndim = keys.aval.ndim
    return reshape(slice(keys, [0] * ndim, [1] * ndim), ())


def _broadcast_operands(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Operands that JAX stretches over axes of size 1, and over all axes where they have none."""
    shape = eqn.outvars[0].aval.shape
    return bind(operation_from_jax(eqn.primitive.name, eqn.params), *[broadcast_to(x, shape) for x in args])


def _iota_2x32_shape(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """The numbers of an array's elements, in two words."""
    shape = eqn.params["shape"]
    size = math.prod(shape)
    if size >= 1 << 32:
        raise NotImplementedError(f"from_jax: iota_2x32_shape of {shape} has more elements than one word can count")
    high = as_array(constant_like_aval(ShapedArray(shape, dtypes.uint32), 0))
    return [high, reshape(iota(np.uint32, size), shape)]


# ------------------------------------------------------------------ platforms


def _platform_index(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    *named, last = eqn.params["platforms"]
    groups = named if last is None else [*named, last]
    if any(len(group) != 1 for group in groups):
        raise NotImplementedError(
            f"from_jax: platform_index of {eqn.params['platforms']}: a branch must be for one platform, or the default"
        )
    return bind(PlatformIndex(tuple([name for (name,) in groups]), last is None))


def _tracefx_operation(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """An operation of tracefx that `to_jax` handed to JAX as it is."""
    prim: Primitive = eqn.params["operation"]
    return bind(prim, *args)


RULES: Final[Mapping[str, ImportRule]] = MappingProxyType(
    {
        "add_any": _add_any,
        "all_to_all": single_axis_rule("all_to_all"),
        "axis_index": single_axis_rule("axis_index"),
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
"""By the names of JAX's primitives."""
