"""Shape manipulation: reshaping, permuting axes, broadcasting, dtype conversion.

Axes count from 0 or, if negative, from the end; an axis out of range raises a ValueError that names it. Shapes are
static: their sizes are integers that are concrete while a program is traced.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import SupportsIndex, overload

import numpy as np

from tracefx.core import Array, ArrayLike, AxisLike, ConcreteArray, DTypeLike, Shape, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.core.named_sharding import OutSharding
from tracefx.core.sharding import DeviceOrSharding
from tracefx.errors import AxisError
from tracefx.numpy.device_placement import place_on_device
from tracefx.numpy.operand_promotion import as_operand, broadcast_operand_shapes, convert_dtype, require_broadcastable
from tracefx.ops import structural
from tracefx.ops.operation import static_shape
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import canonicalize_axes, canonicalize_axis, concretize, is_sequence_like
from tracefx.transforms.eager_calls import eager_cached

ShapeLike = SupportsIndex | Sequence[SupportsIndex]


def sizes_of(name: str, sizes: object, argument: str = "shape") -> Shape:
    """Returns the shape given by an argument that is one integer or a sequence of integers.

    Raises TypeError for a size that is not a concrete integer, ValueError for a negative size.
    """
    if type(sizes) is tuple or type(sizes) is list:
        return static_shape(name, sizes, argument)
    if sizes.ndim if isinstance(sizes, Array | np.ndarray) else isinstance(sizes, Iterable):
        return static_shape(name, sizes, argument)
    return static_shape(name, (sizes,), argument)


def normalize_axes(name: str, axis: AxisLike, ndim: int, argument: str = "axis") -> tuple[int, ...]:
    """Returns nonnegative axes from an argument that is one axis or a sequence of axes."""
    if is_sequence_like(axis):
        return canonicalize_axes(name, axis, ndim, argument)
    return (canonicalize_axis(name, axis, ndim, argument),)


def axes(name: str, axis: AxisLike, ndim: int) -> tuple[int, ...]:
    """Returns the nonnegative axes that an argument `axis` names; all for None."""
    return tuple(range(ndim)) if axis is None else normalize_axes(name, axis, ndim)


# ------------------------------------------------------------------ reshaping


@eager_cached
def reshape(
    a: ArrayLike, shape: ShapeLike, order: str = "C", *, copy: bool | None = None, out_sharding: OutSharding = None
) -> Array:
    """Reshapes `a` to another shape of the same size.

    Args:
        a: The array to reshape.
        shape: The new sizes; one of them may be -1, which stands for the size that makes the total fit.
        order: `"C"` reads and writes elements with the last axis changing fastest, `"F"` with the first.
        copy: Accepted for compatibility and ignored: arrays are immutable.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array with the elements of `a` and the new shape.

    Raises:
        TypeError: If a size is not concrete, or the sizes do not fit the size of `a`.
        ValueError: If `order` is neither `"C"` nor `"F"`.

    >>> reshape(np.arange(6), (2, -1)).shape
    (2, 3)
    """
    del copy  # arrays are immutable, so shared memory is not observable
    x = as_operand(a, "reshape: a")
    sizes = _infer_size(x, shape)
    if order == "C":
        return structural.reshape(x, sizes)
    if order != "F":
        raise ValueError(f"reshape: order must be 'C' or 'F', got {order!r}")
    reversed_axes = structural.reshape(structural.transpose(x, range(x.aval.ndim)[::-1]), sizes[::-1])
    return structural.transpose(reversed_axes, range(len(sizes))[::-1])


def _infer_size(x: Value, sizes: ShapeLike) -> Shape:
    """Returns the sizes with -1 replaced by the size it stands for."""
    if type(sizes) is tuple and -1 not in [n if type(n) is int else -1 for n in sizes]:
        return static_shape("reshape", sizes)
    parts: list[object] = list(concretize(sizes)) if is_sequence_like(sizes) else [sizes]
    places = [i for i, n in enumerate(parts) if _is_inferred(n)]
    if not places:
        return sizes_of("reshape", sizes)
    known = static_shape("reshape", [n for i, n in enumerate(parts) if i not in places])
    product = math.prod(known)
    if len(places) > 1 or product == 0 or x.aval.size % product:
        raise TypeError(
            f"reshape of {x.aval} to {tuple(parts)}: only one size may be -1, and it must stand for a whole size"
        )
    inferred = x.aval.size // product
    return (*known[: places[0]], inferred, *known[places[0] :])


def _is_inferred(n: object) -> bool:
    """Returns whether a size is a concrete -1."""
    if isinstance(n, np.ndarray | ConcreteArray):
        return n.ndim == 0 and n.dtype.kind == "i" and n.__index__() == -1
    return isinstance(n, int | np.integer) and int(n) == -1


@eager_cached
def ravel(a: ArrayLike, order: str = "C", *, out_sharding: OutSharding = None) -> Array:
    """Flattens `a` to one axis: `f32[n, m]` becomes `f32[n * m]`.

    Args:
        a: The array to flatten.
        order: `"C"` reads elements with the last axis changing fastest, `"F"` with the first.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        A vector of the elements of `a`.

    Raises:
        ValueError: If `order` is neither `"C"` nor `"F"`.

    >>> ravel(np.zeros((2, 3))).shape
    (6,)
    """
    return reshape(a, -1 if as_operand(a, "ravel: a").aval.size else 0, order)


@eager_cached
def squeeze(a: ArrayLike, axis: AxisLike = None) -> Array:
    """Removes axes of size 1.

    Args:
        a: The array.
        axis: The axis or axes to remove, each of size 1; None removes all axes of size 1.

    Returns:
        An array with the elements of `a` and fewer axes.

    Raises:
        ValueError: If an axis to remove has another size, or is out of range.

    >>> squeeze(np.zeros((1, 3, 1))).shape
    (3,)
    """
    x = as_operand(a, "squeeze: a")
    if axis is None:
        return shape.squeeze(x, [i for i, n in enumerate(x.aval.shape) if n == 1])
    return shape.squeeze(x, normalize_axes("squeeze", axis, x.aval.ndim))


@eager_cached
def expand_dims(a: ArrayLike, axis: int | Sequence[int] = 0) -> Array:
    """Inserts axes of size 1.

    Args:
        a: The array.
        axis: The position or positions of the new axes in the result.

    Returns:
        An array with the elements of `a` and more axes.

    Raises:
        ValueError: If a position is out of range or given twice.

    >>> expand_dims(np.zeros(3), (0, 2)).shape
    (1, 3, 1)
    """
    x = as_operand(a, "expand_dims: a")
    count = len(axis) if is_sequence_like(axis) else 1
    return shape.expand_dims(x, normalize_axes("expand_dims", axis, x.aval.ndim + count))


@eager_cached
def astype(
    x: ArrayLike, dtype: DTypeLike | None, /, *, copy: bool = False, device: DeviceOrSharding | None = None
) -> Array:
    """Converts the elements of `x` to `dtype`.

    Complex numbers lose their imaginary part. Floats outside an integer dtype's range saturate, and NaN becomes 0.

    Args:
        x: The array to convert.
        dtype: The new dtype; None means the default float dtype.
        copy: Accepted for compatibility and ignored: arrays are immutable.
        device: The device or sharding of the result; None leaves it where it is.

    Returns:
        An array of the shape of `x`.

    >>> astype(2.7, "int32")
    Array(2, dtype=int32)
    """
    del copy  # arrays are immutable, so shared memory is not observable
    new = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype, "astype: dtype")
    return place_on_device(as_array(convert_dtype(as_operand(x, "astype: x"), new)), device)


# ------------------------------------------------------------------ axes


@eager_cached
def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Permutes the axes of `a`.

    Args:
        a: The array.
        axes: The order of the axes in the result, each named once; None reverses them.

    Returns:
        An array with the elements of `a`.

    Raises:
        ValueError: If `axes` does not name each axis exactly once.

    >>> transpose(np.zeros((2, 3, 5)), (2, 0, 1)).shape
    (5, 2, 3)
    """
    x = as_operand(a, "transpose: a")
    order = range(x.aval.ndim)[::-1] if axes is None else canonicalize_axes("transpose", axes, x.aval.ndim, "axes")
    if len(order) != x.aval.ndim:
        raise AxisError(f"transpose: axes {axes} must name each of the {x.aval.ndim} axes of {x.aval} once")
    return structural.transpose(x, order)


