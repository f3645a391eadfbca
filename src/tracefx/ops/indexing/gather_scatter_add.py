"""Reading and writing windows at computed places: `gather`, its transpose `scatter_add`, and the family of scatters."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, SupportsIndex, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import bind1
from tracefx.core.literal import Scalar
from tracefx.core.primitive import Differentiable, MappedAxis, Tangent, Transposable, UndefinedPrimal, Zero
from tracefx.core.values import Value, as_value
from tracefx.lowering import Attr, Builder, DenseI64Array, IrValue, MlirText, Region
from tracefx.ops import stablehlo
from tracefx.ops.casting import cast
from tracefx.ops.elementwise.elementwise import NUMBERS
from tracefx.ops.indexing.indexed_windows import GatherScatterMode, IndexedWindows, as_indices, canonicalize_mode
from tracefx.ops.operation import DataMovement, Domain, Operation, memoize_aval, static_shape
from tracefx.ops.static_integers import static_ints
from tracefx.ops.structural import batch_first, full_like_aval, instantiate, match_aval

Dimensions = tuple[int, ...]


def _axes(xs: Iterable[SupportsIndex]) -> Dimensions:
    return static_ints("gather or scatter", xs, "dimension numbers")


@final
@frozen(cache_hash=True)
class GatherDimensionNumbers:
    """Which axes of operand, indices and result belong together.

    `offset_dims`: the result's axes that lie within a window; its other axes are those of the indices but the last.
    `collapsed_slice_dims`: operand axes, of window size 1, that the result doesn't have. `start_index_map`: the
    operand axes that an index vector has entries for. `operand_batching_dims`: operand axes that go along with the
    axes `start_indices_batching_dims` of the indices.
    """

    offset_dims: Dimensions = field(converter=_axes)
    collapsed_slice_dims: Dimensions = field(converter=_axes)
    start_index_map: Dimensions = field(converter=_axes)
    operand_batching_dims: Dimensions = field(default=(), converter=_axes)
    start_indices_batching_dims: Dimensions = field(default=(), converter=_axes)

    def windows(self, operand: Shape, sizes: Shape) -> IndexedWindows:
        return IndexedWindows(
            operand,
            sizes,
            self.collapsed_slice_dims,
            self.start_index_map,
            self.operand_batching_dims,
            self.start_indices_batching_dims,
        )


@final
@frozen
class ScatterDimensionNumbers:
    """As `GatherDimensionNumbers`, the updates being in the place of the result."""

    update_window_dims: Dimensions = field(converter=_axes)
    inserted_window_dims: Dimensions = field(converter=_axes)
    scatter_dims_to_operand_dims: Dimensions = field(converter=_axes)
    operand_batching_dims: Dimensions = field(default=(), converter=_axes)
    scatter_indices_batching_dims: Dimensions = field(default=(), converter=_axes)


def _shift_axes(axes: Dimensions, by: int = 1) -> Dimensions:
    return tuple([d + by for d in axes])


def _window_order(offset: Dimensions, ndim: int) -> list[int]:
    """The axes of a result in the order: those that number windows, then those within a window."""
    return [*[i for i in range(ndim) if i not in offset], *offset]


def _check_offset(name: str, argument: str, offset: Dimensions, ndim: int) -> None:
    if list(offset) != sorted(set(offset)) or any(not 0 <= d < ndim for d in offset):
        raise TypeError(f"{name}: {argument} {offset} must increase and be axes of an array that has {ndim}")


# ------------------------------------------------------------------ gather


@final
@frozen(eq=False)
class Gather(Operation, Differentiable, Transposable, DataMovement):
    name = "gather"
    arity = 2
    dimension_numbers: GatherDimensionNumbers
    slice_sizes: Shape
    indices_are_sorted: bool
    unique_indices: bool
    mode: GatherScatterMode
    fill_value: Scalar | None

    def windows(self, operand: Shape) -> IndexedWindows:
        return self.dimension_numbers.windows(operand, self.slice_sizes)

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
        _check_offset("gather", "offset_dims", offset, ndim)
        sizes = [0] * ndim
        known = [*indices.shape[:-1], *[self.slice_sizes[d] for d in windows.kept]]
        for place, n in zip(_window_order(offset, ndim), known, strict=True):
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
        # Axes that every window has whole are copied along; the others are looked up.
        looked_up = [
            d for d in range(x.ndim) if d in (*windows.dropped, *windows.index_map) or self.slice_sizes[d] != x.shape[d]
        ]
        whole = [d for d in range(x.ndim) if d not in looked_up]
        found = x.transpose([*looked_up, *whole])[tuple(windows.index_arrays(windows.clipped(indices), looked_up))]
        moving = [d for d in looked_up if d not in windows.dropped]
        shape = (*count, *[self.slice_sizes[d] for d in (*moving, *whole)])
        found = np.broadcast_to(found, shape)
        if inside is not None and not inside.all():
            assert self.fill_value is not None
            mask = inside.reshape(count + (1,) * (found.ndim - len(count)))
            found = np.where(mask, found, cast(np.asarray(self.fill_value), x.dtype))
        # found: windows' numbers, axes looked up, whole axes; wanted: both kinds of axes in the operand's order.
        place = {d: len(count) + i for i, d in enumerate((*moving, *whole))}
        sources = [*range(len(count)), *[place[d] for d in windows.kept]]
        order = [0] * found.ndim
        for target, source in zip(_window_order(self.dimension_numbers.offset_dims, found.ndim), sources, strict=True):
            order[target] = source
        return found.transpose(order)

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        t = tangents[0]
        if isinstance(t, Zero):
            return [out], [Zero(out.aval.tangent())]
        return [out], [bind1(self.with_fill_value(0), t, primals[1])]

    @property
    def _empty_fill(self) -> Scalar:
        """What windows hold where the operand has no elements."""
        return 0 if self.fill_value is None else self.fill_value

    def with_fill_value(self, fill: Scalar) -> Gather:
        return self if self.fill_value is None else evolve(self, fill_value=fill)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,), (x, indices) = cts, args
        assert not isinstance(ct, Zero)
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
                offset_dims=_shift_axes(n.offset_dims),
                start_indices_batching_dims=_shift_axes(n.start_indices_batching_dims),
            )
        if x_dim is not None:
            x = batch_first(x, x_dim, axis)
            n = evolve(
                n,
                collapsed_slice_dims=_shift_axes(n.collapsed_slice_dims),
                start_index_map=_shift_axes(n.start_index_map),
                operand_batching_dims=_shift_axes(n.operand_batching_dims),
            )
            if indices_dim is not None:  # the batch axis of both goes along
                n = evolve(
                    n,
                    operand_batching_dims=(0, *n.operand_batching_dims),
                    start_indices_batching_dims=(0, *n.start_indices_batching_dims),
                )
                sizes = (min(axis.size, 1), *sizes)
            else:  # every window has all of the batch axis
                n = evolve(n, offset_dims=(0, *_shift_axes(n.offset_dims)))
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
            "dimension_numbers": _dimension_numbers_text(
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
        (found,) = builder.emit("stablehlo.gather", [x, indices], [out], attrs)  # which clips
        if self.mode is not GatherScatterMode.FILL_OR_DROP:
            return found
        assert self.fill_value is not None
        inside = windows.emit_inside(builder, indices)
        numbering = [i for i in range(out.ndim) if i not in n.offset_dims]
        mask = stablehlo.emit_broadcast(builder, inside, out.shape, numbering)
        fill = stablehlo.emit_full(builder, self.fill_value, out)
        return builder.emit("stablehlo.select", [mask, found, fill], [out])[0]


@functools.lru_cache(maxsize=4096)
def _take_axis(numbers: GatherDimensionNumbers, slice_sizes: Shape, shape: Shape, indices_ndim: int) -> int | None:
    """The axis along which this is NumPy's `take`, if it is."""
    if len(numbers.start_index_map) != 1 or numbers.operand_batching_dims:
        return None
    (axis,) = numbers.start_index_map
    if numbers.collapsed_slice_dims != (axis,) or slice_sizes[axis] != 1:
        return None
    if slice_sizes[:axis] + slice_sizes[axis + 1 :] != shape[:axis] + shape[axis + 1 :]:
        return None
    behind = range(axis + indices_ndim - 1, len(shape) + indices_ndim - 2)
    return axis if numbers.offset_dims == (*range(axis), *behind) else None


