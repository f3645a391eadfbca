"""`gather`, its transpose `ScatterAdd`, and the base class of all scatters: windows at computed indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, SupportsIndex, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import Array, ArrayLike, NDArray, Scalar, Shape, ShapedArray, Value, as_value, dtypes, show_avals
from tracefx.core.avals import Dimensions
from tracefx.core.handler import bind1
from tracefx.core.primitive import Differentiable, MappedAxis, Tangent, UndefinedPrimal, Zero
from tracefx.core.type_sharding import Spec
from tracefx.dimensions.symbolic_dimensions import min_dim
from tracefx.errors import ShardingTypeError
from tracefx.lowering import Attr, Builder, DenseI64Array, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.casting import cast
from tracefx.ops.elementwise.elementwise import NUMBERS
from tracefx.ops.indexing.indexed_windows import (
    GatherScatterMode,
    IndexedWindows,
    as_indices,
    canonicalize_mode,
    check_offset,
    default_fill,
    dimension_numbers_text,
    shift_axes,
    window_order,
)
from tracefx.ops.monoids import ADD, Combiner
from tracefx.ops.operation import DataMovement, Domain, HasPullback, Operation, memoize_aval, static_shape
from tracefx.ops.sharding_rules import agreed
from tracefx.ops.static_integers import static_ints
from tracefx.ops.structural import batch_first, full_like_aval, instantiate, match_aval


def _axes(xs: Iterable[SupportsIndex]) -> Dimensions:
    """Returns axes of dimension numbers as a tuple of Python integers."""
    return static_ints("gather or scatter", xs, "dimension numbers")


@final
@frozen(cache_hash=True)
class GatherDimensionNumbers:
    """The correspondence of the axes of operand, indices and result of a `gather`."""

    offset_dims: Dimensions = field(converter=_axes)
    """The result's axes that index into a window. Its other axes are those of the indices, except the last."""
    collapsed_slice_dims: Dimensions = field(converter=_axes)
    """Operand axes of window size 1 that the result does not have."""
    start_index_map: Dimensions = field(converter=_axes)
    """The operand axes that the entries of an index vector refer to."""
    operand_batching_dims: Dimensions = field(default=(), converter=_axes)
    """Operand axes that are paired with the axes `start_indices_batching_dims` of the indices. None by default."""
    start_indices_batching_dims: Dimensions = field(default=(), converter=_axes)


@final
@frozen
class ScatterDimensionNumbers:
    """The correspondence of the axes of operand, indices and updates of a scatter.

    The fields mean what those of `GatherDimensionNumbers` do, with the updates in place of the result.
    """

    update_window_dims: Dimensions = field(converter=_axes)
    inserted_window_dims: Dimensions = field(converter=_axes)
    scatter_dims_to_operand_dims: Dimensions = field(converter=_axes)
    operand_batching_dims: Dimensions = field(default=(), converter=_axes)
    scatter_indices_batching_dims: Dimensions = field(default=(), converter=_axes)


# ------------------------------------------------------------------ gather


