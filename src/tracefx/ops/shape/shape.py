"""Primitives that change axes (`squeeze`, `tile`) or join and split arrays (`concatenate`, `stack`, `split`).

(`reshape`, `transpose` and `broadcast_in_dim` are in `structural`.) The functions of `slicing` and `array_creation` are
re-exported here, so that most callers need only this module.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, NDArray, Shape, ShapedArray, Value, as_value, dtypes, show_avals
from tracefx.core.handler import as_array, bind, bind1
from tracefx.core.named_sharding import OutSharding, Spec
from tracefx.core.primitive import Batchable, BatchDims, MappedAxis, Tangent, Transposable, UndefinedPrimal
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops import stablehlo
from tracefx.ops.operation import (
    VARIADIC,
    DataMovement,
    HasNumpyKernel,
    LinearOperation,
    UnaryLinear,
    UnaryOperation,
    memoize_aval,
    require_arity,
    static_shape,
)
from tracefx.ops.shape.array_creation import broadcasted_iota as broadcasted_iota
from tracefx.ops.shape.array_creation import full as full
from tracefx.ops.shape.array_creation import full_like as full_like
from tracefx.ops.shape.array_creation import iota as iota
from tracefx.ops.shape.slicing import PaddingConfig as PaddingConfig
from tracefx.ops.shape.slicing import Slice
from tracefx.ops.shape.slicing import pad as pad
from tracefx.ops.shape.slicing import rev as rev
from tracefx.ops.shape.slicing import slice as slice
from tracefx.ops.shape.slicing import slice_axis as slice_axis
from tracefx.ops.sharding_rules import equal_spec, require_unsharded, resized_spec, without_axes
from tracefx.ops.static_integers import canonicalize_axes, canonicalize_axis, static_int, static_ints
from tracefx.ops.structural import (
    batch_first,
    broadcast_in_dim,
    instantiate,
    match_aval,
    move_axis,
    reduce_sum,
    reshape,
)


def batch_at(x: Value, dim: int | None, axis: MappedAxis, position: int) -> Array:
    """Returns `x` with its batch axis at position `position`. If `dim` is None, `x` is broadcast along a new one."""
    if dim is not None:
        return move_axis(x, dim, position)
    shape = (*x.aval.shape[:position], axis.size, *x.aval.shape[position:])
    return broadcast_in_dim(x, shape, [i for i in range(len(shape)) if i != position])


# ------------------------------------------------------------------ squeeze, expand_dims


@final
@frozen(eq=False)
class Squeeze(UnaryOperation, LinearOperation, DataMovement):
    """Removes axes of size 1.

    Args:
        dimensions: The axes to remove.

    `x: f32[1, n, 1] -> f32[n]` with `dimensions=(0, 2)`; any dtype. Bound by `lax.squeeze`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Squeeze((0,)), numpy.array([[1, 2]]))
    [Array([1, 2], dtype=int32)]
    """

    name = "squeeze"
    dimensions: tuple[int, ...]

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [without_axes(avals[0].spec, self.dimensions)]

    @override
    @memoize_aval("dimensions")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        canonicalize_axes("squeeze", self.dimensions, x.ndim)
        if any(x.shape[d] != 1 for d in self.dimensions):
            raise ValueError(f"squeeze: dimensions {self.dimensions} of {x} must all have size 1")
        return x.update(shape=tuple([n for i, n in enumerate(x.shape) if i not in self.dimensions]))

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return args[0].squeeze(self.dimensions)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [reshape(ct, args[0].aval.shape)]

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        out = squeeze(x, [i + (i >= dim) for i in self.dimensions])
        return out, dim - sum(i < dim for i in self.dimensions)

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        return builder.emit("stablehlo.reshape", operands, [out])[0]


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Returns `array` without some axes of size 1: `f32[1, n, 1]` becomes `f32[n]`.

    Args:
        array: Array.
        dimensions: The axes to remove. Negative ones count from the end.

    Returns:
        An array of the same elements.

    Raises:
        ValueError: An axis has another size, is out of bounds or is named twice.

    >>> squeeze(np.ones((1, 3)), (0,)).shape
    (3,)
    """
    x = as_value(array, "array")
    axes = canonicalize_axes("squeeze", dimensions, x.aval.ndim)
    return bind1(Squeeze(axes), x) if axes else as_array(x)


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Returns `array` with new axes of size 1.

    Args:
        array: Array.
        dimensions: The positions of the new axes in the result. Negative ones count from the end.

    Returns:
        An array of the same elements, with `len(dimensions)` more axes.

    Raises:
        AxisError: A position is out of bounds or named twice.

    >>> expand_dims(np.ones(3), (0, 2)).shape
    (1, 3, 1)
    """
    x = as_value(array, "array")
    ndim = x.aval.ndim + len(static_ints("expand_dims", dimensions, "dimensions"))
    new = canonicalize_axes("expand_dims", dimensions, ndim)
    kept = [i for i in range(ndim) if i not in new]
    sizes = [1] * ndim
    for i, n in zip(kept, x.aval.shape, strict=True):
        sizes[i] = n
    return broadcast_in_dim(x, sizes, kept)


def broadcast(operand: ArrayLike, sizes: Sequence[int], *, out_sharding: OutSharding = None) -> Array:
    """Returns `operand` repeated along new leading axes.

    Args:
        operand: Array or number.
        sizes: The sizes of the new axes, static integers.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of shape `(*sizes, *operand.shape)`.

    Raises:
        TypeError: The sizes are not static integers.

    >>> broadcast(np.ones(3), (2,)).shape
    (2, 3)
    """
    x = as_value(operand, "operand")
    front = static_shape("broadcast", sizes, "sizes")
    return broadcast_in_dim(x, (*front, *x.aval.shape), range(len(front), len(front) + x.aval.ndim))


# ------------------------------------------------------------------ tile


@final
@frozen(eq=False)
class Tile(UnaryOperation, LinearOperation, DataMovement):
    """Repeats an array along its axes: `out[i, j] = x[i % n, j % m]`.

    Args:
        reps: The number of copies along each axis.

    `x: f32[n, m, k] -> f32[reps[0] * n, reps[1] * m, reps[2] * k]`, any dtype. Bound by `lax.tile`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Tile((2,)), numpy.array([1, 2]))
    [Array([1, 2, 1, 2], dtype=int32)]
    """

    name = "tile"
    reps: tuple[int, ...]

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        require_unsharded(self, avals[0], [axis for axis, n in enumerate(self.reps) if n != 1])
        return [avals[0].spec]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        if len(self.reps) != x.ndim or any(n < 0 for n in self.reps):
            raise TypeError(f"tile: reps {self.reps} must have one non-negative entry for each axis of {x}")
        return x.update(shape=tuple([n * m for n, m in zip(x.shape, self.reps, strict=True)]))

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        repeated = [(axis, n) for axis, n in enumerate(self.reps) if n != 1]
        if len(repeated) != 1 or not repeated[0][1]:
            return self.kernel
        ((axis, n),) = repeated
        return lambda x: np.concatenate([x] * n, axis)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return np.tile(args[0], self.reps)

    def copies(self, x: ShapedArray) -> Shape:
        """Returns the output's shape with each axis split in two: the repetitions, and the operand's axis.

        Args:
            x: The type of the operand.

        Returns:
            A shape of twice the rank.
        """
        return tuple([size for pair in zip(self.reps, x.shape, strict=True) for size in pair])

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        x = args[0].aval
        return [match_aval(reduce_sum(reshape(ct, self.copies(x)), range(0, 2 * x.ndim, 2)), x)]

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        return bind1(Tile((*self.reps[:dim], 1, *self.reps[dim:])), x), dim

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,) = operands
        positions = range(1, 2 * out.ndim, 2)
        copies = stablehlo.emit_broadcast(builder, x, self.copies(x.aval), positions)
        return copies if out.shape == copies.aval.shape else builder.emit("stablehlo.reshape", [copies], [out])[0]


def tile(operand: ArrayLike, reps: Sequence[int]) -> Array:
    """Returns `operand` repeated `reps[i]` times along each axis `i`.

    Args:
        operand: Array.
        reps: One non-negative static integer per axis.

    Returns:
        An array whose sizes are multiplied by `reps`.

    Raises:
        TypeError: `reps` does not have one non-negative integer per axis.

    >>> tile(np.arange(2), (3,)).tolist()
    [0, 1, 0, 1, 0, 1]
    """
    return bind1(Tile(static_ints("tile", reps, "reps")), operand)


# ------------------------------------------------------------------ concatenate, split, stack


class JoinOperation(LinearOperation, DataMovement):
    """A primitive that joins several arrays of one dtype."""

    __slots__ = ()
    arity = VARIADIC

    def join_avals(self, avals: Sequence[ShapedArray], shape: Shape) -> ShapedArray:
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
class Concatenate(JoinOperation):
    """Joins arrays along an existing axis.

    Args:
        dimension: The axis along which the sizes of the operands add up; the other sizes are equal.

    `x: f32[k, n], y: f32[k, m], ... -> f32[k, n + m]` with `dimension=1`, for one or more operands of any dtype. Bound
    by `lax.concatenate`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Concatenate(0), numpy.array([1, 2]), numpy.array([3]))
    [Array([1, 2, 3], dtype=int32)]
    """

    name = "concatenate"
    dimension: int

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [equal_spec(self, avals)]

    @override
    @memoize_aval("dimension")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        first, axis = avals[0], self.dimension
        if any(a.ndim != first.ndim for a in avals):
            raise TypeError(f"concatenate: operands must have the same number of axes, got {show_avals(avals)}")
        if not 0 <= axis < first.ndim:
            raise TypeError(f"concatenate: dimension {axis} is not an axis of operands {show_avals(avals)}")
        if any(a.without_axis(axis).shape != first.without_axis(axis).shape for a in avals):
            raise TypeError(f"concatenate: operands must have equal sizes but for axis {axis}, got {show_avals(avals)}")
        total = sum([a.shape[axis] for a in avals])
        return self.join_avals(avals, (*first.shape[:axis], total, *first.shape[axis + 1 :]))

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return np.concatenate(args, self.dimension)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        axis, start = self.dimension, 0
        out: list[Tangent | None] = []
        for x in args:
            stop = start + x.aval.shape[axis]
            out.append(
                match_aval(slice_axis(ct, start, stop, axis), x.aval) if isinstance(x, UndefinedPrimal) else None
            )
            start = stop
        return out

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Value, int | None]:
        position = next(d for d in dims if d is not None)
        moved = [batch_at(x, d, axis, position) for x, d in zip(args, dims, strict=True)]
        return bind1(Concatenate(self.dimension + (position <= self.dimension)), *moved), position

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        # Empty parts are dropped: XLA's CPU compiler crashes on an empty slice of a concatenation with an empty part.
        parts = [x for x in operands if x.aval.size] or operands
        return builder.emit("stablehlo.concatenate", parts, [out], {"dimension": self.dimension})[0]


def concatenate(operands: Sequence[ArrayLike], dimension: int) -> Array:
    """Returns `operands` joined along axis `dimension`.

    Args:
        operands: At least one array; dtypes are equal, and so are shapes except along `dimension`.
        dimension: The axis to join along, non-negative.

    Returns:
        An array whose size along `dimension` is the sum of theirs.

    Raises:
        TypeError: Dtypes, ranks or other sizes differ, or there is no such axis.
        ValueError: There are no operands.

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


