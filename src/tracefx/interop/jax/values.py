"""Arrays, random keys and their types, from JAX and to JAX.

On the CPU nothing is copied where both can use the memory as it lies. Trees go by the map of the side they come from:
`jax.tree.map(as_tracefx, tree)`, `tracefx.tree.map(as_jax, tree)`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, cast

import jax
import numpy as np
from jax.extend.core import primitives

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import Tracer
from tracefx.core.key_data import from_key_data, to_key_data
from tracefx.core.values import ConcreteArray, Value, as_value, from_jax_array, to_numpy
from tracefx.errors import TracerArrayConversionError
from tracefx.interop.jax.meshes import is_cpu_sharded, sharded_array_from_jax, sharded_array_to_jax
from tracefx.shardings.sharded_array import ShardedArray

JaxType: TypeAlias = jax.core.ShapedArray

_PRNG_IMPLS: Final[Mapping[DType, str]] = MappingProxyType(
    {dtypes.key_fry: "threefry2x32", dtypes.key_rbg: "rbg", dtypes.key_urbg: "unsafe_rbg"}
)
"""What JAX calls the generator of keys of a dtype."""

_KEY_DTYPES: Final[Mapping[str, DType]] = MappingProxyType({dtypes.name(dtype): dtype for dtype in _PRNG_IMPLS})
"""Dtypes of keys by their names, which are the same in JAX."""

_X64_DTYPES: Final = frozenset({dtypes.int64, dtypes.uint64, dtypes.float64, dtypes.complex128})

# ------------------------------------------------------------------ types


def key_implementation(dtype: DType) -> str:
    """What JAX calls the generator that keys of a dtype are for; ValueError for other dtypes.

    >>> key_implementation(dtypes.key_fry)
    'threefry2x32'
    """
    try:
        return _PRNG_IMPLS[dtype]
    except KeyError:
        raise ValueError(f"{dtypes.name(dtype)} is no dtype of random keys") from None


@functools.cache
def dtype_to_jax(dtype: DType) -> DType:
    """JAX's dtype: another one for random keys alone.

    >>> dtype_to_jax(dtypes.key_rbg), dtype_to_jax(dtypes.bfloat16)
    (key<rbg>, dtype(bfloat16))
    """
    if not dtypes.is_key(dtype):
        return dtype
    keys = jax.eval_shape(functools.partial(jax.random.key, impl=key_implementation(dtype)), 0)
    return cast("DType", keys.dtype)  # an extended dtype, which is where JAX has those of NumPy


def dtype_from_jax(dtype: object) -> DType:
    """Our dtype for one of JAX; TypeError for keys of generators that are not here.

    >>> dtype_from_jax(jax.random.key(0).dtype) == dtypes.key_fry
    True
    """
    if isinstance(dtype, np.dtype):
        return dtypes.as_dtype(dtype)
    known = _KEY_DTYPES.get(str(dtype))
    if known is None:
        raise TypeError(f"arrays can't have JAX's dtype {dtype}; of random keys there are {', '.join(_KEY_DTYPES)}")
    return known


def type_to_jax(aval: ShapedArray) -> JaxType:
    """The type of an array, as JAX has it.

    >>> print(type_to_jax(ShapedArray((2,), dtypes.float32, weak_type=True)))
    ~float32[2]
    """
    return JaxType(aval.shape, dtype_to_jax(aval.dtype), weak_type=aval.weak_type)


def type_from_jax(aval: jax.core.AbstractValue) -> ShapedArray:
    """The type of an array from JAX's; TypeError for types that no array has.

    >>> type_from_jax(jax.typeof(jax.numpy.zeros((2, 3))))
    f32[2,3]
    """
    if not isinstance(aval, JaxType):
        raise TypeError(f"no array has JAX's type {aval!r} of {type(aval).__name__}: only arrays and random keys do")
    dtype = dtype_from_jax(aval.dtype)
    return ShapedArray(aval.shape, dtype, bool(aval.weak_type) and not dtypes.is_bool(dtype))


# ------------------------------------------------------------------ arrays


def as_jax(x: ArrayLike) -> jax.Array:
    """An array of JAX with the numbers, dtype, weak type, or random keys, of `x`.

    On the CPU it shares the memory of arrays that lie as XLA needs them: what compiled programs give does, and arrays
    of NumPy's of 64 KiB and more; what a single operation gives may not. It copies the others, weakly typed arrays and
    those of dtypes of less than 8 bits. 64-bit dtypes stay, whatever JAX's setting is.
    What lies on several devices stays there, but for random keys.
    Arrays of `float0`, which JAX has none of, become NumPy's, as JAX has them.

    Raises TracerArrayConversionError for a tracer.

    >>> import tracefx.numpy as fnp
    >>> as_jax(fnp.arange(3.0))
    Array([0., 1., 2.], dtype=float32)
    """
    value: Value = as_value(x, "as_jax: x")
    if isinstance(value, Tracer):
        raise TracerArrayConversionError(
            f"as_jax: {value!r} is traced by tracefx, so its numbers aren't known yet: give the function of JAX that "
            "takes it to tracefx.interop.jax.from_jax, and call that"
        )
    dtype = value.aval.dtype
    if dtype == dtypes.float0:
        return cast("jax.Array", to_numpy(value))
    with jax.ensure_compile_time_eval():  # so that what JAX may be tracing has nothing to do with it
        if dtype not in _X64_DTYPES:
            return _value_to_jax(value)
        with jax.enable_x64(True):
            return _value_to_jax(value)


def _value_to_jax(value: Value) -> jax.Array:
    found: jax.Array
    if dtypes.is_key(value.aval.dtype):
        host = value.numpy() if isinstance(value, ShardedArray) else to_numpy(value)
        words = _put_on_default_device(to_key_data(host))
        keys: jax.Array = jax.random.wrap_key_data(words, impl=key_implementation(value.aval.dtype))
        return keys
    if isinstance(value, ShardedArray) and value.placed.num_devices > 1:
        found = sharded_array_to_jax(value)
    elif isinstance(value, ConcreteArray) and value.device.platform != "cpu":
        found = jax.dlpack.from_dlpack(value)
    else:
        found = _put_on_default_device(to_numpy(value))
    return _with_weak_type(found, value.aval) if value.aval.weak_type else found


def _put_on_default_device(host: NDArray) -> jax.Array:
    # Not by DLPack, whose arrays may be donated: then JAX would write to memory of ours.
    found: jax.Array = jax.device_put(host)
    return found


def _with_weak_type(x: jax.Array, aval: ShapedArray) -> jax.Array:
    weak: jax.Array = primitives.convert_element_type_p.bind(x, new_dtype=aval.dtype, weak_type=True, sharding=None)
    return weak


def as_tracefx(x: jax.Array) -> Array:
    """An array with the numbers, dtype, weak type, or random keys, of an array of JAX.

    On the CPU it shares the memory, but for dtypes of less than 8 bits. What JAX has on another device stays there, and
    on the CPU what it has on several, along a mesh, but for random keys.

    Raises TypeError for a tracer of JAX, and for keys of generators that are not here.

    >>> as_tracefx(jax.numpy.arange(3.0))
    Array([0., 1., 2.], dtype=float32)
    >>> as_tracefx(jax.random.key(7))
    Array(key<fry>[], words=[0, 7])
    """
    if isinstance(x, jax.core.Tracer):
        raise TypeError(
            f"as_tracefx: {x} is traced by JAX, so its numbers aren't known yet: give the function of tracefx that "
            "takes it to tracefx.interop.jax.to_jax, and call that"
        )
    if (zeros := _float0(x)) is not None:
        return zeros
    if not isinstance(x, jax.Array):  # it may come from untyped code
        raise TypeError(f"as_tracefx takes an array of JAX, got {x!r} of type {type(x).__name__}")
    aval = type_from_jax(jax.typeof(x))
    if dtypes.is_key(aval.dtype):
        with jax.ensure_compile_time_eval():
            words: NDArray = np.asarray(jax.random.key_data(x))
        return ConcreteArray(aval, from_key_data(words, aval.dtype))
    return sharded_array_from_jax(x, aval) if is_cpu_sharded(x) else from_jax_array(x)


def _float0(x: object) -> Array | None:
    """A tangent of integers, which JAX has as an array of NumPy."""
    if isinstance(x, np.ndarray) and x.dtype == dtypes.float0:
        return ConcreteArray(ShapedArray(x.shape, dtypes.float0), np.zeros(x.shape, dtypes.float0))
    return None