@final
@frozen(eq=False)
class Gather(Operation, Differentiable, HasPullback, DataMovement):
    """Reads windows of an array at start indices: `out[i, ...] = x[indices[i]:indices[i] + slice_sizes]`.

    The last axis of the indices holds the start of a window along each of the axes in `start_index_map`.

    Args:
        dimension_numbers: The correspondence of the axes of operand, indices and result.
        slice_sizes: The shape of a window.
        indices_are_sorted: Whether the caller promises that the indices are sorted.
        unique_indices: Whether the caller promises that windows do not overlap.
        mode: What is read where windows are not within the operand.
        fill_value: The value that `FILL_OR_DROP` reads there; None in other modes.

    `x: f32[n, m], indices: i32[k, 1] -> f32[k, m]` for windows that are rows; any dtype, and integer indices. Bound by
    `lax.gather` and by indexing, `x[i]`.

    >>> from tracefx import bind, lax, numpy, ops
    >>> rows = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> prim = ops.Gather(rows, (1,), False, False, lax.GatherScatterMode.CLIP, None)
    >>> bind(prim, numpy.array([1, 2, 3]), numpy.array([[2], [0]]))
    [Array([3, 1], dtype=int32)]
    """

    name = "gather"
    arity = 2
    dimension_numbers: GatherDimensionNumbers
    slice_sizes: Shape
    indices_are_sorted: bool
    unique_indices: bool
    mode: GatherScatterMode
    fill_value: Scalar | None

    def windows(self, operand: Shape) -> IndexedWindows:
        """Returns the windows into an operand.

        Args:
            operand: The shape of the operand.

        Returns:
            The geometry of the windows.
        """
        n = self.dimension_numbers
        return IndexedWindows(
            operand,
            self.slice_sizes,
            n.collapsed_slice_dims,
            n.start_index_map,
            n.operand_batching_dims,
            n.start_indices_batching_dims,
        )

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        x, indices = avals
        n = self.dimension_numbers
        along = list(indices.spec[:-1])
        pairs = list(zip(n.operand_batching_dims, n.start_indices_batching_dims, strict=True))
        if (
            any(x.spec[i] is not None and self.slice_sizes[i] != x.shape[i] for i in n.start_index_map)
            or any(entry is not None and i not in n.start_indices_batching_dims for i, entry in enumerate(indices.spec))
            or not all(agreed(x.spec[i], along[j]) for i, j in pairs)
        ):
            raise ShardingTypeError(
                f"gather of {show_avals(avals)} has no unique sharding, or needs communication: pass out_sharding=, as "
                "in x.at[...].get(out_sharding=...)"
            )
        for i, j in pairs:
            along[j] = along[j] or x.spec[i]
        windows = iter([x.spec[i] for i in self.windows(x.shape).kept])
        queries = iter(along)
        return [tuple([next(windows if i in n.offset_dims else queries) for i in range(outs[0].ndim)])]

    @override
    @memoize_aval("dimension_numbers", "slice_sizes")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        x, indices = avals
        if len(self.slice_sizes) != x.ndim:
            raise TypeError(f"gather: slice_sizes {self.slice_sizes} must have one entry for each axis of {x}")
        windows = self.windows(x.shape)
        windows.check("gather", "start_index_map", indices)
        offset = self.dimension_numbers.offset_dims
        if len(offset) != len(windows.kept):
            raise TypeError(
                f"gather: offset_dims {offset} must have one entry for each of the {len(windows.kept)} axes of a window"
            )
        ndim = indices.ndim - 1 + len(offset)
        check_offset("gather", "offset_dims", offset, ndim)
        sizes = [0] * ndim
        known = [*indices.shape[:-1], *[self.slice_sizes[d] for d in windows.kept]]
        for place, n in zip(window_order(offset, ndim), known, strict=True):
            sizes[place] = n
        return x.update(shape=tuple(sizes))

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, indices = args[0], as_indices(args[1])
        if not x.size:
            out = self.out_aval(ShapedArray(x.shape, x.dtype), ShapedArray(args[1].shape, args[1].dtype))
            return np.full(out.shape, cast(np.asarray(self._empty_fill), x.dtype))
        axis = _take_axis(self.dimension_numbers, self.slice_sizes, x.shape, indices.ndim)
        if axis is not None:
            places = indices[..., 0]
            n = x.shape[axis]
            if self.mode is not GatherScatterMode.FILL_OR_DROP or ((places >= 0) & (places < n)).all():
                return x.take(places, axis, mode="clip")
        windows = self.windows(x.shape)
        count = indices.shape[:-1]
        inside = windows.inside(indices) if self.mode is GatherScatterMode.FILL_OR_DROP else None
        # Axes that windows cover completely are copied; the others are indexed.
        looked_up = [
            d for d in range(x.ndim) if d in (*windows.dropped, *windows.index_map) or self.slice_sizes[d] != x.shape[d]
        ]
        whole = [d for d in range(x.ndim) if d not in looked_up]
        result = x.transpose([*looked_up, *whole])[tuple(windows.index_arrays(windows.clipped(indices), looked_up))]
        moving = [d for d in looked_up if d not in windows.dropped]
        shape = (*count, *[self.slice_sizes[d] for d in (*moving, *whole)])
        result = np.broadcast_to(result, shape)
        if inside is not None and not inside.all():
            assert self.fill_value is not None
            mask = inside.reshape(count + (1,) * (result.ndim - len(count)))
            result = np.where(mask, result, cast(np.asarray(self.fill_value), x.dtype))
        # The axes of `result` are now: window enumeration, indexed axes, whole axes. Restores the operand's order.
        place = {d: len(count) + i for i, d in enumerate((*moving, *whole))}
        sources = [*range(len(count)), *[place[d] for d in windows.kept]]
        order = [0] * result.ndim
        for target, source in zip(window_order(self.dimension_numbers.offset_dims, result.ndim), sources, strict=True):
            order[target] = source
        return result.transpose(order)

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        t = tangents[0]
        if isinstance(t, Zero):
            return [out], [Zero(out.aval.tangent())]
        return [out], [bind1(self.with_fill_value(0), t, primals[1])]

    @property
    def _empty_fill(self) -> Scalar:
        """The value of windows into an operand without elements."""
        return 0 if self.fill_value is None else self.fill_value

    def with_fill_value(self, fill: Scalar) -> Gather:
        """Returns the primitive with another fill value, or itself if its mode has none.

        Args:
            fill: The fill value.

        Returns:
            The primitive.
        """
        return self if self.fill_value is None else evolve(self, fill_value=fill)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        x, indices = args
        assert not isinstance(indices, UndefinedPrimal)
        n = self.dimension_numbers
        numbers = ScatterDimensionNumbers(
            n.offset_dims,
            n.collapsed_slice_dims,
            n.start_index_map,
            n.operand_batching_dims,
            n.start_indices_batching_dims,
        )
        prim = ScatterAdd(numbers, self.indices_are_sorted, self.unique_indices, self.mode)
        zeros = full_like_aval(ShapedArray(x.aval.shape, ct.aval.dtype, ct.aval.weak_type), 0)
        return [match_aval(bind1(prim, zeros, indices, ct), x.aval), None]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        (x, indices), (x_dim, indices_dim) = args, dims
        n = self.dimension_numbers
        sizes = self.slice_sizes
        if indices_dim is not None:
            indices = batch_first(indices, indices_dim, axis)
            n = evolve(
                n,
                offset_dims=shift_axes(n.offset_dims),
                start_indices_batching_dims=shift_axes(n.start_indices_batching_dims),
            )
        if x_dim is not None:
            x = batch_first(x, x_dim, axis)
            n = evolve(
                n,
                collapsed_slice_dims=shift_axes(n.collapsed_slice_dims),
                start_index_map=shift_axes(n.start_index_map),
                operand_batching_dims=shift_axes(n.operand_batching_dims),
            )
            if indices_dim is not None:  # the batch axes of both are paired
                n = evolve(
                    n,
                    operand_batching_dims=(0, *n.operand_batching_dims),
                    start_indices_batching_dims=(0, *n.start_indices_batching_dims),
                )
                sizes = (min(axis.size, 1), *sizes)
            else:  # every window covers the batch axis
                n = evolve(n, offset_dims=(0, *shift_axes(n.offset_dims)))
                sizes = (axis.size, *sizes)
        is_sorted = self.indices_are_sorted and indices_dim is None
        return bind1(evolve(self, dimension_numbers=n, slice_sizes=sizes, indices_are_sorted=is_sorted), x, indices), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        x, indices = operands
        if not x.aval.size:
            return stablehlo.emit_full(builder, self._empty_fill, out)
        windows = self.windows(x.aval.shape)
        n = self.dimension_numbers
        attrs: dict[str, Attr] = {
            "dimension_numbers": dimension_numbers_text(
                "gather",
                indices.aval,
                offset_dims=n.offset_dims,
                collapsed_slice_dims=n.collapsed_slice_dims,
                operand_batching_dims=n.operand_batching_dims,
                start_indices_batching_dims=n.start_indices_batching_dims,
                start_index_map=n.start_index_map,
            ),
            "indices_are_sorted": self.indices_are_sorted,
            "slice_sizes": DenseI64Array(self.slice_sizes),
        }
        (result,) = builder.emit("stablehlo.gather", [x, indices], [out], attrs)  # clips indices
        if self.mode is not GatherScatterMode.FILL_OR_DROP:
            return result
        assert self.fill_value is not None
        inside = windows.emit_inside(builder, indices)
        numbering = [i for i in range(out.ndim) if i not in n.offset_dims]
        mask = stablehlo.emit_broadcast(builder, inside, out.shape, numbering)
        fill = stablehlo.emit_full(builder, self.fill_value, out)
        return builder.emit("stablehlo.select", [mask, result, fill], [out])[0]


