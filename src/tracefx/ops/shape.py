"""Operations that cut, join and rearrange arrays, and those that make arrays of constants.

(`reshape`, `transpose` and `broadcast_in_dim` stand in `basis`.)
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Final, SupportsIndex, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape, ShapedArray, show_avals
from tracefx.core.builder import Builder, Dims, Ir
from tracefx.core.dtypes import DType, DTypeLike, Kind, NDArray
from tracefx.core.handler import as_array, bind, bind1
from tracefx.core.literal import Literal
from tracefx.core.primitive import (
    Batchable,
    Differentiable,
    Linear,
    Lowerable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    Zero,
)
from tracefx.core.values import Value, as_value
from tracefx.ops import basis, stablehlo
from tracefx.ops.basis import (
    batch_first,
    broadcast_in_dim,
    convert,
    fit,
    instantiate,
    move_axis,
    reduce_sum,
    reshape,
)
from tracefx.ops.casting import cast
from tracefx.ops.elementwise import operands as together
from tracefx.ops.operation import LinearOperation, Operation, static_shape
from tracefx.ops.selection import select_n
from tracefx.ops.static import axes_of, axis_of, static_int, static_ints


def _zero(dtype: DType) -> Literal:
    return Literal(_python(dtype)(0), ShapedArray((), dtype))


def batch_at(x: Value, dim: int | None, axis: MappedAxis, place: int) -> Array:
    """`x` with its batch axis at `place`, repeated along it if it has none."""
    if dim is not None:
        return move_axis(x, dim, place)
    shape = (*x.aval.shape[:place], axis.size, *x.aval.shape[place:])
    return broadcast_in_dim(x, shape, [i for i in range(len(shape)) if i != place])


# ------------------------------------------------------------------ squeeze, expand_dims


@final
@frozen(eq=False)
class Squeeze(LinearOperation):
    name = "squeeze"
    dimensions: tuple[int, ...]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        axes_of("squeeze", self.dimensions, x.ndim)
        if any(x.shape[d] != 1 for d in self.dimensions):
            raise ValueError(f"squeeze: dimensions {self.dimensions} of {x} must all have size 1")
        return x.update(shape=tuple([n for i, n in enumerate(x.shape) if i not in self.dimensions]))

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return args[0].squeeze(self.dimensions)

    @override
    def pullback(self, ct: Value, *args: Value | Linear) -> Sequence[Tangent | None]:
        return [reshape(ct, args[0].aval.shape)]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        (x,), (dim,) = args, dims
        assert dim is not None
        out = squeeze(x, [i + (i >= dim) for i in self.dimensions])
        return out, dim - sum(i < dim for i in self.dimensions)

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: Ir) -> Ir:
        return builder.emit("stablehlo.reshape", operands, [out])[0]


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """`array` without the axes `dimensions`, all of size 1: `f32[1, n, 1]` becomes `f32[n]`.

    Raises ValueError if an axis has another size, is out of bounds or named twice.

    >>> squeeze(np.ones((1, 3)), (0,)).shape
    (3,)
    """
    x = as_value(array, "array")
    axes = axes_of("squeeze", dimensions, x.aval.ndim)
    return bind1(Squeeze(axes), x) if axes else as_array(x)


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """`array` with new axes of size 1, which have the places `dimensions` in the result.

    >>> expand_dims(np.ones(3), (0, 2)).shape
    (1, 3, 1)
    """
    x = as_value(array, "array")
    ndim = x.aval.ndim + len(static_ints("expand_dims", dimensions, "dimensions"))
    new = axes_of("expand_dims", dimensions, ndim)
    kept = [i for i in range(ndim) if i not in new]
    sizes = [1] * ndim
    for i, n in zip(kept, x.aval.shape, strict=True):
        sizes[i] = n
    return broadcast_in_dim(x, sizes, kept)


def broadcast(operand: ArrayLike, sizes: Sequence[int]) -> Array:
    """`operand` repeated along new axes of the given sizes, in front of its own.

    >>> broadcast(np.ones(3), (2,)).shape
    (2, 3)
    """
    x = as_value(operand, "operand")
    front = static_shape("broadcast", sizes, "sizes")
    return broadcast_in_dim(x, (*front, *x.aval.shape), range(len(front), len(front) + x.aval.ndim))


# ------------------------------------------------------------------ concatenate, split, stack


@frozen(eq=False)
class Joining(LinearOperation):
    """One array from several of one dtype."""

    def joined(self, avals: Sequence[ShapedArray], shape: Shape) -> ShapedArray:
        first = avals[0]
        if any(a.dtype != first.dtype for a in avals):
            raise TypeError(
                f"{self.name} takes operands of one dtype, got {show_avals(avals)}; convert them with astype, or use "
                "the function of tracefx.numpy, which promotes"
            )
        return ShapedArray(shape, first.dtype, all(a.weak_type for a in avals))

    @override
    def instantiate(self, tangent: Tangent) -> Value:
        return instantiate(tangent)


@final
@frozen(eq=False)
class Concatenate(Joining):
    name = "concatenate"
    dimension: int

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        first, axis = avals[0], self.dimension
        if any(a.ndim != first.ndim for a in avals):
            raise TypeError(f"concatenate: operands must have the same number of axes, got {show_avals(avals)}")
        if not 0 <= axis < first.ndim:
            raise TypeError(f"concatenate: dimension {axis} is no axis of operands {show_avals(avals)}")
        if any(a.without_axis(axis).shape != first.without_axis(axis).shape for a in avals):
            raise TypeError(f"concatenate: operands must have equal sizes but for axis {axis}, got {show_avals(avals)}")
        total = sum([a.shape[axis] for a in avals])
        return self.joined(avals, (*first.shape[:axis], total, *first.shape[axis + 1 :]))

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return np.concatenate(args, self.dimension)

    @override
    def pullback(self, ct: Value, *args: Value | Linear) -> Sequence[Tangent | None]:
        axis, start = self.dimension, 0
        out: list[Tangent | None] = []
        for x in args:
            stop = start + x.aval.shape[axis]
            out.append(fit(slice_axis(ct, start, stop, axis), x.aval) if isinstance(x, Linear) else None)
            start = stop
        return out

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        place = next(d for d in dims if d is not None)
        moved = [batch_at(x, d, axis, place) for x, d in zip(args, dims, strict=True)]
        return bind1(Concatenate(self.dimension + (place <= self.dimension)), *moved), place

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: Ir) -> Ir:
        return builder.emit("stablehlo.concatenate", operands, [out], {"dimension": self.dimension})[0]


def concatenate(operands: Sequence[ArrayLike], dimension: int) -> Array:
    """`operands`, of equal shapes but for axis `dimension`, joined along it.

    Raises TypeError if dtypes, numbers of axes or other sizes differ.

    >>> concatenate([np.arange(2), np.arange(3)], 0).tolist()
    [0, 1, 0, 1, 2]
    """
    values = _parts("concatenate", operands)
    axis = static_int("concatenate", dimension, "dimension")
    return (
        as_array(values[0])
        if len(values) == 1 and values[0].aval.ndim > axis >= 0
        else _join(Concatenate(axis), values)
    )


def _parts(name: str, operands: Sequence[ArrayLike]) -> list[Value]:
    values = [as_value(x, "operands") for x in operands]
    if not values:
        raise ValueError(f"{name}: operands must be at least one array, got none")
    return values


def _join(prim: Joining, values: Sequence[Value]) -> Array:
    return bind1(prim, *values)


@final
@frozen(eq=False)
class Stack(Joining):
    name = "stack"
    axis: int

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        first = avals[0]
        if any(a.shape != first.shape for a in avals):
            raise ValueError(f"stack: operands must have one shape, got {show_avals(avals)}")
        if not 0 <= self.axis <= first.ndim:
            raise ValueError(f"stack: axis {self.axis} is out of bounds for a result with {first.ndim + 1} axes")
        return self.joined(avals, (*first.shape[: self.axis], len(avals), *first.shape[self.axis :]))

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return np.stack(args, self.axis)

    @override
    def pullback(self, ct: Value, *args: Value | Linear) -> Sequence[Tangent | None]:
        return [
            fit(squeeze(slice_axis(ct, i, i + 1, self.axis), (self.axis,)), x.aval) if isinstance(x, Linear) else None
            for i, x in enumerate(args)
        ]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        moved = [batch_first(x, d, axis) for x, d in zip(args, dims, strict=True)]
        return bind1(Stack(self.axis + 1), *moved), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: Ir) -> Ir:
        shape = (*out.shape[: self.axis], 1, *out.shape[self.axis + 1 :])
        kept = [i for i in range(len(shape)) if i != self.axis]
        parts = [stablehlo.broadcast(builder, x, shape, kept) for x in operands]
        return builder.emit("stablehlo.concatenate", parts, [out], {"dimension": self.axis})[0]


def stack(operands: Sequence[ArrayLike], axis: int = 0) -> Array:
    """`operands`, all of one shape, along a new axis at place `axis`.

    >>> stack([np.arange(2), np.arange(2)]).tolist()
    [[0, 1], [0, 1]]
    """
    values = _parts("stack", operands)
    return _join(Stack(axis_of("stack", axis, values[0].aval.ndim + 1)), values)


@final
@frozen(eq=False)
class Split(Primitive, Differentiable, Transposable, Batchable, Lowerable):
    name = "split"
    sizes: tuple[int, ...]
    axis: int

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        (x,) = avals
        if not 0 <= self.axis < x.ndim:
            raise ValueError(f"split: axis {self.axis} is out of bounds for {x}")
        if any(n < 0 for n in self.sizes):
            raise ValueError(f"split: sizes {self.sizes} must not be negative")
        if sum(self.sizes) != x.shape[self.axis]:
            raise ValueError(f"split: sizes {self.sizes} must add up to the size of axis {self.axis} of {x}")
        return [x.update(shape=(*x.shape[: self.axis], n, *x.shape[self.axis + 1 :])) for n in self.sizes]

    def starts(self) -> list[int]:
        return [sum(self.sizes[:i]) for i in range(len(self.sizes))]

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return np.split(args[0], self.starts()[1:], self.axis) if self.sizes else []

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        (t,) = tangents
        assert not isinstance(t, Zero)
        return bind(self, *primals), bind(self, t)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | Linear) -> Sequence[Tangent | None]:
        return [fit(concatenate([instantiate(ct) for ct in cts], self.axis), args[0].aval)]

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        (dim,) = dims
        assert dim is not None
        outs = bind(Split(self.sizes, self.axis + (dim <= self.axis)), *args)
        return outs, [dim] * len(outs)

    @override
    def lower(self, builder: Builder, *operands: Ir) -> Sequence[Ir]:
        (x,) = operands
        outs = self.abstract_eval(x.aval)
        pieces = []
        for start, out in zip(self.starts(), outs, strict=True):
            low = [0] * x.aval.ndim
            low[self.axis] = start
            piece = Slice(tuple(low), tuple([a + n for a, n in zip(low, out.shape, strict=True)]), None)
            pieces.append(piece.emit(builder, out, x))
        return pieces


def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """`operand` cut along `axis` into pieces of the given sizes, which add up to the axis's.

    >>> [piece.tolist() for piece in split(np.arange(3), (1, 2))]
    [[0], [1, 2]]
    """
    x = as_value(operand, "operand")
    parts = static_shape("split", sizes, "sizes")
    outs = bind(Split(parts, axis_of("split", axis, x.aval.ndim)), x)
    return [as_array(o) for o in outs]


# ------------------------------------------------------------------ slice


@final
@frozen(eq=False)
class Slice(LinearOperation):
    name = "slice"
    start_indices: tuple[int, ...]
    limit_indices: tuple[int, ...]
    strides: tuple[int, ...] | None

    @property
    def steps(self) -> tuple[int, ...]:
        return (1,) * len(self.start_indices) if self.strides is None else self.strides

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        for what, given in (("start_indices", self.start_indices), ("limit_indices", self.limit_indices)):
            if len(given) != x.ndim:
                raise TypeError(f"slice: {what} {given} must have one entry for each axis of {x}")
        if len(self.steps) != x.ndim or any(s <= 0 for s in self.steps):
            raise TypeError(f"slice: strides {self.strides} must have one positive entry for each axis of {x}")
        sizes = []
        for n, start, stop, step in zip(x.shape, self.start_indices, self.limit_indices, self.steps, strict=True):
            if not 0 <= start <= stop <= n:
                raise TypeError(
                    f"slice of {x} from start_indices {self.start_indices} to limit_indices {self.limit_indices}: "
                    "each start must be between 0 and its limit, and each limit at most the axis's size"
                )
            sizes.append(-(-(stop - start) // step))
        return x.update(shape=tuple(sizes))

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        window = zip(self.start_indices, self.limit_indices, self.steps, strict=True)
        out: NDArray = args[0][tuple([builtins.slice(*w) for w in window])]
        return out

    @override
    def pullback(self, ct: Value, *args: Value | Linear) -> Sequence[Tangent | None]:
        config = []
        for n, m, start, step in zip(args[0].aval.shape, ct.aval.shape, self.start_indices, self.steps, strict=True):
            reached = start + ((m - 1) * step + 1 if m else 0)
            config.append((start, n - reached, step - 1))
        return [pad(ct, _zero(ct.aval.dtype), config)]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        (x,), (dim,) = args, dims
        assert dim is not None
        strides = None if self.strides is None else _inserted(self.strides, dim, 1)
        start, limit = _inserted(self.start_indices, dim, 0), _inserted(self.limit_indices, dim, axis.size)
        return slice(x, start, limit, strides), dim

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: Ir) -> Ir:
        attrs = {
            "start_indices": Dims(self.start_indices),
            "limit_indices": Dims(self.limit_indices),
            "strides": Dims(self.steps),
        }
        return builder.emit("stablehlo.slice", operands, [out], attrs)[0]


def _inserted(xs: tuple[int, ...], place: int, x: int) -> tuple[int, ...]:
    return (*xs[:place], x, *xs[place:])


def slice(
    operand: ArrayLike,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Array:
    """The window of `operand` from `start_indices` to before `limit_indices`, taking every `strides`-th element.

    All indices are static and within bounds; anything else is a TypeError.

    >>> slice(np.arange(6), (1,), (6,), (2,)).tolist()
    [1, 3, 5]
    """
    x = as_value(operand, "operand")
    start = static_ints("slice", start_indices, "start_indices")
    limit = static_ints("slice", limit_indices, "limit_indices")
    steps = None if strides is None else static_ints("slice", strides, "strides")
    if limit == x.aval.shape and start == (0,) * x.aval.ndim and steps is None:
        return as_array(x)
    return bind1(Slice(start, limit, steps), x)


def slice_axis(x: Value, start: int, stop: int, axis: int) -> Array:
    """The part of `x` from `start` to before `stop` along one axis."""
    low, high = [0] * x.aval.ndim, list(x.aval.shape)
    low[axis], high[axis] = start, stop
    return slice(x, low, high)


# ------------------------------------------------------------------ pad

PaddingConfig = tuple[tuple[int, int, int], ...]


@final
@frozen(eq=False)
class Pad(LinearOperation):
    name = "pad"
    padding_config: PaddingConfig

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        x, value = avals
        if x.dtype != value.dtype:
            raise TypeError(f"pad: operand and padding_value must have one dtype, got {x} and {value}")
        if value.shape:
            raise ValueError(f"pad: padding_value must have no axes, got {value}")
        if len(self.padding_config) != x.ndim:
            raise ValueError(f"pad: padding_config {self.padding_config} must have one entry for each axis of {x}")
        if any(interior < 0 for _, _, interior in self.padding_config):
            raise ValueError(f"pad: interior padding must not be negative, got padding_config {self.padding_config}")
        sizes = [
            low + high + n + max(n - 1, 0) * interior
            for n, (low, high, interior) in zip(x.shape, self.padding_config, strict=True)
        ]
        if any(n < 0 for n in sizes):
            raise ValueError(f"pad: padding_config {self.padding_config} cuts more off {x} than there is")
        return ShapedArray(tuple(sizes), x.dtype, x.weak_type and value.weak_type)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, value = args
        aval = self.out_aval(ShapedArray(x.shape, x.dtype), ShapedArray(value.shape, value.dtype))
        out = np.full(aval.shape, value, x.dtype)
        source, target = [], []
        for n, size, (low, _, interior) in zip(x.shape, aval.shape, self.padding_config, strict=True):
            step = interior + 1
            first = max(-(low // step), 0)  # the first element that isn't cut off, and the first beyond the end
            end = max(min(n, -((low - size) // step)), first)
            source.append(builtins.slice(first, end))
            start = low + first * step
            target.append(builtins.slice(start, start + (end - first) * step, step))
        out[tuple(target)] = x[tuple(source)]
        return out

    @override
    def instantiate(self, tangent: Tangent) -> Value:
        if isinstance(tangent, Zero) and not tangent.aval.shape:
            return Literal(_python(tangent.aval.dtype)(0), tangent.aval)
        return instantiate(tangent)

    @override
    def pullback(self, ct: Value, *args: Value | Linear) -> Sequence[Tangent | None]:
        x, value = args
        of_x: Tangent | None = None
        of_value: Tangent | None = None
        if isinstance(x, Linear):
            cut = pad(ct, _zero(ct.aval.dtype), [(-low, -high, 0) for low, high, _ in self.padding_config])
            steps = [interior + 1 for _, _, interior in self.padding_config]
            strides = steps if any(s > 1 for s in steps) else None
            of_x = fit(slice(cut, [0] * x.aval.ndim, cut.shape, strides), x.aval)
        if isinstance(value, Linear):
            zeros = basis.full(ct.aval, 0)
            alone = select_n(self.inside(x.aval.shape), ct, zeros)
            of_value = fit(reduce_sum(alone, range(ct.aval.ndim)), value.aval)
        return [of_x, of_value]

    def inside(self, shape: Shape) -> Array:
        """Where in the result elements of the operand are."""
        return pad(basis.full(ShapedArray(shape, dtypes.bool_), True), False, self.padding_config)

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        (x, value), (dim, value_dim) = args, dims
        if value_dim is None:
            assert dim is not None
            config = [*self.padding_config[:dim], (0, 0, 0), *self.padding_config[dim:]]
            return pad(x, value, config), dim
        x = batch_first(x, dim, axis)
        config = [(0, 0, 0), *self.padding_config]
        padded = pad(x, Literal(_python(x.aval.dtype)(0), ShapedArray((), x.aval.dtype, value.aval.weak_type)), config)
        inside = Pad(tuple(config)).inside(x.aval.shape)
        return select_n(inside, broadcast_in_dim(value, padded.shape, (0,)), padded), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: Ir) -> Ir:
        low, high, interior = zip(*self.padding_config, strict=True) if self.padding_config else ((), (), ())
        attrs = {
            "edge_padding_low": Dims(tuple(low)),
            "edge_padding_high": Dims(tuple(high)),
            "interior_padding": Dims(tuple(interior)),
        }
        return builder.emit("stablehlo.pad", operands, [out], attrs)[0]


def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """`operand` with `padding_value` put around and between its elements.

    `padding_config` has `(low, high, interior)` for each axis: how many elements go in front, behind, and between
    any two. A negative `low` or `high` cuts elements off.

    >>> pad(np.arange(1, 4), 0, [(1, -1, 1)]).tolist()
    [0, 1, 0, 2, 0]
    """
    x, value = together(operand, padding_value)
    config: list[tuple[int, int, int]] = []
    for entry in padding_config:
        parts = static_ints("pad", entry, "padding_config")
        if len(parts) != 3:
            raise ValueError(f"pad: padding_config must have entries (low, high, interior), got {entry!r}")
        config.append((parts[0], parts[1], parts[2]))
    prim = Pad(tuple(config))
    out = prim.out_aval(x.aval, value.aval)
    return as_array(x) if out == x.aval and not any(map(any, config)) else bind1(prim, x, value)


# ------------------------------------------------------------------ rev


@final
@frozen(eq=False)
class Rev(LinearOperation):
    name = "rev"
    dimensions: tuple[int, ...]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        if len(set(self.dimensions)) != len(self.dimensions) or any(not 0 <= d < x.ndim for d in self.dimensions):
            raise TypeError(f"rev: dimensions {self.dimensions} must be different axes of {x}, counted from 0")
        return x

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return np.flip(args[0], self.dimensions)

    @override
    def pullback(self, ct: Value, *args: Value | Linear) -> Sequence[Tangent | None]:
        return [rev(ct, self.dimensions)]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        (x,), (dim,) = args, dims
        assert dim is not None
        return rev(x, [d + (d >= dim) for d in self.dimensions]), dim

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: Ir) -> Ir:
        return builder.emit("stablehlo.reverse", operands, [out], {"dimensions": Dims(self.dimensions)})[0]


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """`operand` with its elements in reverse order along the axes `dimensions`.

    >>> rev(np.arange(3), (0,)).tolist()
    [2, 1, 0]
    """
    axes = static_ints("rev", dimensions, "dimensions")
    return bind1(Rev(axes), operand) if axes else as_array(operand)


# ------------------------------------------------------------------ iota, full


@final
@frozen(eq=False)
class Iota(Operation):
    name = "iota"
    dtype: DType
    shape: Shape
    dimension: int

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        if not (dtypes.is_integer(self.dtype) or dtypes.is_inexact(self.dtype)):
            raise TypeError(
                f"iota counts in numbers: dtype must be one of integers, floats or complex, got {self.dtype}"
            )
        if not 0 <= self.dimension < len(self.shape):
            raise ValueError(f"iota: dimension {self.dimension} must be an axis of shape {self.shape}")
        return ShapedArray(self.shape, self.dtype)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        sizes = [1] * len(self.shape)
        sizes[self.dimension] = n = self.shape[self.dimension]
        return np.broadcast_to(cast(np.arange(n), self.dtype).reshape(sizes), self.shape)

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        return bind1(self), None  # without operands there is nothing to map over

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: Ir) -> Ir:
        return builder.emit("stablehlo.iota", operands, [out], {"iota_dimension": self.dimension})[0]


def iota(dtype: DTypeLike, size: int) -> Array:
    """The numbers from 0 to `size - 1`, of the given dtype.

    >>> iota("int32", 3)
    Array([0, 1, 2], dtype=int32)
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: DTypeLike, shape: Sequence[int], dimension: int) -> Array:
    """An array whose elements are their own index along axis `dimension`.

    >>> broadcasted_iota("int32", (2, 3), 1).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    sizes, axis = static_shape("iota", shape), static_int("iota", dimension, "dimension")
    return bind1(Iota(dtypes.as_dtype(dtype), sizes, axis))


def full(shape: Sequence[int] | SupportsIndex, fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """An array of the given shape, every element `fill_value`, whose dtype it has unless `dtype` says otherwise.

    >>> full((2,), 1.5)
    Array([1.5, 1.5], dtype=float32, weak_type=True)
    """
    sizes = static_shape("full", (shape,) if isinstance(shape, SupportsIndex) else shape)  # type: ignore[arg-type]  # its elements are checked there
    value = as_value(fill_value, "fill_value")
    if value.aval.shape:
        raise TypeError(f"full: fill_value must have no axes, got {value.aval}")
    if dtype is not None:
        value = _scalar_as(value, dtypes.as_dtype(dtype), False)
    return broadcast_in_dim(value, sizes, ())


def full_like(
    x: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None, shape: Sequence[int] | None = None
) -> Array:
    """An array of `x`'s shape and dtype, every element `fill_value`.

    >>> full_like(np.arange(2), 7)
    Array([7, 7], dtype=int32)
    """
    like, value = as_value(x, "x").aval, as_value(fill_value, "fill_value")
    if value.aval.shape:
        raise TypeError(f"full_like: fill_value must have no axes, got {value.aval}")
    sizes = like.shape if shape is None else static_shape("full_like", shape)
    weak, new = (like.weak_type, like.dtype) if dtype is None else (False, dtypes.as_dtype(dtype))
    return broadcast_in_dim(_scalar_as(value, new, weak), sizes, ())


def _scalar_as(x: Value, dtype: DType, weak: bool) -> Value:
    """A scalar of another type; a literal stays one."""
    if isinstance(x, Literal):
        return Literal(_python(dtype)(cast(x.numpy(), dtype)), ShapedArray((), dtype, weak))
    return convert(x, dtype, weak)


_SCALARS: Final[dict[Kind, type[bool] | type[int] | type[float] | type[complex]]] = {
    Kind.BOOL: bool,
    Kind.SIGNED: int,
    Kind.UNSIGNED: int,
    Kind.FLOAT: float,
    Kind.COMPLEX: complex,
}


def _python(dtype: DType) -> type[bool] | type[int] | type[float] | type[complex]:
    """The type of Python number that can be any element of the dtype."""
    return _SCALARS[dtypes.kind(dtype)]
