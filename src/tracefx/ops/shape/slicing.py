"""Static windows of arrays: `slice`, its transpose `pad`, and `rev`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, NDArray, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind1
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import ExtractsWindow, MappedAxis, Tangent, UndefinedPrimal, Zero
from tracefx.dimensions.symbolic_dimensions import max_dim
from tracefx.lowering import Builder, DenseI64Array, IrValue
from tracefx.ops import structural
from tracefx.ops.elementwise.elementwise import operands as together
from tracefx.ops.elementwise.selection import select_n
from tracefx.ops.operation import DataMovement, LinearOperation, UnaryOperation, memoize_aval
from tracefx.ops.shape.array_creation import zero
from tracefx.ops.sharding_rules import resized_spec
from tracefx.ops.static_integers import concretize, static_ints
from tracefx.ops.structural import batch_first, broadcast_in_dim, instantiate, match_aval, reduce_sum

# ------------------------------------------------------------------ slice


@final
@frozen(eq=False)
class Slice(UnaryOperation, LinearOperation, DataMovement, ExtractsWindow):
    """Extracts a static, possibly strided window: `x[start:limit:stride]` along each axis.

    Args:
        start_indices: The index of the first element along each axis.
        limit_indices: The end along each axis, exclusive.
        strides: The positive step along each axis. None means 1.

    `x: f32[n, m] -> f32[k, l]` with `k = ceil((limit_indices[0] - start_indices[0]) / strides[0])` and likewise `l`;
    any dtype. Bound by `lax.slice`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Slice((1,), (6,), (2,)), numpy.arange(8))
    [Array([1, 3, 5], dtype=int32)]
    """

    name = "slice"
    start_indices: tuple[int, ...]
    limit_indices: tuple[int, ...]
    strides: tuple[int, ...] | None

    @property
    def steps(self) -> tuple[int, ...]:
        return (1,) * len(self.start_indices) if self.strides is None else self.strides

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [resized_spec(self, avals[0], outs[0].shape)]

    @property
    @override
    def window(self) -> tuple[Shape, Shape] | None:
        return (self.start_indices, self.limit_indices) if self.strides is None else None

    @override
    @memoize_aval("start_indices", "limit_indices", "strides")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        for what, entries in (("start_indices", self.start_indices), ("limit_indices", self.limit_indices)):
            if len(entries) != x.ndim:
                raise TypeError(f"slice: {what} {entries} must have one entry for each axis of {x}")
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
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        window = self._window()
        return lambda x: x[window]

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        out: NDArray = args[0][self._window()]
        return out

    def _window(self) -> tuple[builtins.slice, ...]:
        return tuple([builtins.slice(*w) for w in zip(self.start_indices, self.limit_indices, self.steps, strict=True)])

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        config = []
        for n, m, start, step in zip(args[0].aval.shape, ct.aval.shape, self.start_indices, self.steps, strict=True):
            slice_end = start + ((m - 1) * step + 1 if m else 0)
            config.append((start, n - slice_end, step - 1))
        return [pad(ct, zero(ct.aval), config)]

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        strides = None if self.strides is None else _insert(self.strides, dim, 1)
        start, limit = _insert(self.start_indices, dim, 0), _insert(self.limit_indices, dim, axis.size)
        return slice(x, start, limit, strides), dim

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        attrs = {
            "start_indices": DenseI64Array(self.start_indices),
            "limit_indices": DenseI64Array(self.limit_indices),
            "strides": DenseI64Array(self.steps),
        }
        return builder.emit("stablehlo.slice", operands, [out], attrs)[0]


def _insert(xs: tuple[int, ...], position: int, x: int) -> tuple[int, ...]:
    """Returns `xs` with `x` inserted at index `position`."""
    return (*xs[:position], x, *xs[position:])


def slice(
    operand: ArrayLike,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Array:
    """Returns the window of `operand` from `start_indices` to `limit_indices` (exclusive), with strides.

    Args:
        operand: Array.
        start_indices: The first index of the window along each axis, static.
        limit_indices: The end of the window along each axis, exclusive and static; at most the size of the axis.
        strides: The positive step along each axis. None, the default, means 1 for all.

    Returns:
        An array of the same rank and dtype.

    Raises:
        TypeError: The indices are not static, out of bounds, or not one per axis.

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
    """Returns the part of `x` from `start` to `stop` (exclusive) along one axis."""
    low, high = [0] * x.aval.ndim, list(x.aval.shape)
    low[axis], high[axis] = start, stop
    return slice(x, low, high)