@eager_cached
def permute_dims(a: ArrayLike, /, axes: Sequence[int]) -> Array:
    """Permutes the axes of `a`: the array API's name for `transpose`.

    Args:
        a: The array.
        axes: The order of the axes in the result, each named once.

    Returns:
        An array with the elements of `a`.

    Raises:
        ValueError: If `axes` does not name each axis exactly once.

    >>> permute_dims(np.zeros((2, 3, 5)), (2, 0, 1)).shape
    (5, 2, 3)
    """
    return transpose(a, axes)


@eager_cached
def matrix_transpose(x: ArrayLike, /) -> Array:
    """Swaps the last two axes of `x`: `f32[..., n, m]` becomes `f32[..., m, n]`.

    Args:
        x: An array with at least two axes.

    Returns:
        An array with the elements of `x`.

    Raises:
        ValueError: If `x` has fewer than two axes.

    >>> matrix_transpose(np.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    value = as_operand(x, "matrix_transpose: x")
    if value.aval.ndim < 2:
        raise ValueError(f"matrix_transpose: x must have at least two axes, got {value.aval}")
    return swapaxes(value, -1, -2)


@eager_cached
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Swaps two axes of `a`.

    Args:
        a: The array.
        axis1: One axis.
        axis2: The other axis.

    Returns:
        An array with the elements of `a`.

    >>> swapaxes(np.zeros((2, 3, 5)), 0, 2).shape
    (5, 3, 2)
    """
    x = as_operand(a, "swapaxes: a")
    i, j = (
        canonicalize_axis("swapaxes", axis1, x.aval.ndim, "axis1"),
        canonicalize_axis("swapaxes", axis2, x.aval.ndim, "axis2"),
    )
    order = list(range(x.aval.ndim))
    order[i], order[j] = j, i
    return structural.transpose(x, order)


