"""Conversion of arrays, random keys, shapes and dtypes between JAX and tracefx.

On the CPU arrays share memory where both libraries can use it in place. For pytrees, map over the source library's
tree: `jax.tree.map(as_tracefx, tree)`, `tracefx.tree.map(as_jax, tree)`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, cast

import jax
import numpy as np
from jax.extend.core import primitives

from tracefx.bounded_cache import memoize
from tracefx.core import Array, ArrayLike, ConcreteArray, DType, NDArray, ShapedArray, Value, as_value, dtypes, to_numpy
from tracefx.core.handler import Tracer
from tracefx.core.key_data import from_key_data, to_key_data
from tracefx.core.values import from_jax_array
from tracefx.errors import TracerArrayConversionError
from tracefx.interop.jax.meshes import is_cpu_sharded, sharded_array_from_jax, sharded_array_to_jax, sharding_to_jax
from tracefx.shardings.sharded_array import ShardedArray

JaxType: TypeAlias = jax.core.ShapedArray

_PRNG_IMPLS: Final[Mapping[DType, str]] = MappingProxyType(
    {dtypes.key_fry: "threefry2x32", dtypes.key_rbg: "rbg", dtypes.key_urbg: "unsafe_rbg"}
)
"""JAX's names of random generators by key dtype."""

_KEY_DTYPES: Final[Mapping[str, DType]] = MappingProxyType({dtypes.name(dtype): dtype for dtype in _PRNG_IMPLS})
"""Key dtypes by name; the names are the same in JAX."""

_X64_DTYPES: Final = frozenset({dtypes.int64, dtypes.uint64, dtypes.float64, dtypes.complex128})

# ------------------------------------------------------------------ types


def key_implementation(dtype: DType) -> str:
    """Returns JAX's name of the random generator of a key dtype; raises `ValueError` for other dtypes.

    >>> key_implementation(dtypes.key_fry)
    'threefry2x32'
    """
    try:
        return _PRNG_IMPLS[dtype]
    except KeyError:
        raise ValueError(f"{dtypes.name(dtype)} is no dtype of random keys") from None


@memoize(256)
def dtype_to_jax(dtype: DType) -> DType:
    """Converts a dtype to JAX's; only the dtypes of random keys differ.

    >>> dtype_to_jax(dtypes.key_rbg), dtype_to_jax(dtypes.bfloat16)
    (key<rbg>, dtype(bfloat16))
    """
    if not dtypes.is_key(dtype):
        return dtype
    keys = jax.eval_shape(functools.partial(jax.random.key, impl=key_implementation(dtype)), 0)
    return cast("DType", keys.dtype)  # an extended dtype, which JAX uses in place of NumPy's


def dtype_from_jax(dtype: object) -> DType:
    """Converts a dtype of JAX; raises `TypeError` for keys of generators that tracefx does not have.

    >>> dtype_from_jax(jax.random.key(0).dtype) == dtypes.key_fry
    True
    """
    if isinstance(dtype, np.dtype):
        return dtypes.as_dtype(dtype, exact=True)
    key_dtype = _KEY_DTYPES.get(str(dtype))
    if key_dtype is None:
        raise TypeError(
            f"arrays can't have JAX's dtype {dtype}; the dtypes of random keys are {', '.join(_KEY_DTYPES)}"
        )
    return key_dtype


def type_to_jax(aval: ShapedArray) -> JaxType:
    """Converts an aval to JAX's.

    >>> print(type_to_jax(ShapedArray((2,), dtypes.float32, weak_type=True)))
    ~float32[2]
    """
    sharding = None if aval.explicit_sharding is None else sharding_to_jax(aval.explicit_sharding)
    return JaxType(aval.shape, dtype_to_jax(aval.dtype), weak_type=aval.weak_type, sharding=sharding)


def type_from_jax(aval: jax.core.AbstractValue) -> ShapedArray:
    """Converts an aval of JAX; raises `TypeError` for types other than arrays and random keys.

    >>> type_from_jax(jax.typeof(jax.numpy.zeros((2, 3))))
    f32[2,3]
    """
    if not isinstance(aval, JaxType):
        raise TypeError(f"no array has JAX's type {aval!r} of {type(aval).__name__}: only arrays and random keys do")
    dtype = dtype_from_jax(aval.dtype)
    return ShapedArray(aval.shape, dtype, bool(aval.weak_type) and not dtypes.is_bool(dtype))


# ------------------------------------------------------------------ arrays