@memoize(4096)
def _take_axis(numbers: GatherDimensionNumbers, slice_sizes: Shape, shape: Shape, indices_ndim: int) -> int | None:
    """Returns the axis along which this gather is `np.take`, or None if it is not."""
    if len(numbers.start_index_map) != 1 or numbers.operand_batching_dims:
        return None
    (axis,) = numbers.start_index_map
    if numbers.collapsed_slice_dims != (axis,) or slice_sizes[axis] != 1:
        return None
    if slice_sizes[:axis] + slice_sizes[axis + 1 :] != shape[:axis] + shape[axis + 1 :]:
        return None
    behind = range(axis + indices_ndim - 1, len(shape) + indices_ndim - 2)
    return axis if numbers.offset_dims == (*range(axis), *behind) else None


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: GatherScatterMode | str | None = None,
    fill_value: Scalar | None = None,
) -> Array:
    """Returns windows of `operand` that start at the given indices. Everyday code indexes with `x[...]` instead.

    Args:
        operand: Array.
        start_indices: Integers `i32[..., k]`: vectors of start indices along the `k` axes of `start_index_map`.
        dimension_numbers: Which axes of operand, indices and result correspond.
        slice_sizes: The size of a window along each operand axis, static.
        unique_indices: Whether the windows are known not to overlap. False by default.
        indices_are_sorted: Whether the indices are known to be sorted. False by default.
        mode: "fill" fills windows that are out of bounds with `fill_value`, "clip" moves them inside. By default the
            caller promises that there are none.
        fill_value: None, the default, means NaN, the least signed or the greatest unsigned integer, or True.

    Returns:
        An array of the dtype of `operand`.

    Raises:
        TypeError: The dimension numbers don't fit the operands.
        ValueError: The indices are not integers, or the mode is unknown.

    >>> rows = GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> gather(np.arange(6).reshape(3, 2), np.array([[2], [0]]), rows, (1, 2)).tolist()
    [[4, 5], [0, 1]]
    """
    if not isinstance(dimension_numbers, GatherDimensionNumbers):
        raise TypeError(f"gather: dimension_numbers must be a GatherDimensionNumbers, got {dimension_numbers!r}")
    sizes = static_shape("gather", slice_sizes, "slice_sizes")
    how = GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else canonicalize_mode("gather", mode)
    x, indices = as_value(operand, "operand"), as_value(start_indices, "start_indices")
    if not x.aval.size and not indices.aval.size and len(sizes) == x.aval.ndim:
        # Without elements or indices, sizes along axes that the result does not have may exceed the operand's.
        absent = (*dimension_numbers.collapsed_slice_dims, *dimension_numbers.operand_batching_dims)
        sizes = tuple(
            [min(size, n) if d in absent else size for d, (size, n) in enumerate(zip(sizes, x.aval.shape, strict=True))]
        )
    fill: Scalar | None = None
    if how is GatherScatterMode.FILL_OR_DROP:
        fill = default_fill(x.aval.dtype) if fill_value is None else fill_value
    prim = Gather(dimension_numbers, sizes, bool(indices_are_sorted), bool(unique_indices), how, fill)
    return bind1(prim, x, indices)


