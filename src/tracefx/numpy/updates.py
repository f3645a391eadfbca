"""Indexed updates, `x.at[index].set(y)`: return new arrays that differ from `x` at the index.

An index is interpreted as in `x[index]`, but updates out of bounds are dropped. Elements that are named repeatedly get
all updates, one after another; of several `set`, an unspecified one wins. Values are broadcast to the shape of
`x[index]`. The update is computed in the promoted dtype of `x` and the values; the result has the dtype of `x`.

A traced mask may be an index of updates, alone or with full slices, for values that are the same for all selected
elements.

All updates take these options:
- `indices_are_sorted=True` promises that index arrays ascend, `unique_indices=True` that no element is named twice. If
  the promise is broken, the result is unspecified.
- `mode` says how to treat indices out of bounds: None or `"drop"` drops them, `"clip"` clamps them,
  `"promise_in_bounds"` promises that there are none.
- `wrap_negative_indices=False` makes negative indices count as out of bounds.
- `out_sharding` is the sharding of the result, a constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeGuard, TypeVar, cast, final

import numpy as np
from attrs import field, frozen

from tracefx.core import (
    Array,
    ArrayLike,
    ConcreteArray,
    Literal,
    NDArray,
    Scalar,
    Shape,
    Value,
    as_value,
    dtypes,
    to_numpy,
)
from tracefx.core.array import Index, UpdateMode
from tracefx.core.handler import as_array, bind1, evaluating
from tracefx.core.indexed_updates import IndexUpdateFn
from tracefx.core.kernel_context import call_kernel
from tracefx.errors import TracedMaskError
from tracefx.filtered_tracebacks import api_boundary
from tracefx.lax.indexed_apply import apply_at_indices
from tracefx.numpy.creation import NestedArrayLike, asarray, ones_like
from tracefx.numpy.indexing import (
    AdvancedIndex,
    IndexArray,
    SliceIndex,
    as_numpy_index,
    getitem,
    index_vectors,
    parse_index,
    result_layout,
)
from tracefx.numpy.operand_promotion import (
    broadcast_operand_shapes,
    convert_dtype,
    convert_operand,
    dtype_and_weak_type,
    require_broadcastable,
)
from tracefx.numpy.symbolic_sizes import index_array, slice_positions
from tracefx.numpy.ufuncs import broadcast_select, power, true_divide
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, elementwise
from tracefx.ops.indexing.gather_scatter_add import (
    GatherDimensionNumbers,
    ScatterAdd,
    ScatterDimensionNumbers,
    ScatterOperation,
    gather,
)
from tracefx.ops.indexing.indexed_windows import GatherScatterMode, canonicalize_mode
from tracefx.ops.indexing.scatter import Scatter, ScatterMax, ScatterMin, ScatterMul, ScatterSub
from tracefx.ops.promotion import promote
from tracefx.transforms.shardings import call_with_out_sharding


@final
@frozen(eq=False)
class TracedMask:
    """A traced mask of the axes from `axis` to `end` (exclusive) of an array, broadcast to the array's shape."""

    full_mask: Array
    axis: int
    end: int

    def broadcast_values(self, name: str, values: Value) -> Array:
        """Broadcasts values to the array; along the axis of the selected elements they must have size 1."""
        full_shape = self.full_mask.aval.shape
        after = len(full_shape) - self.end
        shape = values.aval.shape
        selected_axis = len(shape) - after - 1  # the axis of the selected elements
        if selected_axis >= 0:
            if shape[selected_axis] != 1:
                raise TracedMaskError(
                    f"{name}: the values, {values.aval}, have one element for each that the mask selects, but the mask "
                    "is traced, so their number is unknown; pass one value for all, or use where(mask, new, x) with a "
                    "value for each element of x"
                )
            shape = (*shape[:selected_axis], *(1,) * (self.end - self.axis), *shape[selected_axis + 1 :])
        require_broadcastable(f"{name}: values", shape, full_shape, "the masked array, of shape")
        return structural.broadcast_to(structural.reshape(values, shape), full_shape)


