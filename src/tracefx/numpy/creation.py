"""Array creation: from data, and constant-filled.

An explicit dtype is honoured; otherwise the dtype is that of the data, with 64 bits narrowed to 32 unless
`enable_x64` is on. Only an array made from one Python number is weakly typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from tracefx.core import (
    Array,
    ArrayLike,
    ConcreteArray,
    DType,
    DTypeLike,
    Literal,
    NDArray,
    Shape,
    ShapedArray,
    Value,
    dtypes,
    from_numpy,
)
from tracefx.core.abstract_array import is_jax_array
from tracefx.core.array import is_convertible
from tracefx.core.handler import as_array, bind1
from tracefx.core.kernel_context import call_kernel
from tracefx.core.named_sharding import OutSharding
from tracefx.core.sharding import DeviceOrSharding
from tracefx.core.values import filled_key, from_jax_array, require_no_mask, unwrap_arraylike
from tracefx.lax.creation import sharding_like
from tracefx.numpy.device_placement import place_on_device
from tracefx.numpy.operand_promotion import as_operand, convert_ndarray, convert_operand, dtype_and_weak_type
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.ops import structural
from tracefx.ops.annotations.optimization_barrier import OPTIMIZATION_BARRIER
from tracefx.ops.annotations.reshard import with_type_of
from tracefx.ops.collectives.pvary import varying
from tracefx.ops.duck_typing import DuckTypedArray, array_type
from tracefx.ops.promotion import promote
from tracefx.ops.shape import shape
from tracefx.transforms.eager_calls import eager_cached

NestedArrayLike: TypeAlias = ArrayLike | Sequence["NestedArrayLike"]

# ------------------------------------------------------------------ from data


def array(
    object: NestedArrayLike,
    dtype: DTypeLike | None = None,
    *,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    device: DeviceOrSharding | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Creates an array from a number, an array, or nested sequences of them.

    Args:
        object: The data.
        dtype: The dtype of the result; None means that of the data.
        copy: Whether the result must not share memory with `object`.
        order: Accepted for compatibility and ignored: arrays have one memory order.
        ndmin: The minimal number of axes; axes of size 1 are added in front.
        device: The device or sharding of the result; None means the default.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array, with an axis for each level of nesting.

    Raises:
        TypeError: If an element is not a number or an array.
        ValueError: If nested sequences differ in length, or an element is None.

    >>> array([[1, 2], [3, 4.5]])
    Array([[1. , 2. ],
           [3. , 4.5]], dtype=float32)
    """
    del order
    new = None if dtype is None else dtypes.as_dtype(dtype, "array: dtype")
    if is_convertible(object):
        out = _from_array_like(object, new)
    elif isinstance(object, Sequence) and not isinstance(object, str | bytes):
        out = _from_sequence(object, new)
    else:
        out = _from_foreign(object, new)
    missing = ndmin - out.aval.ndim
    out = place_on_device(shape.expand_dims(out, range(missing)) if missing > 0 else out, device)
    return _copy_if_same(out, object) if copy else out