def _join(prim: JoinOperation, values: Sequence[Value]) -> Array:
    return bind1(prim, *values)


@final
@frozen(eq=False)
class Stack(JoinOperation):
    """Joins arrays of one shape along a new axis.

    Args:
        axis: The position of the new axis in the result.

    `x: f32[n, m], y: f32[n, m], ... -> f32[n, 2, m]` with `axis=1`, for one or more operands of any dtype. Bound by
    `lax.stack`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Stack(0), numpy.array([1, 2]), numpy.array([3, 4]))[0].tolist()
    [[1, 2], [3, 4]]
    """

    name = "stack"
    axis: int

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        spec = equal_spec(self, avals)
        return [(*spec[: self.axis], None, *spec[self.axis :])]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        first = avals[0]
        if any(a.shape != first.shape for a in avals):
            raise ValueError(f"stack: operands must have one shape, got {show_avals(avals)}")
        if not 0 <= self.axis <= first.ndim:
            raise ValueError(f"stack: axis {self.axis} is out of bounds for a result with {first.ndim + 1} axes")
        return self.join_avals(avals, (*first.shape[: self.axis], len(avals), *first.shape[self.axis :]))

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        axis, new_axis = self.axis, (*[builtins.slice(None)] * self.axis, None)
        return lambda *args: np.concatenate([x[new_axis] for x in args], axis)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return np.stack(args, self.axis)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [
            match_aval(squeeze(slice_axis(ct, i, i + 1, self.axis), (self.axis,)), x.aval)
            if isinstance(x, UndefinedPrimal)
            else None
            for i, x in enumerate(args)
        ]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Value, int | None]:
        moved = [batch_first(x, d, axis) for x, d in zip(args, dims, strict=True)]
        return bind1(Stack(self.axis + 1), *moved), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        shape = (*out.shape[: self.axis], 1, *out.shape[self.axis + 1 :])
        kept = [i for i in range(len(shape)) if i != self.axis]
        parts = [stablehlo.emit_broadcast(builder, x, shape, kept) for x in operands]
        return builder.emit("stablehlo.concatenate", parts, [out], {"dimension": self.axis})[0]