def traced_mask(x: Array, index: Index) -> TracedMask | None:
    """Returns the mask of an index that consists of one traced mask and otherwise full slices, else None."""
    parts = index if isinstance(index, tuple) else (index,)
    masks = [part for part in parts if is_traced_mask(part)]
    if len(masks) != 1:
        return None
    (mask,) = masks
    others = [part for part in parts if part is not mask]
    if any(part is not Ellipsis and not (isinstance(part, slice) and part == slice(None)) for part in others):
        return None
    ellipses = sum([part is Ellipsis for part in others])
    ndim, mask_ndim = x.aval.ndim, mask.aval.ndim
    free = ndim - mask_ndim - (len(others) - ellipses)
    if ellipses > 1 or free < 0:
        return None  # parse_index raises for it
    before = parts[: next(i for i, part in enumerate(parts) if part is mask)]
    start = sum([free if part is Ellipsis else 1 for part in before])
    end = start + mask_ndim
    if x.aval.shape[start:end] != mask.aval.shape:
        raise IndexError(
            f"a mask of shape {mask.aval.shape} selects from axes of sizes {x.aval.shape[start:end]} at axis {start}: "
            "these must agree"
        )
    return TracedMask(structural.broadcast_in_dim(mask, x.aval.shape, range(start, end)), start, end)


def is_traced_mask(part: object) -> TypeGuard[Array]:
    """Returns whether a part of an index is a traced array of bools with axes."""
    if not isinstance(part, Array) or type(part) is ConcreteArray:
        return False
    return dtypes.is_bool(part.aval.dtype) and part.aval.ndim > 0


S = TypeVar("S", bound=ScatterOperation)


@final
@frozen
class UpdateOptions:
    """The options of an update, and its name for error messages."""

    name: str
    is_sorted: bool
    unique: bool
    mode: UpdateMode
    wrap: bool

    def __attrs_post_init__(self) -> None:
        if self.mode is not None:
            canonicalize_mode(self.name, self.mode)  # raises for an unknown mode

    @property
    def gather_mode(self) -> GatherScatterMode:
        """The mode of reading."""
        assert self.mode is not None
        return canonicalize_mode(self.name, self.mode)

    @property
    def scatter_mode(self) -> GatherScatterMode:
        """The mode of writing; updates out of bounds are dropped by default."""
        return GatherScatterMode.FILL_OR_DROP if self.mode is None else canonicalize_mode(self.name, self.mode)


@final
@frozen(eq=False)
class IndexUpdateHelper:
    """The object `x.at`, which is indexed."""

    array: Array

    def __getitem__(self, index: Index) -> IndexUpdateRef:
        return IndexUpdateRef(self.array, index)


class _UpdateMethod(Protocol):
    """A method of `x.at[index]` that updates."""

    def __get__(self, instance: IndexUpdateRef, owner: type[IndexUpdateRef]) -> IndexUpdateFn[Array]: ...


