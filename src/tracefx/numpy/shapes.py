"""Shapes: reshaping, moving axes, broadcasting, and arrays that differ from their argument only in that.

Axes are counted from 0 or from the end; one that isn't there is a ValueError that names it. Shapes are static:
integers known when the program is traced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsIndex, overload

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, AxisLike
from tracefx.core.avals import Shape
from tracefx.core.dtypes import DTypeLike
from tracefx.core.handler import as_array
from tracefx.core.sharding import DeviceOrSharding
from tracefx.core.values import ConcreteArray, Value
from tracefx.numpy.device_placement import place_on_device
from tracefx.numpy.evaluated import by_numpy
from tracefx.numpy.operand_promotion import as_operand, broadcast_operand_shapes, convert_dtype
from tracefx.ops import structural
from tracefx.ops.operation import static_shape
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import AxisError, canonicalize_axes, canonicalize_axis, concretize, is_sequence_like

ShapeLike = SupportsIndex | Sequence[SupportsIndex]


def sizes_of(name: str, sizes: ShapeLike, argument: str = "shape") -> Shape:
    """A shape from an argument that is one integer or a sequence of them.

    Raises TypeError for what is no integer known when the program is traced, ValueError for a negative size.
    """
    if type(sizes) is tuple or type(sizes) is list:
        return static_shape(name, sizes, argument)
    if (isinstance(sizes, Array | np.ndarray) and sizes.ndim) or not isinstance(sizes, SupportsIndex):
        return static_shape(name, sizes, argument)  # type: ignore[arg-type]  # its elements are checked there
    return static_shape(name, (sizes,), argument)  # type: ignore[arg-type]  # as above


def normalize_axes(name: str, axis: AxisLike, ndim: int, argument: str = "axis") -> tuple[int, ...]:
    """Axes, counted from 0, from an argument that is one axis or a sequence of them."""
    if is_sequence_like(axis):
        return canonicalize_axes(name, axis, ndim, argument)  # type: ignore[arg-type]  # as just asked
    return (canonicalize_axis(name, axis, ndim, argument),)  # type: ignore[arg-type]  # None is refused there


# ------------------------------------------------------------------ reshaping


@by_numpy()
def reshape(a: ArrayLike, shape: ShapeLike, order: str = "C", *, copy: bool | None = None) -> Array:
    """The elements of `a` in another shape of the same size, one of whose sizes may be -1: the one that fits.

    `order="F"` reads and writes elements with the first axis changing fastest. Raises TypeError if a size is not known
    when the program is traced, or the sizes don't fit.

    >>> reshape(np.arange(6), (2, -1)).shape
    (2, 3)
    """
    del copy  # arrays never change, so that they share memory does not show
    x = as_operand(a, "reshape: a")
    sizes = _infer_size(x, shape)
    if order == "C":
        return structural.reshape(x, sizes)
    if order != "F":
        raise ValueError(f"reshape: order must be 'C' or 'F', got {order!r}")
    backwards = structural.reshape(structural.transpose(x, range(x.aval.ndim)[::-1]), sizes[::-1])
    return structural.transpose(backwards, range(len(sizes))[::-1])


def _infer_size(x: Value, sizes: ShapeLike) -> Shape:
    """The sizes with -1 filled in."""
    if type(sizes) is tuple and -1 not in [n if type(n) is int else -1 for n in sizes]:
        return static_shape("reshape", sizes)
    parts: list[SupportsIndex] = list(concretize(sizes)) if is_sequence_like(sizes) else [sizes]  # type: ignore[arg-type, list-item]  # as asked
    places = [i for i, n in enumerate(parts) if _is_inferred(n)]
    if not places:
        return sizes_of("reshape", sizes)
    known = static_shape("reshape", [n for i, n in enumerate(parts) if i not in places])  # type: ignore[misc]  # as above
    product = math.prod(known)
    if len(places) > 1 or product == 0 or x.aval.size % product:
        raise TypeError(
            f"reshape of {x.aval} to {tuple(parts)}: there must be one -1, and it must stand for a whole size"
        )
    rest = x.aval.size // product
    return (*known[: places[0]], rest, *known[places[0] :])


def _is_inferred(n: SupportsIndex) -> bool:
    """Whether a size is -1, as far as it is known."""
    if isinstance(n, np.ndarray | ConcreteArray):
        return n.ndim == 0 and n.dtype.kind == "i" and n.__index__() == -1
    return isinstance(n, int | np.integer) and int(n) == -1


@by_numpy()
def ravel(a: ArrayLike, order: str = "C") -> Array:
    """The elements of `a` along one axis.

    >>> ravel(np.zeros((2, 3))).shape
    (6,)
    """
    return reshape(a, -1 if as_operand(a, "ravel: a").aval.size else 0, order)


@by_numpy()
def squeeze(a: ArrayLike, axis: AxisLike = None) -> Array:
    """`a` without the axes given, which must have size 1, or without all axes of size 1. ValueError otherwise.

    >>> squeeze(np.zeros((1, 3, 1))).shape
    (3,)
    """
    x = as_operand(a, "squeeze: a")
    if axis is None:
        return shape.squeeze(x, [i for i, n in enumerate(x.aval.shape) if n == 1])
    return shape.squeeze(x, normalize_axes("squeeze", axis, x.aval.ndim))


@by_numpy()
def expand_dims(a: ArrayLike, axis: int | Sequence[int] = 0) -> Array:
    """`a` with new axes of size 1 at the places `axis` of the result.

    >>> expand_dims(np.zeros(3), (0, 2)).shape
    (1, 3, 1)
    """
    x = as_operand(a, "expand_dims: a")
    count = len(axis) if is_sequence_like(axis) else 1  # type: ignore[arg-type]  # as just asked
    return shape.expand_dims(x, normalize_axes("expand_dims", axis, x.aval.ndim + count))


@by_numpy()
def astype(
    x: ArrayLike, dtype: DTypeLike | None, /, *, copy: bool = False, device: DeviceOrSharding | None = None
) -> Array:
    """`x` with its elements converted to `dtype`, None meaning the default float, on a device.

    Complex numbers lose their imaginary part, floats out of an integer's range become its nearest end and NaN 0.

    >>> astype(2.7, "int32")
    Array(2, dtype=int32)
    """
    del copy  # arrays never change, so that they share memory does not show
    new = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype, "astype: dtype")
    return place_on_device(as_array(convert_dtype(as_operand(x, "astype: x"), new)), device)


# ------------------------------------------------------------------ axes


@by_numpy()
def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """`a` with its axes in the order `axes`, or reversed. ValueError unless each is named once.

    >>> transpose(np.zeros((2, 3, 5)), (2, 0, 1)).shape
    (5, 2, 3)
    """
    x = as_operand(a, "transpose: a")
    order = range(x.aval.ndim)[::-1] if axes is None else canonicalize_axes("transpose", axes, x.aval.ndim, "axes")
    if len(order) != x.aval.ndim:
        raise AxisError(f"transpose: axes {axes} must name each of the {x.aval.ndim} axes of {x.aval} once")
    return structural.transpose(x, order)


@by_numpy()
def permute_dims(a: ArrayLike, /, axes: Sequence[int]) -> Array:
    """`transpose`, by its name in the array API: `a` with its axes in the order `axes`.

    >>> permute_dims(np.zeros((2, 3, 5)), (2, 0, 1)).shape
    (5, 2, 3)
    """
    return transpose(a, axes)


@by_numpy()
def matrix_transpose(x: ArrayLike, /) -> Array:
    """`x` with its last two axes swapped. ValueError if there are fewer.

    >>> matrix_transpose(np.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    value = as_operand(x, "matrix_transpose: x")
    if value.aval.ndim < 2:
        raise ValueError(f"matrix_transpose: x must have at least two axes, got {value.aval}")
    return swapaxes(value, -1, -2)


@by_numpy()
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """`a` with two axes in each other's place.

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


@by_numpy()
def moveaxis(a: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """`a` with the axes `source` at the places `destination`, the others in their order. ValueError unless they pair.

    >>> moveaxis(np.zeros((2, 3, 5)), 0, -1).shape
    (3, 5, 2)
    """
    x = as_operand(a, "moveaxis: a")
    ndim = x.aval.ndim
    sources = normalize_axes("moveaxis", source, ndim, "source")
    places = normalize_axes("moveaxis", destination, ndim, "destination")
    if len(sources) != len(places):
        raise ValueError(f"moveaxis: source {source} and destination {destination} must name equally many axes")
    order = [i for i in range(ndim) if i not in sources]
    for place, i in sorted(zip(places, sources, strict=True)):
        order.insert(place, i)
    return structural.transpose(x, order)


@by_numpy()
def flip(m: ArrayLike, axis: AxisLike = None) -> Array:
    """`m` with its elements in reverse order along `axis`, by default all of them.

    >>> flip(np.arange(3)).tolist()
    [2, 1, 0]
    """
    x = as_operand(m, "flip: m")
    return shape.rev(x, range(x.aval.ndim) if axis is None else normalize_axes("flip", axis, x.aval.ndim))


# ------------------------------------------------------------------ broadcasting


@by_numpy()
def broadcast_to(array: ArrayLike, shape: ShapeLike) -> Array:
    """`array` repeated to `shape`, axes aligned at the end. BroadcastError where a size is neither 1 nor that one.

    >>> broadcast_to(np.arange(3), (2, 3)).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    x = as_operand(array, "broadcast_to: array")
    sizes = sizes_of("broadcast_to", shape)
    if broadcast_operand_shapes("broadcast_to", x.aval.shape, sizes) != sizes:
        raise ValueError(f"broadcast_to: {x.aval} does not fit {sizes}: it has more axes or larger sizes")
    return structural.broadcast_to(x, sizes)


def broadcast_arrays(*args: ArrayLike) -> tuple[Array, ...]:
    """Broadcast arrays against each other: a tuple of arrays of one shape, each with its own dtype.

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
    """Convert inputs to arrays with at least one axis: a scalar becomes `f32[1]`. Several inputs give a tuple.

    >>> atleast_1d(2.0).shape
    (1,)
    """
    return _unwrap_single([_at_least(1, as_operand(x, "atleast_1d: x")) for x in arys])


@overload
def atleast_2d(ary: ArrayLike, /) -> Array: ...
@overload
def atleast_2d(*arys: ArrayLike) -> Array | tuple[Array, ...]: ...
def atleast_2d(*arys: ArrayLike) -> Array | tuple[Array, ...]:
    """Convert inputs to arrays with at least two axes, new ones of size 1 in front. Several inputs give a tuple.

    >>> atleast_2d(np.zeros(3)).shape
    (1, 3)
    """
    return _unwrap_single([_at_least(2, as_operand(x, "atleast_2d: x")) for x in arys])


@overload
def atleast_3d(ary: ArrayLike, /) -> Array: ...
@overload
def atleast_3d(*arys: ArrayLike) -> Array | tuple[Array, ...]: ...
def atleast_3d(*arys: ArrayLike) -> Array | tuple[Array, ...]:
    """Convert inputs to arrays with at least three axes. Several inputs give a tuple.

    `f32[n]` becomes `f32[1, n, 1]`, and `f32[n, m]` becomes `f32[n, m, 1]`.

    >>> atleast_3d(np.zeros(3)).shape
    (1, 3, 1)
    """
    values = [as_operand(x, "atleast_3d: x") for x in arys]
    return _unwrap_single(
        [_at_least(3, shape.expand_dims(x, [x.aval.ndim]) if 0 < x.aval.ndim < 3 else x) for x in values]
    )


def _at_least(ndim: int, x: Value) -> Array:
    return shape.expand_dims(x, range(max(0, ndim - x.aval.ndim)))


def _unwrap_single(found: list[Array]) -> Array | tuple[Array, ...]:
    return found[0] if len(found) == 1 else tuple(found)