def stack(operands: Sequence[ArrayLike], axis: int = 0) -> Array:
    """Returns `operands` joined along a new axis.

    Args:
        operands: At least one array; all have one shape and dtype.
        axis: The position of the new axis in the result. 0 by default; negative ones count from the end.

    Returns:
        An array with one more axis, of size `len(operands)`.

    Raises:
        TypeError: The dtypes differ.
        ValueError: The shapes differ, or there are no operands.

    >>> stack([np.arange(2), np.arange(2)]).tolist()
    [[0, 1], [0, 1]]
    """
    values = _parts("stack", operands)
    return _join(Stack(canonicalize_axis("stack", axis, values[0].aval.ndim + 1)), values)


@final
@frozen(eq=False)
class Split(UnaryLinear, Transposable, Batchable, Lowerable, HasNumpyKernel):
    """Splits an array into consecutive parts along an axis.

    Args:
        sizes: The size of each part; they add up to the size of the axis.
        axis: The axis.

    `x: f32[n, m] -> f32[n, sizes[0]], f32[n, sizes[1]], ...` with `axis=1`; any dtype. Bound by `lax.split`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Split((1, 2), 0), numpy.array([1, 2, 3]))
    [Array([1], dtype=int32), Array([2, 3], dtype=int32)]
    """

    name = "split"
    multiple_results = True
    sizes: tuple[int, ...]
    axis: int

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [resized_spec(self, avals[0], out.shape) for out in outs]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        require_arity(self.name, 1, avals)
        (x,) = avals
        if not 0 <= self.axis < x.ndim:
            raise ValueError(f"split: axis {self.axis} is out of bounds for {x}")
        if any(n < 0 for n in self.sizes):
            raise ValueError(f"split: sizes {self.sizes} must not be negative")
        if sum(self.sizes) != x.shape[self.axis]:
            raise ValueError(f"split: sizes {self.sizes} must add up to the size of axis {self.axis} of {x}")
        return [x.update(shape=(*x.shape[: self.axis], n, *x.shape[self.axis + 1 :])) for n in self.sizes]

    def starts(self) -> list[int]:
        """Returns the index at which each part starts."""
        return [sum(self.sizes[:i]) for i in range(len(self.sizes))]

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., list[NDArray] | NDArray]:
        start, positions = 0, []
        for n in self.sizes:
            positions.append((*[builtins.slice(None)] * self.axis, builtins.slice(start, start := start + n)))
        return (lambda x: [x[at] for at in positions]) if len(positions) != 1 else lambda x: x

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return np.split(args[0], self.starts()[1:], self.axis) if self.sizes else []

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [match_aval(concatenate([instantiate(ct) for ct in cts], self.axis), args[0].aval)]

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        (dim,) = dims
        assert dim is not None
        outs = bind(Split(self.sizes, self.axis + (dim <= self.axis)), *args)
        return outs, [dim] * len(outs)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        outs = self.abstract_eval(x.aval)
        if dtypes.is_key(x.aval.dtype):
            return builder.emit_per_key_word(self, outs, operands)
        pieces = []
        for start, out in zip(self.starts(), outs, strict=True):
            low = [0] * x.aval.ndim
            low[self.axis] = start
            piece = Slice(tuple(low), tuple([a + n for a, n in zip(low, out.shape, strict=True)]), None)
            pieces.append(piece.emit(builder, out, x))
        return pieces


def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Returns consecutive parts of `operand` along `axis`, with the given sizes.

    Args:
        operand: Array.
        sizes: The sizes of the parts, static integers that add up to the size of the axis.
        axis: The axis to split. 0 by default; negative ones count from the end.

    Returns:
        A list of one array per size.

    Raises:
        ValueError: The sizes don't add up, or there is no such axis.

    >>> [piece.tolist() for piece in split(np.arange(3), (1, 2))]
    [[0], [1, 2]]
    """
    x = as_value(operand, "operand")
    parts = static_shape("split", sizes, "sizes")
    outs = bind(Split(parts, canonicalize_axis("split", axis, x.aval.ndim)), x)
    return [as_array(o) for o in outs]