# ------------------------------------------------------------------ scatter_add, and the base class of scatters


@frozen(eq=False)
class ScatterOperation(Operation, Differentiable):
    """Combines updates with windows of an operand. Subclasses define how two elements are combined.

    Args:
        dimension_numbers: The correspondence of the axes of operand, indices and updates.
        indices_are_sorted: Whether the caller promises that the indices are sorted.
        unique_indices: Whether the caller promises that windows do not overlap.
        mode: What happens to updates of windows that are not within the operand.

    >>> from tracefx import bind, lax, numpy, ops
    >>> rows = lax.ScatterDimensionNumbers((), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> prim = ops.ScatterAdd(rows, False, False, lax.GatherScatterMode.CLIP)
    >>> bind(prim, numpy.array([1, 2, 3]), numpy.array([[2], [0]]), numpy.array([10, 20]))
    [Array([21,  2, 13], dtype=int32)]
    """

    dimension_numbers: ScatterDimensionNumbers
    indices_are_sorted: bool
    unique_indices: bool
    mode: GatherScatterMode

    arity = 3
    takes: ClassVar[Domain]
    combiner: ClassVar[Combiner]
    function: ClassVar[str]
    """The name of the function in `tracefx.lax`, for error messages."""

    def windows(self, operand: Shape, updates: Shape) -> IndexedWindows:
        """Returns the windows into an operand, for updates of this shape."""
        n = self.dimension_numbers
        dropped = (*n.inserted_window_dims, *n.operand_batching_dims)
        sizes = [min_dim(size, 1) for size in operand]
        kept = [d for d in range(len(operand)) if d not in dropped]
        for d, axis in zip(kept, n.update_window_dims, strict=True):
            sizes[d] = updates[axis]
        return IndexedWindows(
            operand,
            tuple(sizes),
            n.inserted_window_dims,
            n.scatter_dims_to_operand_dims,
            n.operand_batching_dims,
            n.scatter_indices_batching_dims,
        )

    def matching_gather(self, operand: Shape, updates: Shape) -> Gather:
        """Returns the gather that reads, for each update, the element it goes to; 0 where it is dropped."""
        n = self.dimension_numbers
        numbers = GatherDimensionNumbers(
            n.update_window_dims,
            n.inserted_window_dims,
            n.scatter_dims_to_operand_dims,
            n.operand_batching_dims,
            n.scatter_indices_batching_dims,
        )
        sizes = self.windows(operand, updates).sizes
        fill = 0 if self.mode is GatherScatterMode.FILL_OR_DROP else None
        return Gather(numbers, sizes, self.indices_are_sorted, self.unique_indices, self.mode, fill)

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        x, indices, updates = avals
        n = self.dimension_numbers
        queries = [i for i in range(updates.ndim) if i not in n.update_window_dims]
        kept = [i for i in range(x.ndim) if i not in n.inserted_window_dims and i not in n.operand_batching_dims]
        batch = [
            (i, indices.spec[j], updates.spec[queries[j]])
            for i, j in zip(n.operand_batching_dims, n.scatter_indices_batching_dims, strict=True)
        ]
        others = [i for i in range(indices.ndim - 1) if i not in n.scatter_indices_batching_dims]
        windows = list(zip(n.update_window_dims, kept, strict=True))
        if (
            not all(agreed(x.spec[i], *entries) for i, *entries in batch)
            or any(
                updates.spec[u] not in (None, x.spec[i]) or (x.spec[i] is not None and updates.shape[u] != x.shape[i])
                for u, i in windows
            )
            or any(x.spec[i] is not None for i in n.inserted_window_dims)
            or any(indices.spec[i] is not None or updates.spec[queries[i]] is not None for i in others)
            or indices.spec[-1] is not None
        ):
            raise ShardingTypeError(
                f"{self.name} of {show_avals(avals)} has no unique sharding, or needs communication: pass "
                "out_sharding=, as in x.at[...].set(y, out_sharding=...)"
            )
        entries = dict(enumerate(x.spec)) | {i: x.spec[i] or a or b for i, a, b in batch}
        return [tuple(entries.values())]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        x, indices, updates = avals
        if x.dtype != updates.dtype:
            raise TypeError(f"{self.function}: operand and updates must have one dtype, got {x} and {updates}")
        if not self.takes.takes(x.dtype):
            raise TypeError(
                f"{self.function} takes {self.takes.what}, but operand is {x}; convert it first with astype"
            )
        n = self.dimension_numbers
        offset = n.update_window_dims
        check_offset(self.function, "update_window_dims", offset, updates.ndim)
        dropped = (*n.inserted_window_dims, *n.operand_batching_dims)
        kept = [d for d in range(x.ndim) if d not in dropped]
        if any(not 0 <= d < x.ndim for d in dropped):
            raise TypeError(
                f"{self.function}: inserted_window_dims {n.inserted_window_dims} and operand_batching_dims "
                f"{n.operand_batching_dims} must be axes of the operand {x}, from 0 to {x.ndim - 1}"
            )
        if len(offset) != len(kept) or len(set(dropped)) != len(dropped):
            raise TypeError(
                f"{self.function}: update_window_dims {offset}, inserted_window_dims {n.inserted_window_dims} and "
                f"operand_batching_dims {n.operand_batching_dims} must have one entry for each axis of {x}"
            )
        for d, axis in zip(kept, offset, strict=True):
            if updates.shape[axis] > x.shape[d]:
                raise TypeError(
                    f"{self.function}: updates {updates} do not fit into operand {x}: axis {axis} of the updates has "
                    f"size {updates.shape[axis]}, axis {d} of the operand, which it is a window of, size {x.shape[d]}"
                )
        self.windows(x.shape, updates.shape).check(self.function, "scatter_dims_to_operand_dims", indices)
        numbering = tuple([size for i, size in enumerate(updates.shape) if i not in offset])
        if numbering != indices.shape[:-1]:
            expected = list(indices.shape[:-1])
            for axis in offset:
                expected.insert(axis, updates.shape[axis])
            raise TypeError(
                f"{self.function}: updates {updates} must have the shape {tuple(expected)}: that of the indices "
                f"{indices} without the last axis, and the window axes {offset}"
            )
        return x

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, indices, updates = args[0], as_indices(args[1]), args[2]
        if not x.size or not updates.size:
            return x
        windows = self.windows(x.shape, updates.shape)
        order = window_order(self.dimension_numbers.update_window_dims, updates.ndim)
        updates = updates.transpose(order)
        count = indices.ndim - 1
        if self.mode is GatherScatterMode.CLIP:
            inside, indices = np.ones(indices.shape[:-1], np.bool_), windows.clipped(indices)
        else:
            inside = windows.inside(indices)
        wide = dtypes.itemsize_bits(x.dtype) >= 8
        out = np.array(x if wide else cast(x, dtypes.int8), order="C")
        updates = updates if wide else cast(updates, dtypes.int8)
        if inside.size == 1:  # one window is a slice
            if inside.all():
                starts = dict(zip(windows.index_map, indices.reshape(-1).tolist(), strict=True))
                at = [slice(starts.get(d, 0), starts.get(d, 0) + size) for d, size in enumerate(windows.sizes)]
                out[tuple(at)] = self.combiner.combine(out[tuple(at)], updates.reshape(windows.sizes))
            return cast(out, x.dtype)
        positions = windows.index_arrays(np.where(inside[..., None], indices, 0), range(x.ndim))
        # NumPy's `ufunc.at` is fast only with one flat array of indices and updates.
        flat: NDArray = np.zeros((1,) * updates.ndim, np.int64)
        for position, n in zip(positions, x.shape, strict=True):
            flat = flat * n + position
        flat = np.broadcast_to(flat, updates.shape)
        if not inside.all():
            mask = np.broadcast_to(inside.reshape(inside.shape + (1,) * (updates.ndim - count)), updates.shape)
            flat, updates = flat[mask], updates[mask]
        self.combiner.combine_at(out.reshape(-1), flat.reshape(-1), updates.reshape(-1))
        return cast(out, x.dtype)

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        (x, indices, updates), (x_dim, indices_dim, updates_dim) = args, dims
        x, updates = batch_first(x, x_dim, axis), batch_first(updates, updates_dim, axis)
        n = self.dimension_numbers
        n = ScatterDimensionNumbers(
            shift_axes(n.update_window_dims),
            shift_axes(n.inserted_window_dims),
            shift_axes(n.scatter_dims_to_operand_dims),
            shift_axes(n.operand_batching_dims),
            n.scatter_indices_batching_dims,
        )
        if indices_dim is None:  # every window covers the batch axis
            n = evolve(n, update_window_dims=(0, *n.update_window_dims))
        else:
            indices = batch_first(indices, indices_dim, axis)
            n = evolve(
                n,
                operand_batching_dims=(0, *n.operand_batching_dims),
                scatter_indices_batching_dims=(0, *shift_axes(n.scatter_indices_batching_dims)),
            )
        is_sorted = self.indices_are_sorted and indices_dim is None
        return bind1(evolve(self, dimension_numbers=n, indices_are_sorted=is_sorted), x, indices, updates), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        x, indices, updates = operands
        if self.mode is GatherScatterMode.CLIP:
            indices = self.windows(x.aval.shape, updates.aval.shape).emit_clipped(builder, indices)
        n = self.dimension_numbers
        attrs: Mapping[str, Attr] = {
            "scatter_dimension_numbers": dimension_numbers_text(
                "scatter",
                indices.aval,
                update_window_dims=n.update_window_dims,
                inserted_window_dims=n.inserted_window_dims,
                input_batching_dims=n.operand_batching_dims,
                scatter_indices_batching_dims=n.scatter_indices_batching_dims,
                scatter_dims_to_operand_dims=n.scatter_dims_to_operand_dims,
            ),
            "indices_are_sorted": self.indices_are_sorted,
            "unique_indices": self.unique_indices,
        }
        return builder.emit(
            "stablehlo.scatter", [x, indices, updates], [out], attrs, [self.combiner.region(out.dtype)]
        )[0]