def _dimension_numbers_text(kind: str, indices: ShapedArray, **axes: Dimensions) -> MlirText:
    parts = [f"{name} = {list(value)}" for name, value in axes.items() if value]
    return MlirText(f"#stablehlo.{kind}<{', '.join([*parts, f'index_vector_dim = {indices.ndim - 1}'])}>")


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
    """Windows of `operand`, of shape `slice_sizes`, from the places that `start_indices` (`i32[..., k]`) names.

    A window that is not within the operand is filled with `fill_value` (`mode="fill"`; NaN, the least signed or the
    greatest unsigned integer unless given) or moved to the nearest place within it (`mode="clip"`). Without a mode
    the caller promises that there is none.
    Indexing with `x[...]` is this operation for everyday use.

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
        # No windows are in no elements, of whatever size along the axes that they haven't in the result.
        left_out = (*dimension_numbers.collapsed_slice_dims, *dimension_numbers.operand_batching_dims)
        sizes = tuple(
            [
                min(size, n) if d in left_out else size
                for d, (size, n) in enumerate(zip(sizes, x.aval.shape, strict=True))
            ]
        )
    fill: Scalar | None = None
    if how is GatherScatterMode.FILL_OR_DROP:
        fill = _default_fill(x.aval.dtype) if fill_value is None else fill_value
    prim = Gather(dimension_numbers, sizes, bool(indices_are_sorted), bool(unique_indices), how, fill)
    return bind1(prim, x, indices)


def _default_fill(dtype: DType) -> Scalar:
    if dtypes.is_inexact(dtype):
        return float("nan")
    if dtypes.is_bool(dtype):
        return True
    if dtypes.is_key(dtype):
        return 2**32 - 1  # the greatest word, as unsigned integers have
    return int(dtypes.iinfo(dtype).min if dtypes.is_signed(dtype) else dtypes.iinfo(dtype).max)


# ------------------------------------------------------------------ scatter_add, and what all scatters have in common


@frozen(eq=False)
class ScatterOperation(Operation, Differentiable):
    """An operand with updates merged into its windows. A member of the family says how two elements become one."""

    dimension_numbers: ScatterDimensionNumbers
    indices_are_sorted: bool
    unique_indices: bool
    mode: GatherScatterMode

    arity = 3
    takes: ClassVar[Domain]
    function: ClassVar[str]
    """The name of the function of `tracefx.lax`, which errors speak of."""

    @abstractmethod
    def merge(self, old: NDArray, new: NDArray) -> NDArray:
        """What is there and what comes, element by element."""
        raise NotImplementedError

    @abstractmethod
    def merge_at(self, out: NDArray, places: NDArray, new: NDArray) -> None:
        """`merge` into the flat array `out`, in place, at places that may be repeated."""
        raise NotImplementedError

    @abstractmethod
    def emit_merged(self, builder: Builder, element: ShapedArray, old: IrValue, new: IrValue) -> IrValue:
        """`merge` of two elements, in StableHLO."""
        raise NotImplementedError

    def windows(self, operand: Shape, updates: Shape) -> IndexedWindows:
        n = self.dimension_numbers
        dropped = (*n.inserted_window_dims, *n.operand_batching_dims)
        sizes = [min(size, 1) for size in operand]
        kept = [d for d in range(len(operand)) if d not in dropped]
        for d, place in zip(kept, n.update_window_dims, strict=True):
            sizes[d] = updates[place]
        return IndexedWindows(
            operand,
            tuple(sizes),
            n.inserted_window_dims,
            n.scatter_dims_to_operand_dims,
            n.operand_batching_dims,
            n.scatter_indices_batching_dims,
        )

    def matching_gather(self, operand: Shape, updates: Shape) -> Gather:
        """The operation that reads, for each update, what is where it goes; 0 where that is nowhere."""
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
        _check_offset(self.function, "update_window_dims", offset, updates.ndim)
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
            wanted = list(indices.shape[:-1])
            for axis in offset:
                wanted.insert(axis, updates.shape[axis])
            raise TypeError(
                f"{self.function}: updates {updates} must have the shape {tuple(wanted)}: that of the indices "
                f"{indices} without the last axis, and the window axes {offset}"
            )
        return x

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, indices, updates = args[0], as_indices(args[1]), args[2]
        if not x.size or not updates.size:
            return x
        windows = self.windows(x.shape, updates.shape)
        order = _window_order(self.dimension_numbers.update_window_dims, updates.ndim)
        updates = updates.transpose(order)
        count = indices.ndim - 1
        if self.mode is GatherScatterMode.CLIP:
            inside, indices = np.ones(indices.shape[:-1], np.bool_), windows.clipped(indices)
        else:
            inside = windows.inside(indices)
        wide = dtypes.itemsize_bits(x.dtype) >= 8
        out = np.array(x if wide else cast(x, dtypes.int8), order="C")
        updates = updates if wide else cast(updates, dtypes.int8)
        if inside.size == 1:  # a single window is a slice
            if inside.all():
                starts = dict(zip(windows.index_map, indices.reshape(-1).tolist(), strict=True))
                at = [slice(starts.get(d, 0), starts.get(d, 0) + size) for d, size in enumerate(windows.sizes)]
                out[tuple(at)] = self.merge(out[tuple(at)], updates.reshape(windows.sizes))
            return cast(out, x.dtype)
        places = windows.index_arrays(np.where(inside[..., None], indices, 0), range(x.ndim))
        # One flat list of places and updates: NumPy merges at repeated places fast only in this form.
        flat: NDArray = np.zeros((1,) * updates.ndim, np.int64)
        for place, n in zip(places, x.shape, strict=True):
            flat = flat * n + place
        flat = np.broadcast_to(flat, updates.shape)
        if not inside.all():
            mask = np.broadcast_to(inside.reshape(inside.shape + (1,) * (updates.ndim - count)), updates.shape)
            flat, updates = flat[mask], updates[mask]
        self.merge_at(out.reshape(-1), flat.reshape(-1), updates.reshape(-1))
        return cast(out, x.dtype)

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        (x, indices, updates), (x_dim, indices_dim, updates_dim) = args, dims
        x, updates = batch_first(x, x_dim, axis), batch_first(updates, updates_dim, axis)
        n = self.dimension_numbers
        n = ScatterDimensionNumbers(
            _shift_axes(n.update_window_dims),
            _shift_axes(n.inserted_window_dims),
            _shift_axes(n.scatter_dims_to_operand_dims),
            _shift_axes(n.operand_batching_dims),
            n.scatter_indices_batching_dims,
        )
        if indices_dim is None:  # every window has all of the batch axis
            n = evolve(n, update_window_dims=(0, *n.update_window_dims))
        else:
            indices = batch_first(indices, indices_dim, axis)
            n = evolve(
                n,
                operand_batching_dims=(0, *n.operand_batching_dims),
                scatter_indices_batching_dims=(0, *_shift_axes(n.scatter_indices_batching_dims)),
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
            "scatter_dimension_numbers": _dimension_numbers_text(
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
        element = ShapedArray((), out.dtype)
        body = Region((element, element), lambda b, args: [self.emit_merged(b, element, *args)])
        return builder.emit("stablehlo.scatter", [x, indices, updates], [out], attrs, [body])[0]


@final
class ScatterAdd(ScatterOperation, Transposable):
    __slots__ = ()
    name = "scatter-add"
    function = "scatter_add"
    takes = NUMBERS

    @override
    def merge(self, old: NDArray, new: NDArray) -> NDArray:
        return old + new

    @override
    def merge_at(self, out: NDArray, places: NDArray, new: NDArray) -> None:
        np.add.at(out, places, new)

    @override
    def emit_merged(self, builder: Builder, element: ShapedArray, old: IrValue, new: IrValue) -> IrValue:
        return builder.emit("stablehlo.add", [old, new], [element])[0]

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        x_t, _, updates_t = tangents
        if isinstance(x_t, Zero) and isinstance(updates_t, Zero):
            return [out], [Zero(out.aval.tangent())]
        return [out], [bind1(self, instantiate(x_t), primals[1], instantiate(updates_t))]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,), (x, indices, updates) = cts, args
        assert not isinstance(ct, Zero)
        assert not isinstance(indices, UndefinedPrimal)
        of_x = match_aval(ct, x.aval) if isinstance(x, UndefinedPrimal) else None
        if not isinstance(updates, UndefinedPrimal):
            return [of_x, None, None]
        prim = self.matching_gather(x.aval.shape, updates.aval.shape)
        return [of_x, None, match_aval(bind1(prim, ct, indices), updates.aval)]


def scatter_add(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: GatherScatterMode | str | None = None,
) -> Array:
    """`operand` with `updates` added to its windows at the places that `scatter_indices` (`i32[..., k]`) names.

    Windows may overlap: everything is added up. A window that is not within the operand is left out, or with
    `mode="clip"` moved to the nearest place within it.

    >>> rows = ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> scatter_add(np.zeros((3, 2)), np.array([[2], [2]]), np.ones((2, 2)), rows).tolist()
    [[0.0, 0.0], [0.0, 0.0], [2.0, 2.0]]
    """
    prim = ScatterAdd(*scatter_params("scatter_add", dimension_numbers, indices_are_sorted, unique_indices, mode))
    return bind1(prim, operand, scatter_indices, updates)


def scatter_params(
    name: str,
    dimension_numbers: ScatterDimensionNumbers,
    indices_are_sorted: bool,
    unique_indices: bool,
    mode: GatherScatterMode | str | None,
) -> tuple[ScatterDimensionNumbers, bool, bool, GatherScatterMode]:
    """The fields of a scatter from the arguments of its function."""
    if not isinstance(dimension_numbers, ScatterDimensionNumbers):
        raise TypeError(f"{name}: dimension_numbers must be a ScatterDimensionNumbers, got {dimension_numbers!r}")
    how = GatherScatterMode.FILL_OR_DROP if mode is None else canonicalize_mode(name, mode)
    return dimension_numbers, bool(indices_are_sorted), bool(unique_indices), how
