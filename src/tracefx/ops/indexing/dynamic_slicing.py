"""Windows at traced start indices: `dynamic_slice`, `dynamic_update_slice`, and their variants for one axis.

Start indices are clamped, so that windows are always within the operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, Literal, NDArray, Shape, ShapedArray, Value, as_value, dtypes, show_avals
from tracefx.core.handler import bind1
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import Differentiable, MappedAxis, Tangent, UndefinedPrimal, Zero
from tracefx.lowering import Builder, DenseI64Array, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.elementwise.comparison import lt
from tracefx.ops.elementwise.elementwise import add, operands
from tracefx.ops.elementwise.selection import select
from tracefx.ops.indexing.gather_scatter_add import Gather, GatherDimensionNumbers, ScatterDimensionNumbers
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.indexing.scatter import Scatter
from tracefx.ops.operation import VARIADIC, DataMovement, HasPullback, Operation, static_shape
from tracefx.ops.shape.shape import concatenate, expand_dims, squeeze
from tracefx.ops.sharding_rules import equal_spec, resized_spec
from tracefx.ops.static_integers import canonicalize_axis, static_int
from tracefx.ops.structural import batch_first, broadcast_in_dim, convert, full_like_aval, instantiate, match_aval


def _check_starts(name: str, starts: Sequence[ShapedArray], ndim: int) -> None:
    """Raises TypeError unless `starts` are one integer scalar per axis, of one dtype."""
    if len(starts) != ndim:
        raise TypeError(f"{name}: start_indices must have one entry for each of {ndim} axes, got {len(starts)}")
    if any(i.shape or not dtypes.is_integer(i.dtype) or i.dtype != starts[0].dtype for i in starts):
        raise TypeError(f"{name}: start_indices must be integer scalars of one dtype, got {show_avals(starts)}")


def _window(starts: Sequence[NDArray], shape: Shape, sizes: Shape) -> tuple[slice, ...]:
    """Returns the window as a NumPy index, clamped to the operand."""
    window = []
    for i, n, size in zip(starts, shape, sizes, strict=True):
        start = min(max(int(i), 0), n - size)
        window.append(slice(start, start + size))
    return tuple(window)


def _emit_signed(builder: Builder, starts: Sequence[IrValue]) -> Sequence[IrValue]:
    """Emits unsigned starts as signed ones, because XLA takes large unsigned constants for negative numbers."""
    if not starts or dtypes.is_signed(starts[0].aval.dtype):
        return starts
    wide = ShapedArray((), dtypes.int64)
    signed = []
    for i in starts:
        if i.aval.dtype == dtypes.uint64:
            (i,) = builder.emit(
                "stablehlo.minimum", [i, stablehlo.emit_scalar(builder, 2**63 - 1, dtypes.uint64)], [i.aval]
            )
        signed += builder.emit("stablehlo.convert", [i], [wide])
    return signed


def _vector(starts: Sequence[Value], dims: Sequence[int | None], axis: MappedAxis) -> Array:
    """Returns the start indices of a batch, `i32[batch, axes]`."""
    return concatenate(
        [broadcast_in_dim(i, (axis.size, 1), () if d is None else (0,)) for i, d in zip(starts, dims, strict=True)], 1
    )


# ------------------------------------------------------------------ dynamic_slice


@final
@frozen(eq=False)
class DynamicSlice(Operation, Differentiable, HasPullback, DataMovement):
    """Reads a window at start indices that may be traced: `x[start:start + size]` along each axis.

    Windows that are not within the array are moved into it.

    Args:
        slice_sizes: The shape of the window.

    `x: f32[n, m], *starts: i32[] -> f32[*slice_sizes]`; any dtype, and one integer start for each axis. Bound by
    `lax.dynamic_slice`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.DynamicSlice((2,)), numpy.arange(5), 1)
    [Array([1, 2], dtype=int32)]
    """

    name = "dynamic_slice"
    arity = VARIADIC
    slice_sizes: Shape

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [resized_spec(self, avals[0], outs[0].shape)]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        x, *starts = avals
        if len(self.slice_sizes) != x.ndim or any(
            not 0 <= size <= n for size, n in zip(self.slice_sizes, x.shape, strict=True)
        ):
            raise TypeError(
                f"dynamic_slice: slice_sizes {self.slice_sizes} must have one entry for each axis of {x}, from 0 to "
                "the size of the axis: a slice cannot be larger than its operand"
            )
        _check_starts("dynamic_slice", starts, x.ndim)
        return x.update(shape=self.slice_sizes)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, *starts = args
        out: NDArray = x[_window(starts, x.shape, self.slice_sizes)]
        return out

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        t = tangents[0]
        if isinstance(t, Zero):
            return [out], [Zero(out.aval.tangent())]
        return [out], [bind1(self, t, *primals[1:])]

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        x, *starts = args
        zeros = full_like_aval(ShapedArray(x.aval.shape, ct.aval.dtype, ct.aval.weak_type), 0)
        return [match_aval(_update_slice(zeros, ct, starts), x.aval), *[None for _ in starts]]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        (x, *starts), (dim, *start_dims) = args, dims
        ndim = len(self.slice_sizes)
        if all(d is None for d in start_dims):
            assert dim is not None
            sizes = (*self.slice_sizes[:dim], axis.size, *self.slice_sizes[dim:])
            return bind1(DynamicSlice(sizes), x, *_with_start(starts, dim)), dim
        every = tuple(range(ndim))
        one = Gather(
            GatherDimensionNumbers(every, (), every), self.slice_sizes, True, True, GatherScatterMode.CLIP, None
        )
        return one.batched(axis, [x, _vector(starts, start_dims, axis)], [dim, 0])

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        x, *starts = operands
        attrs = {"slice_sizes": DenseI64Array(self.slice_sizes)}
        return builder.emit("stablehlo.dynamic_slice", [x, *_emit_signed(builder, starts)], [out], attrs)[0]


def _with_start(starts: Sequence[Value], position: int) -> list[Value]:
    """Returns start indices with a 0 inserted for a new axis that the window covers."""
    dtype = starts[0].aval.dtype if starts else dtypes.int32
    return [*starts[:position], Literal(0, ShapedArray((), dtype)), *starts[position:]]


def dynamic_slice(
    operand: ArrayLike,
    start_indices: Array | NDArray | Sequence[ArrayLike],
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """Returns the window of shape `slice_sizes` that starts at `start_indices`, which may be traced.

    Args:
        operand: Array.
        start_indices: One integer (`i32[]`) per axis. They are clamped so that the window is within `operand`.
        slice_sizes: The shape of the window, static.
        allow_negative_indices: Whether negative starts count from the end of the axis, for all axes or for each. True
            by default. False promises that there are none, and saves their conversion.

    Returns:
        An array of shape `slice_sizes`.

    Raises:
        TypeError: The starts are not integer scalars, or the window is larger than the operand.
        ValueError: There is not one start per axis, or a constant start is negative though not allowed.

    >>> dynamic_slice(np.arange(6), (2,), (3,)).tolist(), dynamic_slice(np.arange(6), (5,), (3,)).tolist()
    ([2, 3, 4], [3, 4, 5])
    """
    x = as_value(operand, "operand")
    sizes = static_shape("dynamic_slice", slice_sizes, "slice_sizes")
    return bind1(DynamicSlice(sizes), x, *_starts("dynamic_slice", x, start_indices, allow_negative_indices))


def _starts(
    name: str,
    x: Value,
    start_indices: Array | NDArray | Sequence[ArrayLike],
    allow_negative: bool | Sequence[bool],
) -> list[Value]:
    """Returns start indices as values of one dtype; negative ones are converted to count from the start of the axis."""
    if isinstance(start_indices, Array | np.ndarray) and start_indices.ndim != 1:
        raise ValueError(f"{name}: start_indices must be a sequence or have one axis, got {start_indices!r}")
    indices = list(start_indices)
    ndim = x.aval.ndim
    allowed = [allow_negative] * ndim if isinstance(allow_negative, bool) else list(allow_negative)
    for argument, entries in (("start_indices", indices), ("allow_negative_indices", allowed)):
        if len(entries) != ndim:
            raise ValueError(
                f"{name}: {argument} must have one entry for each of the {ndim} axes of {x.aval}, got {len(entries)}"
            )
    values = operands(*indices) if indices else []
    if len({v.aval.dtype for v in values}) > 1:
        return values  # the primitive rejects them
    return [_normalize_index(name, v, n, allow) for v, n, allow in zip(values, x.aval.shape, allowed, strict=True)]


def widen_indices(x: Value) -> Value:
    """Returns integer indices as at least 32 bits, so that sizes of axes are in the range of their dtype."""
    return convert(x, dtypes.int32) if dtypes.itemsize_bits(x.aval.dtype) < 32 else x


def _normalize_index(name: str, i: Value, n: int, allow_negative: bool) -> Value:
    """Returns an index with negative values converted to count from the start of an axis of size `n`."""
    aval = i.aval
    if not dtypes.is_signed(aval.dtype) or aval.shape:
        return i  # the primitive checks it
    i = widen_indices(i)
    aval = i.aval
    if isinstance(i, Literal):
        value = int(i.val.real)
        if value < 0 and not allow_negative:
            raise ValueError(f"{name}: index {value} is negative, but allow_negative_indices is False")
        return Literal(value + n if value < 0 else value, ShapedArray((), aval.dtype))
    if not allow_negative:
        return i
    size = Literal(n, ShapedArray((), aval.dtype, weak_type=True))
    return select(lt(i, Literal(0, size.aval)), add(i, size), i)


# ------------------------------------------------------------------ dynamic_update_slice


@final
class DynamicUpdateSlice(Operation, Differentiable, HasPullback, DataMovement):
    """Writes a window at start indices that may be traced: `x[start:start + size] = update` along each axis.

    Windows that are not within the array are moved into it.

    `x: f32[n, m], update: f32[k, l], *starts: i32[] -> f32[n, m]` with `k <= n` and `l <= m`; any dtype, and one
    integer start for each axis. Bound by `lax.dynamic_update_slice`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.DynamicUpdateSlice(), numpy.arange(5), numpy.array([8, 9]), 1)
    [Array([0, 8, 9, 3, 4], dtype=int32)]
    """

    name = "dynamic_update_slice"
    arity = VARIADIC

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [equal_spec(self, avals[:2])]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        x, update, *starts = avals
        if x.dtype != update.dtype:
            raise TypeError(f"dynamic_update_slice: operand and update must have one dtype, got {x} and {update}")
        if x.ndim != update.ndim or any(m > n for m, n in zip(update.shape, x.shape, strict=True)):
            raise TypeError(
                f"dynamic_update_slice: update must have the rank of operand and no larger sizes, got {update} for {x}"
            )
        _check_starts("dynamic_update_slice", starts, x.ndim)
        return ShapedArray(x.shape, x.dtype, all(a.weak_type for a in avals))

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, update, *starts = args
        out = x.copy()
        out[_window(starts, x.shape, update.shape)] = update
        return out

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        x, update = tangents[:2]
        if isinstance(x, Zero) and isinstance(update, Zero):
            return [out], [Zero(out.aval.tangent())]
        return [out], [match_aval(bind1(self, instantiate(x), instantiate(update), *primals[2:]), out.aval.tangent())]

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        x, update, *starts = args
        x_ct: Tangent | None = None
        update_ct: Tangent | None = None
        if isinstance(x, UndefinedPrimal):
            zero_update = full_like_aval(ShapedArray(update.aval.shape, ct.aval.dtype, ct.aval.weak_type), 0)
            x_ct = match_aval(_update_slice(ct, zero_update, starts), x.aval)
        if isinstance(update, UndefinedPrimal):
            update_ct = match_aval(bind1(DynamicSlice(update.aval.shape), ct, *_known(starts)), update.aval)
        return [x_ct, update_ct, *[None for _ in starts]]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        (x, update, *starts), (x_dim, update_dim, *start_dims) = args, dims
        if all(d is None for d in start_dims):
            x, update = batch_first(x, x_dim, axis), batch_first(update, update_dim, axis)
            return bind1(self, x, update, *_with_start(starts, 0)), 0
        every = tuple(range(len(starts)))
        one = Scatter(ScatterDimensionNumbers(every, (), every), True, True, GatherScatterMode.CLIP)
        return one.batched(axis, [x, _vector(starts, start_dims, axis), update], [x_dim, 0, update_dim])

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        x, update, *starts = operands
        return builder.emit("stablehlo.dynamic_update_slice", [x, update, *_emit_signed(builder, starts)], [out])[0]


DYNAMIC_UPDATE_SLICE = DynamicUpdateSlice()


def _known(starts: Sequence[Value | UndefinedPrimal]) -> list[Value]:
    """Returns start indices, none of which is an `UndefinedPrimal`."""
    values = [i for i in starts if not isinstance(i, UndefinedPrimal)]
    assert len(values) == len(starts)  # integers have no tangents
    return values


def _update_slice(x: Value, update: Value, starts: Sequence[Value | UndefinedPrimal]) -> Array:
    return bind1(DYNAMIC_UPDATE_SLICE, x, update, *_known(starts))


def dynamic_update_slice(
    operand: ArrayLike,
    update: ArrayLike,
    start_indices: Array | NDArray | Sequence[ArrayLike],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """Returns `operand` with a window at `start_indices`, which may be traced, replaced by `update`.

    Args:
        operand: Array.
        update: The new window, an array of the same rank and dtype.
        start_indices: One integer (`i32[]`) per axis. They are clamped so that the window is within `operand`.
        allow_negative_indices: Whether negative starts count from the end of the axis, for all axes or for each. True
            by default.

    Returns:
        An array with the shape and dtype of `operand`.

    Raises:
        TypeError: The starts are not integer scalars, or `update` has another dtype or rank, or is larger.
        ValueError: There is not one start per axis, or a constant start is negative though not allowed.

    >>> dynamic_update_slice(np.zeros(5), np.ones(2), (1,)).tolist()
    [0.0, 1.0, 1.0, 0.0, 0.0]
    """
    x, new = operands(operand, update)
    starts = _starts("dynamic_update_slice", x, start_indices, allow_negative_indices)
    return bind1(DYNAMIC_UPDATE_SLICE, x, new, *starts)


# ------------------------------------------------------------------ along one axis


def _start_along(ndim: int, axis: int, start: ArrayLike) -> list[ArrayLike]:
    """Returns start indices that are 0 except along `axis`."""
    starts: list[ArrayLike] = [0] * ndim
    starts[axis] = start
    return starts


def dynamic_slice_in_dim(
    operand: ArrayLike,
    start_index: ArrayLike,
    slice_size: SupportsIndex,
    axis: SupportsIndex = 0,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """Returns `slice_size` elements of `operand` from `start_index` on, along one axis.

    Args:
        operand: Array.
        start_index: An integer scalar, which may be traced. It is clamped so that the window is within `operand`.
        slice_size: The size of the window along the axis, static.
        axis: The axis. 0 by default.
        allow_negative_indices: Whether a negative start counts from the end of the axis. True by default.

    Returns:
        An array of the same rank and dtype.

    Raises:
        AxisError: There is no such axis.
        TypeError: The start is not an integer scalar, or the window is larger than the axis.

    >>> dynamic_slice_in_dim(np.arange(6), -3, 2).tolist()
    [3, 4]
    """
    x = as_value(operand, "operand")
    position = canonicalize_axis("dynamic_slice_in_dim", axis, x.aval.ndim)
    sizes = list(x.aval.shape)
    sizes[position] = static_int("dynamic_slice_in_dim", slice_size, "slice_size")
    starts = _start_along(x.aval.ndim, position, start_index)
    return dynamic_slice(x, starts, sizes, allow_negative_indices=allow_negative_indices)


def dynamic_index_in_dim(
    operand: ArrayLike,
    index: ArrayLike,
    axis: SupportsIndex = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """Returns the element of `operand` at `index`, which may be traced, along one axis.

    Args:
        operand: Array.
        index: An integer scalar. It is clamped to the axis.
        axis: The axis. 0 by default.
        keepdims: Whether the axis remains, with size 1. True by default.
        allow_negative_indices: Whether a negative index counts from the end of the axis. True by default.

    Returns:
        An array of the same dtype.

    Raises:
        AxisError: There is no such axis.
        TypeError: The index is not an integer scalar.

    >>> dynamic_index_in_dim(np.arange(6).reshape(3, 2), 1, 0, keepdims=False).tolist()
    [2, 3]
    """
    x = as_value(operand, "operand")
    position = canonicalize_axis("dynamic_index_in_dim", axis, x.aval.ndim)
    out = dynamic_slice_in_dim(x, index, 1, position, allow_negative_indices=allow_negative_indices)
    return out if keepdims else squeeze(out, (position,))


def dynamic_update_slice_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    start_index: ArrayLike,
    axis: SupportsIndex,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """Returns `operand` with the window from `start_index` on, along one axis, replaced by `update`.

    Args:
        operand: Array.
        update: The new window, an array of the same rank and dtype.
        start_index: An integer scalar, which may be traced. It is clamped so that the window is within `operand`.
        axis: The axis.
        allow_negative_indices: Whether a negative start counts from the end of the axis. True by default.

    Returns:
        An array with the shape and dtype of `operand`.

    Raises:
        AxisError: There is no such axis.
        TypeError: The start is not an integer scalar, or `update` does not fit.

    >>> dynamic_update_slice_in_dim(np.zeros(5), np.ones(2), 1, 0).tolist()
    [0.0, 1.0, 1.0, 0.0, 0.0]
    """
    x, new = operands(operand, update)
    position = canonicalize_axis("dynamic_update_slice_in_dim", axis, x.aval.ndim)
    starts = _start_along(x.aval.ndim, position, start_index)
    return dynamic_update_slice(x, new, starts, allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    index: ArrayLike,
    axis: SupportsIndex,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """Returns `operand` with the element at `index`, which may be traced, along one axis replaced by `update`.

    Args:
        operand: Array.
        update: The new element, an array of the same dtype. It may lack the axis, or have it with size 1.
        index: An integer scalar. It is clamped to the axis.
        axis: The axis.
        allow_negative_indices: Whether a negative index counts from the end of the axis. True by default.

    Returns:
        An array with the shape and dtype of `operand`.

    Raises:
        AxisError: There is no such axis.
        TypeError: The index is not an integer scalar, or `update` does not fit.

    >>> dynamic_update_index_in_dim(np.zeros((2, 2)), np.ones(2), 1, 0).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    x, new = operands(operand, update)
    position = canonicalize_axis("dynamic_update_index_in_dim", axis, x.aval.ndim)
    if new.aval.ndim != x.aval.ndim:
        new = expand_dims(new, (position,))
    return dynamic_update_slice_in_dim(x, new, index, position, allow_negative_indices=allow_negative_indices)