class ScatterArithmetic(ScatterOperation, HasPullback):
    """Combines updates with windows of numbers by an arithmetic operation."""

    __slots__ = ()
    takes = NUMBERS

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        """The rule of operations that are jointly linear in the operand and the updates."""
        out = bind1(self, *primals)
        x_t, _, updates_t = tangents
        if isinstance(x_t, Zero) and isinstance(updates_t, Zero):
            return [out], [Zero(out.aval.tangent())]
        return [out], [bind1(self, instantiate(x_t), primals[1], instantiate(updates_t))]


@final
class ScatterAdd(ScatterArithmetic):
    """Adds updates to windows: `x[indices[i]] += updates[i]`, also where windows overlap; the transpose of `Gather`.

    `x: f32[n, m], indices: i32[k, 1], updates: f32[k, m] -> f32[n, m]` for windows that are rows; numbers. Bound by
    `lax.scatter_add` and `x.at[i].add`.
    """

    name = "scatter-add"
    function = "scatter_add"
    combiner: ClassVar[Combiner] = ADD

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        x, indices, updates = args
        assert not isinstance(indices, UndefinedPrimal)
        x_ct = match_aval(ct, x.aval) if isinstance(x, UndefinedPrimal) else None
        if not isinstance(updates, UndefinedPrimal):
            return [x_ct, None, None]
        prim = self.matching_gather(x.aval.shape, updates.aval.shape)
        return [x_ct, None, match_aval(bind1(prim, ct, indices), updates.aval)]


def scatter_params(
    name: str,
    dimension_numbers: ScatterDimensionNumbers,
    indices_are_sorted: bool,
    unique_indices: bool,
    mode: GatherScatterMode | str | None,
) -> tuple[ScatterDimensionNumbers, bool, bool, GatherScatterMode]:
    """Returns the fields of a scatter primitive, from the arguments of its function."""
    if not isinstance(dimension_numbers, ScatterDimensionNumbers):
        raise TypeError(f"{name}: dimension_numbers must be a ScatterDimensionNumbers, got {dimension_numbers!r}")
    how = GatherScatterMode.FILL_OR_DROP if mode is None else canonicalize_mode(name, mode)
    return dimension_numbers, bool(indices_are_sorted), bool(unique_indices), how