def _with_options(method: Callable[[IndexUpdateRef, ArrayLike, UpdateOptions], Array]) -> _UpdateMethod:
    """Returns a method that takes the options of all updates as keyword arguments."""
    name = method.__name__

    @api_boundary
    def update(
        self: IndexUpdateRef,
        values: NestedArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        # Other sequences, such as strings, are refused with the name of the method.
        given = asarray(values) if isinstance(values, list | tuple) else cast("ArrayLike", values)
        options = UpdateOptions(name, indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        if out_sharding is None:
            return method(self, given, options)

        def updated(array: Array, index: Index, new: ArrayLike) -> Array:
            return method(IndexUpdateRef(array, index), new, options)

        updated.__name__ = f"x.at[...].{name}"
        return call_with_out_sharding(out_sharding, updated, self.array, self.index, given)

    update.__name__, update.__qualname__, update.__doc__ = name, method.__qualname__, method.__doc__
    return cast(_UpdateMethod, update)  # functions are descriptors, which mypy does not know


@final
@frozen(eq=False)
class IndexUpdateRef:
    """The object `x.at[index]`, whose methods are the updates."""

    array: Array
    index: Index = field(repr=False)

    @api_boundary
    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        fill_value: Scalar | None = None,
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """Returns `x[index]`, with options.

        Args:
            indices_are_sorted: Promises that index arrays ascend.
            unique_indices: Promises that no element is named twice.
            mode: How to treat indices out of bounds: None or `"clip"` clamps them, `"fill"` gives `fill_value`.
            fill_value: The element for indices out of bounds; None means NaN, or an extreme of an integer dtype.
            out_sharding: The sharding of the result, as a constraint. None, the default, adds none.
            wrap_negative_indices: Whether negative indices count from the end; if False, they are out of bounds.

        >>> from tracefx.numpy import arange
        >>> arange(3).at[np.array([0, 5])].get(mode="fill", fill_value=-1).tolist()
        [0, -1]
        """
        if out_sharding is not None:

            def read(array: Array, index: Index) -> Array:
                return IndexUpdateRef(array, index).get(
                    indices_are_sorted=indices_are_sorted,
                    unique_indices=unique_indices,
                    mode=mode,
                    fill_value=fill_value,
                    wrap_negative_indices=wrap_negative_indices,
                )

            read.__name__ = "x.at[...].get"
            return call_with_out_sharding(out_sharding, read, self.array, self.index)
        options = UpdateOptions("get", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        if mode is None and wrap_negative_indices:
            return getitem(self.array, self.index)
        gather_mode = GatherScatterMode.CLIP if mode is None else options.gather_mode
        target = _update_target(self.array, self.index, wrap_negative_indices)
        if not target.columns or 0 in target.shape:
            return getitem(self.array, self.index)
        numbers = GatherDimensionNumbers(target.windows, target.inserted, tuple(target.columns))
        windows = iter(target.windows)
        sizes = [1 if d in target.inserted else target.sizes[next(windows)] for d in range(target.array.aval.ndim)]
        out = gather(
            target.array,
            target.vectors(),
            numbers,
            sizes,
            unique_indices=unique_indices or target.unique,
            indices_are_sorted=indices_are_sorted or target.unique,
            mode=gather_mode,
            fill_value=fill_value,
        )
        return structural.reshape(out, target.shape)

    @_with_options
    def set(self, values: ArrayLike, options: UpdateOptions) -> Array:
        """Returns `x` with `values` at the index, as after `x[index] = values` in NumPy.

        The options are those of the module's docstring. Raises what `x[index]` raises, and ValueError if `values` does
        not broadcast to its shape; so do all other updates.

        >>> from tracefx.numpy import zeros
        >>> zeros(4).at[1:3].set(np.array([1.0, 2.0])).tolist()
        [0.0, 1.0, 2.0, 0.0]
        """
        return self._apply_update(Scatter, lambda old, new: as_array(new), values, options)

    @_with_options
    def add(self, values: ArrayLike, options: UpdateOptions) -> Array:
        """Returns `x` with `values` added at the index.

        >>> from tracefx.numpy import zeros
        >>> zeros(3).at[[0, 0, 2]].add(1.0).tolist()
        [2.0, 0.0, 1.0]
        """
        return self._apply_update(ScatterAdd, elementwise.add, values, options)

    @_with_options
    def subtract(self, values: ArrayLike, options: UpdateOptions) -> Array:
        """Returns `x` with `values` subtracted at the index.

        >>> from tracefx.numpy import zeros
        >>> zeros(3).at[[0, 0, 2]].subtract(1.0).tolist()
        [-2.0, 0.0, -1.0]
        """
        return self._apply_update(ScatterSub, arithmetic.sub, values, options)

    @_with_options
    def multiply(self, values: ArrayLike, options: UpdateOptions) -> Array:
        """Returns `x` multiplied by `values` at the index.

        Derivatives with respect to `values` are faster if no element is named twice and the indices are concrete, or
        `unique_indices=True` promises it.

        >>> from tracefx.numpy import ones
        >>> ones(3).at[[0, 0, 2]].multiply(3.0).tolist()
        [9.0, 1.0, 3.0]
        """
        return self._apply_update(ScatterMul, arithmetic.mul, values, options)

    mul = multiply

    @_with_options
    def divide(self, values: ArrayLike, options: UpdateOptions) -> Array:
        """Returns `x` divided by `values` at the index, all of it in a float or complex dtype.

        >>> from tracefx.numpy import ones
        >>> ones(3).at[0].divide(4.0).tolist()
        [0.25, 1.0, 1.0]
        """
        return true_divide(self.array, self._scatter_factors(values, options))

    @_with_options
    def power(self, values: ArrayLike, options: UpdateOptions) -> Array:
        """Returns `x` raised to the power `values` at the index.

        >>> from tracefx.numpy import arange
        >>> arange(4).at[2:].power(2).tolist()
        [0, 1, 4, 9]
        """
        return power(self.array, self._scatter_factors(values, options))

    @_with_options
    def min(self, values: ArrayLike, options: UpdateOptions) -> Array:
        """Returns `x` with the minimum of it and `values` at the index.

        >>> from tracefx.numpy import arange
        >>> arange(4).at[1:].min(2).tolist()
        [0, 1, 2, 2]
        """
        return self._apply_update(ScatterMin, arithmetic.min, values, options)

    @_with_options
    def max(self, values: ArrayLike, options: UpdateOptions) -> Array:
        """Returns `x` with the maximum of it and `values` at the index.

        >>> from tracefx.numpy import arange
        >>> arange(4).at[:2].max(2).tolist()
        [2, 2, 2, 3]
        """
        return self._apply_update(ScatterMax, arithmetic.max, values, options)

    @api_boundary
    def apply(
        self,
        func: Callable[[Array], ArrayLike],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """Returns `x` with an elementwise function applied at the index, as often as an element is named.

        >>> from tracefx.numpy import arange
        >>> arange(3).at[[1, 2, 2]].apply(lambda y: y * 10).tolist()
        [0, 10, 200]
        """
        x, options = self.array, UpdateOptions("apply", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        mask = traced_mask(x, self.index)
        if mask is not None:
            new = convert_operand(func(x), x.aval.dtype, x.aval.weak_type, "apply: the result of func")
            return broadcast_select(mask.full_mask, new, x)
        target = _update_target(x, self.index, options.wrap)
        if 0 in target.shape:
            return x
        prim = target.scatter(Scatter, options)

        def retyped_func(old: Array) -> ArrayLike:
            return convert_operand(func(old), x.aval.dtype, x.aval.weak_type, "apply: the result of func")

        if not target.columns:
            return as_array(retyped_func(x))
        out = apply_at_indices(prim, target.array, as_value(target.vectors()), retyped_func, target.sizes)
        return structural.reshape(out, x.aval.shape)

    def _scatter_factors(self, values: ArrayLike, options: UpdateOptions) -> Array:
        """Returns `values` at the index, multiplied where elements are named repeatedly, and 1 elsewhere."""
        ones = IndexUpdateRef(ones_like(self.array), self.index)
        return ones._apply_update(ScatterMul, arithmetic.mul, values, options)

    def _apply_update(
        self,
        operation: type[ScatterOperation],
        everywhere: Callable[[Value, Value], Array],
        values: ArrayLike,
        options: UpdateOptions,
    ) -> Array:
        """Updates by a scatter, or by the elementwise function `everywhere` if the index names all of `x` once."""
        name, aval = options.name, self.array.aval
        dtype, weak = promote([(aval.dtype, aval.weak_type), dtype_and_weak_type(values, f"{name}: values")])
        operand = convert_operand(values, dtype, weak, f"{name}: values")
        if options.wrap and type(self.array) is ConcreteArray and dtype == aval.dtype and evaluating():
            updated = _update_by_numpy(self.array, self.index, operation, operand)
            if updated is not None:
                return updated
        mask = traced_mask(self.array, self.index)
        if mask is not None:
            x = as_array(convert_dtype(self.array, dtype, weak))
            new = everywhere(x, mask.broadcast_values(name, operand))
            return as_array(convert_dtype(broadcast_select(mask.full_mask, new, x), aval.dtype, aval.weak_type))
        target = _update_target(self.array, self.index, options.wrap)
        prim = target.scatter(operation, options)
        require_broadcastable(f"{name}: values", operand.aval.shape, target.shape, "the indexed part, of shape")
        if 0 in target.shape:
            return self.array
        updates = structural.reshape(structural.broadcast_to(operand, target.shape), target.sizes)
        x = as_array(convert_dtype(target.array, dtype, weak))
        out = bind1(prim, x, target.vectors(), updates) if target.columns else everywhere(x, updates)
        return structural.reshape(convert_dtype(out, aval.dtype, aval.weak_type), aval.shape)


_UFUNCS: Final[Mapping[type[ScatterOperation], np.ufunc | None]] = MappingProxyType(
    {Scatter: None, ScatterAdd: np.add, ScatterSub: np.subtract, ScatterMul: np.multiply}
)


def _update_by_numpy(
    x: ConcreteArray, index: Index, operation: type[ScatterOperation], values: Value
) -> ConcreteArray | None:
    """Updates with NumPy; None if NumPy raises (for indices out of bounds) or may interpret the index differently."""
    numpy_index, dtype = as_numpy_index(index), x.aval.dtype
    if numpy_index is None or operation not in _UFUNCS or dtype.kind not in "iufc" or not isinstance(values, _KNOWN):
        return None
    out, new = np.array(x.numpy()), to_numpy(values)
    try:
        old = out[numpy_index]
        if new.ndim > old.ndim:  # NumPy would accept additional axes of size 1
            return None
        call_kernel(_write_in_place, out, numpy_index, old, new, _UFUNCS[operation])
    except (IndexError, TypeError, ValueError):
        return None
    return ConcreteArray(x.aval, out)


_KNOWN: Final = (ConcreteArray, Literal)


def _write_in_place(out: NDArray, index: tuple[Any, ...], old: NDArray, new: NDArray, ufunc: np.ufunc | None) -> None:
    """Applies an update to a NumPy array, whose part at the index is `old`."""
    if ufunc is None:
        out[index] = new
    elif old.base is out:  # a view, in which no element is named twice
        ufunc(old, new, old)
    else:
        ufunc.at(out, index, new)


@final
@frozen(eq=False)
class UpdateTarget:
    """The part of an array that an index names, as a scatter describes it."""

    array: Array
    """The array, with an axis inserted for each bool of the index."""
    shape: Shape
    """The shape of the part."""
    sizes: Shape
    """Its shape without new axes."""
    windows: tuple[int, ...]
    """The axes of the part that are windows of the array."""
    inserted: tuple[int, ...]
    """The axes of the array that are not windows."""
    columns: Mapping[int, IndexArray]
    """The indices along each axis of the array that is not whole; of a window, that of its first element."""
    unique: bool
    """Whether certainly no element is named twice."""

    def vectors(self) -> ArrayLike:
        """Returns the index vectors of the scatter."""
        return index_vectors(list(self.columns.values()))[0]

    def scatter(self, operation: Callable[..., S], options: UpdateOptions) -> S:
        """Returns the scatter operation that updates the part."""
        mode = options.scatter_mode
        numbers = ScatterDimensionNumbers(self.windows, self.inserted, tuple(self.columns))
        unique = options.unique or self.unique
        if operation is ScatterMul and not unique:  # derivatives are simpler with unique indices
            unique = _has_unique_indices(self, mode)
        return operation(numbers, options.is_sorted or self.unique, unique, mode)


def _update_target(x: Array, index: Index, wrap: bool) -> UpdateTarget:
    """Parses an index into the target of a scatter."""
    parts, x, ellipsis = parse_index(x, index, clamp=False, wrap=wrap)
    axes = [part for part in parts if part is not None]
    arrays = {axis: part.indices for axis, part in enumerate(axes) if isinstance(part, AdvancedIndex)}
    named = broadcast_operand_shapes("indexing", *[tuple(indices.shape) for indices in arrays.values()])
    slices = [(axis, part) for axis, part in enumerate(axes) if isinstance(part, SliceIndex)]
    full: list[int] = []
    sizes: list[int] = []
    windows: list[int] = []
    inserted = set(arrays)
    columns: dict[
        int, tuple[int, IndexArray]
    ] = {}  # by axis of `x`: the position in `sizes` after the indices, and these
    for item in result_layout(parts, ellipsis):
        if item == "new":
            full.append(1)
            continue
        if item == "indexed":
            item_sizes = named
            columns |= {axis: (len(sizes) + len(named), indices) for axis, indices in arrays.items()}
        else:
            axis, window = slices.pop(0)
            line = slice_positions(window.start, window.stop, window.step)
            item_sizes = line.shape
            if window.step == 1 and not window.reverse:
                windows.append(len(sizes))
                if item_sizes[0] != x.aval.shape[axis]:
                    columns[axis] = len(sizes) + 1, index_array(window.start)
            else:
                inserted.add(axis)
                columns[axis] = len(sizes) + 1, line[::-1] if window.reverse else line
        full += item_sizes
        sizes += item_sizes

    def pad_axes(end: int, indices: IndexArray) -> IndexArray:
        """Adds an axis of size 1 for each later axis of the index vectors."""
        later = len([i for i in range(end, len(sizes)) if i not in windows])
        return structural.reshape(indices, (*indices.shape, *[1] * later)) if later and indices.ndim else indices

    padded_columns = {axis: pad_axes(end, indices) for axis, (end, indices) in columns.items()}
    unique = all(not indices.ndim and not isinstance(indices, Array) for indices in arrays.values())
    return UpdateTarget(x, tuple(full), tuple(sizes), tuple(windows), tuple(sorted(inserted)), padded_columns, unique)


def _has_unique_indices(target: UpdateTarget, mode: GatherScatterMode) -> bool:
    """Returns whether all indices are concrete and no element is named twice."""
    columns: list[NDArray] = []
    for axis, indices in target.columns.items():
        if not isinstance(indices, np.ndarray | ConcreteArray):
            return False
        known, size = np.asarray(indices), target.array.aval.shape[axis]
        columns.append(known.clip(0, size - 1) if mode is GatherScatterMode.CLIP else known)
    vectors = np.stack(np.broadcast_arrays(*columns), -1).reshape(-1, len(columns))
    return len(np.unique(vectors, axis=0)) == len(vectors)


def at(x: Array, /) -> IndexUpdateHelper:
    """Returns `x.at`, whose item `[index]` has methods that update `x` at the index.

    Args:
        x: The array.

    Returns:
        An object whose items `[index]` have the methods `set`, `add`, `multiply` and more.

    >>> from tracefx.numpy import arange
    >>> at(arange(3))[1:].add(10).tolist()
    [0, 11, 12]
    """
    return IndexUpdateHelper(x)