# ------------------------------------------------------------------ pad

PaddingConfig = tuple[tuple[int, int, int], ...]
"""For each axis, the low, high and interior padding."""


@final
@frozen(eq=False)
class Pad(LinearOperation, DataMovement):
    """Pads an array with a scalar around and between its elements; negative edge padding removes elements.

    Args:
        padding_config: For each axis, the amount before, after and between elements: `(low, high, interior)`.

    `x: f32[n, m], padding_value: f32[] -> f32[k, l]` with `k = low + high + n + (n - 1) * interior` and likewise `l`;
    any dtype. Bound by `lax.pad`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Pad(((1, -1, 1),)), numpy.array([1, 2]), numpy.array(0))
    [Array([0, 1, 0], dtype=int32)]
    """

    name = "pad"
    arity = 2
    padding_config: PaddingConfig

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [resized_spec(self, avals[0], outs[0].shape)]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        x, value = avals
        if x.dtype != value.dtype:
            raise TypeError(f"pad: operand and padding_value must have one dtype, got {x} and {value}")
        if value.shape:
            raise ValueError(f"pad: padding_value must be a scalar, got {value}")
        if len(self.padding_config) != x.ndim:
            raise ValueError(f"pad: padding_config {self.padding_config} must have one entry for each axis of {x}")
        if any(interior < 0 for _, _, interior in self.padding_config):
            raise ValueError(f"pad: interior padding must not be negative, got padding_config {self.padding_config}")
        sizes = [
            low + high + n + (max_dim(n - 1, 0) * interior if interior else 0)
            for n, (low, high, interior) in zip(x.shape, self.padding_config, strict=True)
        ]
        if any(n < 0 for n in sizes):
            raise ValueError(f"pad: padding_config {self.padding_config} removes more elements than {x} has")
        return ShapedArray(tuple(sizes), x.dtype, x.weak_type and value.weak_type)

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        x, _ = avals
        shape = self.out_aval(*avals).shape
        source, target = self._windows(x.shape, shape)

        def kernel(x: NDArray, value: NDArray) -> NDArray:
            out = np.empty(shape, x.dtype)
            out[...] = value
            out[target] = x[source]
            return out

        return kernel

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, value = args
        aval = self.out_aval(ShapedArray(x.shape, x.dtype), ShapedArray(value.shape, value.dtype))
        out = np.full(aval.shape, value, x.dtype)
        source, target = self._windows(x.shape, aval.shape)
        out[target] = x[source]
        return out

    def _windows(self, shape: Shape, padded: Shape) -> tuple[tuple[builtins.slice, ...], tuple[builtins.slice, ...]]:
        """Returns the slices of the operand that are not cut off, and the slices of the output that they go to."""
        source, target = [], []
        for n, size, (low, _, interior) in zip(shape, padded, self.padding_config, strict=True):
            step = interior + 1
            first = max(-(low // step), 0)  # the first element that isn't cut off; `end` is the first beyond it
            end = max(min(n, -((low - size) // step)), first)
            source.append(builtins.slice(first, end))
            start = low + first * step
            target.append(builtins.slice(start, start + (end - first) * step, step))
        return tuple(source), tuple(target)

    @override
    def instantiate(self, tangent: Tangent) -> Value:
        if isinstance(tangent, Zero) and not tangent.aval.shape:
            return zero(tangent.aval)
        return instantiate(tangent)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        x, value = args
        x_ct: Tangent | None = None
        value_ct: Tangent | None = None
        if isinstance(x, UndefinedPrimal):
            cut = pad(ct, zero(ct.aval), [(-low, -high, 0) for low, high, _ in self.padding_config])
            steps = [interior + 1 for _, _, interior in self.padding_config]
            strides = steps if any(s > 1 for s in steps) else None
            x_ct = match_aval(slice(cut, [0] * x.aval.ndim, cut.shape, strides), x.aval)
        if isinstance(value, UndefinedPrimal):
            zeros = structural.full_like_aval(ct.aval, 0)
            outside = select_n(self.inside(x.aval.shape), ct, zeros)
            value_ct = match_aval(reduce_sum(outside, range(ct.aval.ndim)), value.aval)
        return [x_ct, value_ct]

    def inside(self, shape: Shape) -> Array:
        """Returns a mask of the output elements that come from an operand.

        Args:
            shape: The shape of the operand.

        Returns:
            A boolean array of the shape of the result.
        """
        return pad(structural.full_like_aval(ShapedArray(shape, dtypes.bool_), True), False, self.padding_config)

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        (x, value), (dim, value_dim) = args, dims
        if value_dim is None:
            assert dim is not None
            config = [*self.padding_config[:dim], (0, 0, 0), *self.padding_config[dim:]]
            return pad(x, value, config), dim
        x = batch_first(x, dim, axis)
        config = [(0, 0, 0), *self.padding_config]
        padded = pad(x, zero(value.aval), config)
        inside = Pad(tuple(config)).inside(x.aval.shape)
        return select_n(inside, broadcast_in_dim(value, padded.shape, (0,)), padded), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        low, high, interior = zip(*self.padding_config, strict=True) if self.padding_config else ((), (), ())
        attrs = {
            "edge_padding_low": DenseI64Array(tuple(low)),
            "edge_padding_high": DenseI64Array(tuple(high)),
            "interior_padding": DenseI64Array(tuple(interior)),
        }
        return builder.emit("stablehlo.pad", operands, [out], attrs)[0]


def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """Returns `operand` with `padding_value` around and between its elements.

    Args:
        operand: Array.
        padding_value: A scalar of the same dtype.
        padding_config: For each axis `(low, high, interior)`: the number of elements before, after, and between
            each two elements. A negative `low` or `high` removes elements; `interior` must not be negative.

    Returns:
        An array of the same rank and dtype.

    Raises:
        TypeError: The dtypes differ, or an entry is not made of static integers.
        ValueError: `padding_value` is not a scalar, `padding_config` does not have one valid entry per axis, or it
            removes more elements than there are.

    >>> pad(np.arange(1, 4), 0, [(1, -1, 1)]).tolist()
    [0, 1, 0, 2, 0]
    """
    x, value = together(operand, padding_value)
    config: list[tuple[int, int, int]] = []
    for entry in concretize(padding_config):
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
class Rev(UnaryOperation, LinearOperation, DataMovement):
    """Reverses the order of elements along axes.

    Args:
        dimensions: The axes.

    `x: f32[...] -> f32[...]`, any dtype. Bound by `lax.rev`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Rev((0,)), numpy.array([1, 2]))
    [Array([2, 1], dtype=int32)]
    """

    name = "rev"
    dimensions: tuple[int, ...]

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [avals[0].spec]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        if len(set(self.dimensions)) != len(self.dimensions) or any(not 0 <= d < x.ndim for d in self.dimensions):
            raise TypeError(f"rev: dimensions {self.dimensions} must be distinct, non-negative axes of {x}")
        return x

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        backwards = tuple([builtins.slice(None, None, -1 if i in self.dimensions else 1) for i in range(avals[0].ndim)])
        return lambda x: x[backwards]

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return np.flip(args[0], self.dimensions)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [rev(ct, self.dimensions)]

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        return rev(x, [d + (d >= dim) for d in self.dimensions]), dim

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        return builder.emit("stablehlo.reverse", operands, [out], {"dimensions": DenseI64Array(self.dimensions)})[0]


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Returns `operand` with its elements in reverse order along the axes `dimensions`.

    Args:
        operand: Array.
        dimensions: Distinct, non-negative axes.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: The axes are not static integers, out of bounds or repeated.

    >>> rev(np.arange(3), (0,)).tolist()
    [2, 1, 0]
    """
    axes = static_ints("rev", dimensions, "dimensions")
    return bind1(Rev(axes), operand) if axes else as_array(operand)