@eager_cached
def moveaxis(a: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Moves axes to new positions; the other axes keep their order.

    Args:
        a: The array.
        source: The axis or axes to move.
        destination: Their positions in the result, one per axis in `source`.

    Returns:
        An array with the elements of `a`.

    Raises:
        ValueError: If `source` and `destination` have different lengths, or name an axis twice or out of range.

    >>> moveaxis(np.zeros((2, 3, 5)), 0, -1).shape
    (3, 5, 2)
    """
    x = as_operand(a, "moveaxis: a")
    ndim = x.aval.ndim
    sources = normalize_axes("moveaxis", source, ndim, "source")
    destinations = normalize_axes("moveaxis", destination, ndim, "destination")
    if len(sources) != len(destinations):
        raise ValueError(f"moveaxis: source {source} and destination {destination} must name equally many axes")
    order = [i for i in range(ndim) if i not in sources]
    for position, i in sorted(zip(destinations, sources, strict=True)):
        order.insert(position, i)
    return structural.transpose(x, order)


@eager_cached
def flip(m: ArrayLike, axis: AxisLike = None) -> Array:
    """Reverses the order of elements along axes.

    Args:
        m: The array.
        axis: The axis or axes to reverse; None reverses all.

    Returns:
        An array of the shape and dtype of `m`.

    >>> flip(np.arange(3)).tolist()
    [2, 1, 0]
    """
    x = as_operand(m, "flip: m")
    return shape.rev(x, range(x.aval.ndim) if axis is None else normalize_axes("flip", axis, x.aval.ndim))


# ------------------------------------------------------------------ broadcasting


@eager_cached
def broadcast_to(array: ArrayLike, shape: ShapeLike, *, out_sharding: OutSharding = None) -> Array:
    """Broadcasts `array` to `shape`, with axes aligned at the end.

    Args:
        array: The array to repeat.
        shape: The sizes of the result.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of this shape.

    Raises:
        BroadcastError: If a size of `array` is neither 1 nor that of `shape`, or `array` has more axes. It is a
            TypeError and a ValueError.

    >>> broadcast_to(np.arange(3), (2, 3)).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    x = as_operand(array, "broadcast_to: array")
    sizes = sizes_of("broadcast_to", shape)
    require_broadcastable("broadcast_to: an array", x.aval.shape, sizes, "the shape")
    return structural.broadcast_to(x, sizes)


def broadcast_arrays(*args: ArrayLike) -> tuple[Array, ...]:
    """Broadcasts arrays against each other.

    Args:
        *args: The arrays.

    Returns:
        A tuple of arrays of one shape, each with its own dtype.

    Raises:
        BroadcastError: If the shapes differ in sizes other than 1.

    >>> [a.shape for a in broadcast_arrays(np.zeros((2, 1)), np.zeros(3))]
    [(2, 3), (2, 3)]
    """
    values = [as_operand(a, f"broadcast_arrays: argument {i}") for i, a in enumerate(args)]
    sizes = broadcast_operand_shapes("broadcast_arrays", *[v.aval.shape for v in values])
    return tuple([structural.broadcast_to(v, sizes) for v in values])


@overload
def atleast_1d(ary: ArrayLike, /) -> Array: ...
@overload
def atleast_1d(*arys: ArrayLike) -> Array | tuple[Array, ...]: ...
def atleast_1d(*arys: ArrayLike) -> Array | tuple[Array, ...]:
    """Converts inputs to arrays with at least one axis: a scalar becomes `f32[1]`.

    Args:
        *arys: The inputs: arrays or numbers.

    Returns:
        An array for one input, otherwise a tuple of arrays.

    >>> atleast_1d(2.0).shape
    (1,)
    """
    return _unwrap_single([_at_least(1, as_operand(x, "atleast_1d: x")) for x in arys])


@overload
def atleast_2d(ary: ArrayLike, /) -> Array: ...
@overload
def atleast_2d(*arys: ArrayLike) -> Array | tuple[Array, ...]: ...
def atleast_2d(*arys: ArrayLike) -> Array | tuple[Array, ...]:
    """Converts inputs to arrays with at least two axes, adding leading axes of size 1.

    Args:
        *arys: The inputs: arrays or numbers.

    Returns:
        An array for one input, otherwise a tuple of arrays.

    >>> atleast_2d(np.zeros(3)).shape
    (1, 3)
    """
    return _unwrap_single([_at_least(2, as_operand(x, "atleast_2d: x")) for x in arys])


@overload
def atleast_3d(ary: ArrayLike, /) -> Array: ...
@overload
def atleast_3d(*arys: ArrayLike) -> Array | tuple[Array, ...]: ...
def atleast_3d(*arys: ArrayLike) -> Array | tuple[Array, ...]:
    """Converts inputs to arrays with at least three axes.

    A scalar becomes `f32[1, 1, 1]`, `f32[n]` becomes `f32[1, n, 1]`, and `f32[n, m]` becomes `f32[n, m, 1]`.

    Args:
        *arys: The inputs: arrays or numbers.

    Returns:
        An array for one input, otherwise a tuple of arrays.

    >>> atleast_3d(np.zeros(3)).shape
    (1, 3, 1)
    """
    values = [as_operand(x, "atleast_3d: x") for x in arys]
    return _unwrap_single(
        [_at_least(3, shape.expand_dims(x, [x.aval.ndim]) if 0 < x.aval.ndim < 3 else x) for x in values]
    )


def _at_least(ndim: int, x: Value) -> Array:
    return shape.expand_dims(x, range(max(0, ndim - x.aval.ndim)))


def _unwrap_single(arrays: list[Array]) -> Array | tuple[Array, ...]:
    return arrays[0] if len(arrays) == 1 else tuple(arrays)