def asarray(
    a: NestedArrayLike,
    dtype: DTypeLike | None = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: DeviceOrSharding | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Converts `a` to an array; returns `a` itself if it has the requested dtype and device.

    Args:
        a: The data, as for `array`.
        dtype: The dtype of the result; None means that of `a`.
        order: Accepted for compatibility and ignored.
        copy: True copies always, None where necessary. False never copies: the result shares the memory of a NumPy
            array, which must not be written to afterwards.
        device: The device or sharding of the result; None means the default.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array equal to `a`.

    Raises:
        ValueError: If `copy` is False and a copy is necessary.

    >>> asarray([1, 2])
    Array([1, 2], dtype=int32)
    """
    if copy is False and not isinstance(a, Array):
        a = _from_shared_memory(a)
    out = array(a, dtype, copy=bool(copy), order=order, device=device)
    if copy is False and out is not a:
        raise ValueError(f"asarray: copy=False, but {out.aval} requires a copy to another dtype or device")
    return out


def _from_shared_memory(x: NestedArrayLike) -> Array:
    """Returns a NumPy or JAX array as an array that shares its memory."""
    if is_jax_array(x):
        return from_jax_array(x)
    if not isinstance(x, np.ndarray):
        raise ValueError(f"asarray: copy=False, but the elements of a {type(x).__name__} must be copied")
    require_no_mask(x)
    shared = x.view()
    shared.flags.writeable = False
    return ConcreteArray(ShapedArray(x.shape, dtypes.as_dtype(x.dtype, "asarray: the dtype of a", exact=True)), shared)


def copy(a: ArrayLike, order: str | None = None) -> Array:
    """Copies `a`: the result stays valid when `a` is deleted or donated.

    Args:
        a: The array.
        order: Accepted for compatibility and ignored: arrays have one memory order.

    Returns:
        An array of the shape and dtype of `a`.

    >>> copy(np.arange(2))
    Array([0, 1], dtype=int32)
    """
    del order
    return _copy_if_same(as_array(as_operand(a, "copy: a")), a)


def _copy_if_same(out: Array, a: object) -> Array:
    """Returns `out`, copied if it is `a` itself. Read-only memory may be shared."""
    if out is not a or not isinstance(out, ConcreteArray):
        return out
    return out.__copy__() if type(out) is ConcreteArray else bind1(OPTIMIZATION_BARRIER, out)


def _from_array_like(x: ArrayLike, dtype: DType | None) -> Array:
    """Returns a number or an array as an array of `dtype`, or of its own if None."""
    if dtype is None:
        return as_array(x)
    if isinstance(x, np.ndarray | np.generic):  # converted directly, without rounding to a narrower dtype first
        if isinstance(x, np.ndarray):
            require_no_mask(x)
        dtypes.as_dtype(x.dtype, "array: the dtype of object")
        return from_numpy(convert_ndarray(np.asarray(x), dtype), dtype)
    x = x if isinstance(x, Array) else unwrap_arraylike(x)
    if type(x) is int and dtypes.is_integer(dtype):
        return as_array(Literal(x, ShapedArray((), dtype)))  # raises if the dtype cannot hold it
    return as_array(convert_operand(x, dtype, what="array: object"))


def _from_foreign(x: object, dtype: DType | None) -> Array:
    """Converts an object that has `__array__` or the buffer protocol, such as another library's array."""
    if x is None:
        raise ValueError("array: None is not a number; leave the element out or use nan")
    if not hasattr(x, "__array__") and not isinstance(x, bytearray | memoryview):
        raise TypeError(
            "array: object must be a number, an array or nested sequences of them, "
            f"got {x!r} of type {type(x).__name__}"
        )
    data = np.asarray(x)
    dtypes.as_dtype(data.dtype, "array: the dtype of object")
    return _from_array_like(data, dtype)


_PYTHON_SCALARS: Final = frozenset({bool, int, float, complex})


def _from_sequence(rows: Sequence[NestedArrayLike], dtype: DType | None) -> Array:
    """Returns nested sequences of numbers and arrays as an array."""
    if (
        dtype is None and len(kinds := {*map(type, rows)}) == 1 and (kind := kinds.pop()) in _PYTHON_SCALARS
    ):  # fast path
        return _from_owned_memory(call_kernel(np.array, rows, dtypes.scalar_dtype(kind)))
    leaves: list[ArrayLike] = []
    sizes = _flatten(rows, leaves)
    if dtype is None:
        types = dict.fromkeys([dtype_and_weak_type(leaf, "array: an element") for leaf in leaves])
        dtype = promote(list(types))[0] if types else dtypes.default_float()
    if any(isinstance(leaf, Array) for leaf in leaves):
        if len({_shape_of(leaf) for leaf in leaves}) > 1:  # arrays beside sequences of numbers
            return as_array(shape.stack([array(row, dtype) for row in rows]))
        parts = [convert_operand(leaf, dtype, what="array: an element") for leaf in leaves]
        return structural.reshape(shape.stack(parts), sizes)
    if all(type(leaf) is int for leaf in leaves) and dtypes.is_integer(dtype):
        data = np.array(leaves, dtype)  # raises for integers out of the dtype's range, which a conversion would wrap
    elif any(isinstance(leaf, np.ndarray) for leaf in leaves):
        converted = [convert_ndarray(np.asarray(leaf), dtype) for leaf in leaves]
        data = np.concatenate([part.reshape(-1) for part in converted])
    else:
        data = np.array(leaves)
        if data.dtype == object:  # an integer has more than 64 bits
            data = np.array([float(leaf) if type(leaf) is int else leaf for leaf in leaves])
        data = convert_ndarray(data, dtype)
    return _from_owned_memory(data.reshape(sizes))


def _from_owned_memory(data: NDArray) -> Array:
    """Returns an array of `data`, which was allocated here and becomes read-only."""
    data.flags.writeable = False
    return ConcreteArray(ShapedArray(data.shape, data.dtype), data)


def _flatten(x: NestedArrayLike, leaves: list[ArrayLike]) -> Shape:
    """Appends the arrays and numbers of nested sequences to `leaves`; returns their common shape."""
    if isinstance(x, Sequence) and not isinstance(x, str | bytes):
        shapes = list(dict.fromkeys([_flatten(row, leaves) for row in x]))
        if len(shapes) > 1:
            raise ValueError(f"array: nested sequences must have equal lengths, but shapes {shapes} differ")
        return (len(x), *(shapes[0] if shapes else ()))
    if not is_convertible(x):
        _from_foreign(x, None)
        raise TypeError(f"array: elements must be numbers or arrays, got {x!r} of type {type(x).__name__}")
    if type(x) not in _PYTHON_SCALARS:
        x = unwrap_arraylike(x)
        if isinstance(x, np.ndarray):
            require_no_mask(x)
    leaves.append(x)
    return _shape_of(x)


def _shape_of(x: ArrayLike) -> Shape:
    return np.shape(x) if not isinstance(x, Array) else x.aval.shape


# ------------------------------------------------------------------ constant-filled


def full(
    shape: ShapeLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceOrSharding | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Creates an array whose elements are all `fill_value`.

    Args:
        shape: The shape, an integer or a sequence of integers.
        fill_value: A number, or an array that is broadcast to `shape`.
        dtype: The dtype of the result; None means that of `fill_value`.
        device: The device or sharding of the result; None means the default.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of this shape.

    Raises:
        TypeError: If a size is not a concrete integer.
        ValueError: If a size is negative, or `fill_value` does not broadcast to the shape.

    >>> full((2,), 7.0, "float16")
    Array([7., 7.], dtype=float16)
    """
    sizes = sizes_of("full", shape)
    if dtype is None:
        value = as_operand(fill_value, "full: fill_value")
    else:
        value = _fill_operand(fill_value, dtypes.as_dtype(dtype, "full: dtype"), what="full: fill_value")
    return place_on_device(
        structural.broadcast_to(value, sizes) if value.aval.shape else _broadcast_scalar(value, sizes), device
    )


@eager_cached
def zeros(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceOrSharding | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Creates an array of zeros.

    Args:
        shape: The shape, an integer or a sequence of integers.
        dtype: The dtype of the result; None means the default float, float32 unless `enable_x64` is on.
        device: The device or sharding of the result; None means the default.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of this shape.

    Raises:
        TypeError: If a size is not a concrete integer.
        ValueError: If a size is negative.

    >>> zeros(2)
    Array([0., 0.], dtype=float32)
    """
    return place_on_device(_constant_array("zeros", shape, dtype, 0), device)


@eager_cached
def ones(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceOrSharding | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Creates an array of ones.

    Args:
        shape: The shape, an integer or a sequence of integers.
        dtype: The dtype of the result; None means the default float, float32 unless `enable_x64` is on.
        device: The device or sharding of the result; None means the default.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of this shape.

    Raises:
        TypeError: If a size is not a concrete integer.
        ValueError: If a size is negative.

    >>> ones((1, 2))
    Array([[1., 1.]], dtype=float32)
    """
    return place_on_device(_constant_array("ones", shape, dtype, 1), device)


def empty(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceOrSharding | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Creates an array with unspecified elements (in fact zeros).

    Args:
        shape: The shape, an integer or a sequence of integers.
        dtype: The dtype of the result; None means the default float, float32 unless `enable_x64` is on.
        device: The device or sharding of the result; None means the default.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of this shape.

    Raises:
        TypeError: If a size is not a concrete integer.
        ValueError: If a size is negative.

    >>> empty(2).shape
    (2,)
    """
    return place_on_device(_constant_array("empty", shape, dtype, 0), device)


def _constant_array(name: str, sizes: ShapeLike, dtype: DTypeLike | None, fill: int) -> Array:
    new = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype, f"{name}: dtype")
    return _broadcast_scalar(_fill_operand(fill, new), sizes_of(name, sizes))


def _broadcast_scalar(x: Value, sizes: Shape) -> Array:
    """Broadcasts a scalar to a shape. float0 arrays are NumPy's: programs have no operations on float0."""
    if x.aval.dtype == dtypes.float0:
        return from_numpy(np.zeros(sizes, dtypes.float0), dtypes.float0)
    return structural.broadcast_in_dim(x, sizes, ())


def _fill_operand(x: ArrayLike, dtype: DType, weak: bool = False, what: str = "argument") -> Value:
    """Returns `convert_operand` of a fill value; for a key dtype, an integer fills every word of the key."""
    if type(x) is int and dtypes.is_key(dtype):
        return filled_key(x, dtype)
    if dtype == dtypes.float0 and type(x) in _PYTHON_SCALARS:
        return from_numpy(np.zeros((), dtype), dtype)
    return convert_operand(x, dtype, weak, what)


def full_like(
    a: ArrayLike | DuckTypedArray,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: DeviceOrSharding | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Creates an array with the shape and dtype of `a`, every element `fill_value`.

    Args:
        a: An array, or an object with shape and dtype such as `ShapeDtypeStruct`, which `eval_shape` returns.
        fill_value: A number, or an array that is broadcast to the shape.
        dtype: The dtype of the result; None means that of `a`.
        shape: The shape of the result; None means that of `a`.
        device: The device or sharding of the result; None means that of `a` if the shape is unchanged.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of this shape.

    >>> full_like(np.arange(2), 7)
    Array([7, 7], dtype=int32)
    """
    return _full_like("full_like", a, array_type(a, "full_like: a"), fill_value, dtype, shape, device)


def _full_like(
    name: str,
    like: ArrayLike | DuckTypedArray,
    aval: ShapedArray,
    fill_value: ArrayLike,
    dtype: DTypeLike | None,
    shape: ShapeLike | None,
    device: DeviceOrSharding | None,
) -> Array:
    sizes = aval.shape if shape is None else sizes_of(name, shape)
    if dtype is None:
        value = _fill_operand(fill_value, aval.dtype, aval.weak_type, f"{name}: fill_value")
    else:
        value = _fill_operand(fill_value, dtypes.as_dtype(dtype, f"{name}: dtype"), what=f"{name}: fill_value")
    if device is None and not value.aval.shape:
        device = sharding_like(like, sizes)
    out = place_on_device(
        structural.broadcast_to(value, sizes) if value.aval.shape else _broadcast_scalar(value, sizes), device
    )
    if aval.explicit_sharding is not None and sizes == aval.shape:
        out = as_array(with_type_of(out, aval))
    return as_array(varying(out, aval.vma)) if aval.vma else out


@eager_cached
def zeros_like(
    a: ArrayLike | DuckTypedArray,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: DeviceOrSharding | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Creates an array of zeros with the shape and dtype of `a`.

    Args:
        a: An array, or an object with shape and dtype such as `ShapeDtypeStruct`, which `eval_shape` returns.
        dtype: The dtype of the result; None means that of `a`.
        shape: The shape of the result; None means that of `a`.
        device: The device or sharding of the result; None means that of `a` if the shape is unchanged.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of this shape.

    >>> zeros_like(np.arange(2))
    Array([0, 0], dtype=int32)
    """
    return _full_like("zeros_like", a, array_type(a, "zeros_like: a"), 0, dtype, shape, device)


@eager_cached
def ones_like(
    a: ArrayLike | DuckTypedArray,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: DeviceOrSharding | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Creates an array of ones with the shape and dtype of `a`.

    Args:
        a: An array, or an object with shape and dtype such as `ShapeDtypeStruct`, which `eval_shape` returns.
        dtype: The dtype of the result; None means that of `a`.
        shape: The shape of the result; None means that of `a`.
        device: The device or sharding of the result; None means that of `a` if the shape is unchanged.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of this shape.

    >>> ones_like(np.arange(2))
    Array([1, 1], dtype=int32)
    """
    return _full_like("ones_like", a, array_type(a, "ones_like: a"), 1, dtype, shape, device)


def empty_like(
    prototype: ArrayLike | DuckTypedArray,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: DeviceOrSharding | None = None,
) -> Array:
    """Creates an array with unspecified elements (in fact zeros), with the shape and dtype of `prototype`.

    Args:
        prototype: An array, or an object with shape and dtype such as `ShapeDtypeStruct`, which `eval_shape` returns.
        dtype: The dtype of the result; None means that of `prototype`.
        shape: The shape of the result; None means that of `prototype`.
        device: The device or sharding of the result; None means that of `prototype` if the shape is unchanged.

    Returns:
        An array of this shape.

    >>> empty_like(np.arange(2)).shape
    (2,)
    """
    return _full_like("empty_like", prototype, array_type(prototype, "empty_like: prototype"), 0, dtype, shape, device)
