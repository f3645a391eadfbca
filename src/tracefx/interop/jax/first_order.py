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
from tracefx.interop.jax.parameters import operation_from_jax
from tracefx.interop.jax.translating import Equation, Rule, Translation, given_types
from tracefx.lax.applying import applied_at
from tracefx.ops.arithmetic import mul, sub
from tracefx.ops.basis import broadcast_to, filled, reduce_sum, reshape, transpose
from tracefx.ops.bit_generator import rng_bit_generator
from tracefx.ops.bitwise import bitwise_xor
from tracefx.ops.comparison import eq, le, lt
from tracefx.ops.complex import complex, imag, real
from tracefx.ops.cutting import slice
from tracefx.ops.elementwise import add
from tracefx.ops.keys import RandomBits, RandomSeed, random_unwrap, random_wrap
from tracefx.ops.reduction import reduce_max, reduce_min
from tracefx.ops.representation import bitcast_convert_type
from tracefx.ops.scattering import Scatter
from tracefx.ops.selection import select
from tracefx.ops.shape import iota, squeeze
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.vmap import vmap

# ------------------------------------------------------------------ the same under another name, or nothing at all


def _as_it_is(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    """How an array lies in memory, and who has copied it, is no matter."""
    return args


def _sum(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    x, y = args
    return [add(x, y)]


def _reshape(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    (x,), params = args, eqn.params
    if params["dimensions"] is not None:
        x = transpose(x, params["dimensions"])
    return [reshape(x, params["new_sizes"])]


def _empty(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    return [filled(aval, 0) for aval in given_types(eqn)]


# ------------------------------------------------------------------ compositions of operations


def _log2(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    """The natural logarithm times `1 / log(2)`, for complex operands part by part: `inf * 0j` would be NaN."""
    logarithm = bind1(operation_from_jax("log", eqn.params), *args)
    dtype = logarithm.aval.dtype
    scale = filled(ShapedArray((), dtypes.real_dtype(dtype)), 1 / math.log(2))
    if not dtypes.is_complex(dtype):
        return [mul(logarithm, scale)]
    return [complex(mul(real(logarithm), scale), mul(imag(logarithm), scale))]


@custom_jvp
def one_minus_square(x: Array) -> Array:
    """`1 - x**2`, accurate near -1 and 1. The product rule would lose the derivative `-2 * x` near 0."""
    return mul(add(1, x), sub(1, x))


one_minus_square.defjvps(lambda t, out, x: mul(t, mul(-2, x)))


def _one_minus_square(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    (x,) = args
    return [one_minus_square(as_array(x))]


def _polynomial(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    """Horner's rule. The coefficients are operands, the lowest degree first."""
    shape = eqn.outvars[0].aval.shape
    x, *rest, value = [operand if not operand.aval.shape else broadcast_to(operand, shape) for operand in args]
    for coefficient in reversed(rest):
        value = add(mul(value, x), coefficient)
    return [value if value.aval.shape == shape else broadcast_to(value, shape)]


# ------------------------------------------------------------------ collectives

_Reduce = Callable[[Value, Sequence[int]], Array]


def reduction(reduce: _Reduce, operation: str) -> Rule:
    """The rule for a sum, or the largest or least, along axes: `reduce` is what it is along axes of an operand."""

    def rule(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
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


def along_one(operation: str) -> Rule:
    """The rule for a collective that has the size of its axis as a field."""

    def rule(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
        name = eqn.params["axis_name"]
        sizes = map(translation.size, name) if isinstance(name, tuple) else [translation.size(name)]
        return bind(operation_from_jax(operation, eqn.params, axis_size=math.prod(sizes)), *args)

    return rule


# ------------------------------------------------------------------ scatters


def _scatter(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    """With a program of its own it applies that program, which doesn't look at the updates, to what it finds."""
    prim = operation_from_jax("scatter", eqn.params)
    if eqn.params["update_jaxpr"] is None:
        return bind(prim, *args)
    assert isinstance(prim, Scatter)
    x, indices, updates = args
    consts = list(map(translation.constant, eqn.params["update_consts"]))

    def changed(old: Array) -> Array:
        none = filled(ShapedArray((), updates.aval.dtype), 0)

        def one(element: Array) -> Array:
            (out,) = translation.run(eqn.params["update_jaxpr"], [*consts, element, none])
            return as_array(out)

        return reshape(vmap(one)(reshape(old, (old.size,))), old.shape)

    return [applied_at(prim, x, indices, changed, updates.aval.shape)]


# ------------------------------------------------------------------ comparisons in the order of all numbers


def _total(compare: Callable[[Value, Value], Array]) -> Rule:
    """NaNs have a place in this order, and -0.0 is below 0.0: that of the bits, read as numbers with a sign."""

    def rule(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
        x, y = args
        if not dtypes.is_float(x.aval.dtype):
            return [compare(x, y)]
        return [compare(_ordered(x), _ordered(y))]

    return rule


def _ordered(x: Value) -> Array:
    bits = dtypes.itemsize_bits(x.aval.dtype)
    ints = bitcast_convert_type(x, f"int{bits}")
    largest = filled(ShapedArray(ints.shape, ints.dtype), (1 << (bits - 1)) - 1)
    return select(lt(ints, filled(ints.aval.strong(), 0)), bitwise_xor(ints, as_array(largest)), ints)


# ------------------------------------------------------------------ random numbers


def _random_gamma(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    """Each key of several, as there are under `jax.vmap`, draws what it draws alone."""
    keys, a = map(as_array, args)
    draw = random.loggamma if eqn.params["log_space"] else random.gamma
    if not keys.ndim:
        return [draw(keys, a, a.shape, a.dtype)]
    rest = a.shape[keys.ndim :]
    flat = reshape(a, (keys.size, *rest))
    out = vmap(lambda key, a: draw(key, a, rest, a.dtype))(reshape(keys, (keys.size,)), flat)
    return [reshape(out, a.shape)]


def _random_bits(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    """Of several keys that aren't of Threefry, as there are under `jax.vmap`, JAX has the first draw for all."""
    (keys,) = args
    prim = operation_from_jax("random_bits", eqn.params)
    if keys.aval.dtype == dtypes.key_fry or not keys.aval.ndim:
        return bind(prim, keys)
    assert isinstance(prim, RandomBits)
    return bind(evolve(prim, shape=(*keys.aval.shape, *prim.shape)), _first(keys))


def _random_split(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    """The same for keys that are made of what a key draws."""
    (keys,) = args
    if keys.aval.dtype != dtypes.key_urbg or not keys.aval.ndim:
        return bind(operation_from_jax("random_split", eqn.params), keys)
    shape = (*keys.aval.shape, *eqn.params["shape"])
    drawn = (*keys.aval.shape, 10 * math.prod(eqn.params["shape"]), 4)
    words = rng_bit_generator(random_unwrap(_first(keys)), drawn, dtypes.uint32)[1]
    strides = [1] * keys.aval.ndim + [10, 1]
    return [random_wrap(reshape(slice(words, [0] * len(drawn), drawn, strides), (*shape, 4)), keys.aval.dtype)]


def _random_fold_in(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    """The same for keys that are made of what a key of the data draws."""
    keys, data = args
    if keys.aval.dtype != dtypes.key_urbg or not data.aval.ndim:
        return _of_one_shape(translation, eqn, args)
    seed = bind1(RandomSeed(dtypes.key_urbg), _first(data))
    drawn = (*data.aval.shape, 10, 4)
    words = rng_bit_generator(random_unwrap(seed), drawn, dtypes.uint32)[1]
    last = squeeze(slice(words, [0] * (len(drawn) - 2) + [9, 0], drawn), (len(drawn) - 2,))
    shape = (*eqn.outvars[0].aval.shape, 4)
    mixed = bitwise_xor(broadcast_to(random_unwrap(keys), shape), broadcast_to(last, shape))
    return [random_wrap(mixed, dtypes.key_urbg)]


def _first(keys: Value) -> Array:
    """The first of several keys."""
    ndim = keys.aval.ndim
    return reshape(slice(keys, [0] * ndim, [1] * ndim), ())


def _of_one_shape(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    """Operands that JAX stretches over axes of size 1, and over all axes where they have none."""
    shape = eqn.outvars[0].aval.shape
    return bind(operation_from_jax(eqn.primitive.name, eqn.params), *[broadcast_to(x, shape) for x in args])


def _counters(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    """The numbers of an array's elements, in two words."""
    shape = eqn.params["shape"]
    size = math.prod(shape)
    if size >= 1 << 32:
        raise NotImplementedError(f"from_jax: iota_2x32_shape of {shape} has more elements than one word can count")
    high = as_array(filled(ShapedArray(shape, dtypes.uint32), 0))
    return [high, reshape(iota(np.uint32, size), shape)]


# ------------------------------------------------------------------ platforms


def _platform(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    *named, last = eqn.params["platforms"]
    groups = named if last is None else [*named, last]
    if any(len(group) != 1 for group in groups):
        raise NotImplementedError(
            f"from_jax: platform_index of {eqn.params['platforms']}: a branch must be for one platform, or the default"
        )
    return bind(PlatformIndex(tuple([name for (name,) in groups]), last is None))


def _ours(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    """An operation of tracefx that `to_jax` handed to JAX as it is."""
    prim: Primitive = eqn.params["operation"]
    return bind(prim, *args)


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "add_any": _sum,
        "all_to_all": along_one("all_to_all"),
        "axis_index": along_one("axis_index"),
        "copy": _as_it_is,
        "empty": _empty,
        "empty2": _empty,
        "eq_to": _total(eq),
        "iota_2x32_shape": _counters,
        "layout_constraint": _as_it_is,
        "le_to": _total(le),
        "log2": _log2,
        "lt_to": _total(lt),
        "one_minus_square": _one_minus_square,
        "platform_index": _platform,
        "polynomial": _polynomial,
        "pmax": reduction(reduce_max, "pmax"),
        "pmin": reduction(reduce_min, "pmin"),
        "ppermute": along_one("ppermute"),
        "psum": reduction(reduce_sum, "psum"),
        "random_bits": _random_bits,
        "random_fold_in": _random_fold_in,
        "random_gamma": _random_gamma,
        "random_split": _random_split,
        "relayout": _as_it_is,
        "reshape": _reshape,
        "scatter": _scatter,
        "threefry2x32": _of_one_shape,
        "tracefx_operation": _ours,
        "with_memory_space_constraint": _as_it_is,
    }
)
"""By the names of JAX's primitives."""