def as_jax(x: ArrayLike) -> jax.Array:
    """Converts an array to JAX, keeping its values, dtype and weak type; random keys too.

    On the CPU the result shares the memory of arrays that are aligned as XLA needs it: results of compiled programs,
    and NumPy arrays of 64 KiB or more; results of single operations may not be. Other arrays are copied, as are weakly
    typed arrays and those of dtypes of less than 8 bits. Sharded arrays stay on their devices, except random keys.
    64-bit dtypes are kept whatever JAX's setting is. Arrays of dtype `float0` become NumPy arrays, which represent them
    in JAX.

    Args:
        x: an array, a random key array, a NumPy array or a number.

    Returns:
        The array of JAX.

    Raises:
        TracerArrayConversionError: `x` is a tracer of tracefx.

    >>> import tracefx.numpy as fnp
    >>> as_jax(fnp.arange(3.0))
    Array([0., 1., 2.], dtype=float32)
    """
    value: Value = as_value(x, "as_jax: x")
    if isinstance(value, Tracer):
        raise TracerArrayConversionError(
            f"as_jax: {value!r} is traced by tracefx, so only its shape and dtype are known: pass the JAX function "
            "that takes it to tracefx.interop.jax.from_jax, and call the result"
        )
    dtype = value.aval.dtype
    if dtype == dtypes.float0:
        return cast("jax.Array", to_numpy(value))
    with jax.ensure_compile_time_eval():  # so that the conversion is not traced where JAX is tracing
        if dtype not in _X64_DTYPES:
            return _value_to_jax(value)
        with jax.enable_x64(True):
            return _value_to_jax(value)


def _value_to_jax(value: Value) -> jax.Array:
    array: jax.Array
    if dtypes.is_key(value.aval.dtype):
        host = value.numpy() if isinstance(value, ShardedArray) else to_numpy(value)
        words = _put_on_default_device(to_key_data(host))
        keys: jax.Array = jax.random.wrap_key_data(words, impl=key_implementation(value.aval.dtype))
        return keys
    is_sharded = isinstance(value, ShardedArray) and value.placed.num_devices > 1
    if not is_sharded and isinstance(value, ConcreteArray) and value.device.platform != "cpu":
        array = jax.dlpack.from_dlpack(value)
    elif isinstance(value, ShardedArray) and (is_sharded or value.committed):
        array = sharded_array_to_jax(value)
    else:
        array = _put_on_default_device(to_numpy(value))
    return _with_weak_type(array, value.aval) if value.aval.weak_type else array


def _put_on_default_device(host: NDArray) -> jax.Array:
    # Not with DLPack: JAX may donate such arrays and would then write to tracefx's memory.
    array: jax.Array = jax.device_put(host)
    return array


def _with_weak_type(x: jax.Array, aval: ShapedArray) -> jax.Array:
    weak: jax.Array = primitives.convert_element_type_p.bind(x, new_dtype=aval.dtype, weak_type=True, sharding=None)
    return weak


def as_tracefx(x: jax.Array) -> Array:
    """Converts an array of JAX, keeping its values, dtype and weak type; random keys too.

    On the CPU the result shares memory, except for dtypes of less than 8 bits. Arrays on other devices stay there, as
    do arrays that are sharded over a mesh of CPU devices, except random keys.

    Args:
        x: an array of JAX, or a NumPy array of dtype `float0`.

    Returns:
        The array of tracefx.

    Raises:
        TypeError: `x` is a tracer of JAX or no array, or a key of a generator that tracefx does not have.

    >>> as_tracefx(jax.numpy.arange(3.0))
    Array([0., 1., 2.], dtype=float32)
    >>> as_tracefx(jax.random.key(7))
    Array(key<fry>[], words=[0, 7])
    """
    if isinstance(x, jax.core.Tracer):
        raise TypeError(
            f"as_tracefx: {x} is traced by JAX, so only its shape and dtype are known: pass the tracefx function "
            "that takes it to tracefx.interop.jax.to_jax, and call the result"
        )
    if (zeros := _float0(x)) is not None:
        return zeros
    if not isinstance(x, jax.Array):  # possible from untyped code
        raise TypeError(f"as_tracefx takes an array of JAX, got {x!r} of type {type(x).__name__}")
    aval = type_from_jax(jax.typeof(x))
    if dtypes.is_key(aval.dtype):
        with jax.ensure_compile_time_eval():
            words: NDArray = np.asarray(jax.random.key_data(x))
        return ConcreteArray(aval, from_key_data(words, aval.dtype))
    return sharded_array_from_jax(x, aval) if is_cpu_sharded(x) else from_jax_array(x)


def _float0(x: object) -> Array | None:
    """Converts a `float0` array, which JAX represents as a NumPy array; returns None for other arrays."""
    if isinstance(x, np.ndarray) and x.dtype == dtypes.float0:
        return ConcreteArray(ShapedArray(x.shape, dtypes.float0), np.zeros(x.shape, dtypes.float0))
    return None
