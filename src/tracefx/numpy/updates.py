"""Updates at an index, `x.at[index].set(y)`: new arrays that differ from `x` where the index says.

An index is read as in `x[index]`, but what is out of bounds is left out (`mode="clip"`: moved to the nearest end).
Places named several times get all of their updates, one after another; of several `set` there, one wins, and which one
is left open. Values are broadcast to the shape of `x[index]`; the result has the dtype of `x`, the update itself is
computed in the dtype in which `x` and the values meet.

A mask that is traced may be an index of updates, alone or beside whole axes, for values that are the same for all
elements that it names. `out_sharding` has no meaning on one device.

`unique_indices=True` promises that no place is named twice, `indices_are_sorted=True` that index arrays ascend; a
promise that isn't kept leaves the result open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar, final

import numpy as np
from attrs import field, frozen

from tracefx.core.array import Array, ArrayLike, Index, UpdateMode
from tracefx.core.avals import Shape
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import as_array, bind1, evaluating
from tracefx.core.kernel_context import call_kernel
from tracefx.core.literal import Literal, Scalar
from tracefx.core.promotion import promote
from tracefx.core.values import ConcreteArray, Value, as_value, to_numpy
from tracefx.lax.indexed_apply import apply_at_indices
from tracefx.numpy.creation import ones_like
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
)
from tracefx.numpy.traced_masks import traced_mask
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

S = TypeVar("S", bound=ScatterOperation)


@final
@frozen
class UpdateOptions:
    """The options of an update that errors call `name`."""

    name: str
    is_sorted: bool
    unique: bool
    mode: UpdateMode
    wrap: bool

    def __attrs_post_init__(self) -> None:
        if self.mode is not None:
            canonicalize_mode(self.name, self.mode)  # or it is refused

    @property
    def gather_mode(self) -> GatherScatterMode:
        assert self.mode is not None
        return canonicalize_mode(self.name, self.mode)

    @property
    def scatter_mode(self) -> GatherScatterMode:
        return GatherScatterMode.FILL_OR_DROP if self.mode is None else canonicalize_mode(self.name, self.mode)


@final
@frozen(eq=False)
class IndexUpdateHelper:
    """`x.at`."""

    array: Array

    def __getitem__(self, index: Index) -> IndexUpdateRef:
        return IndexUpdateRef(self.array, index)


@final
@frozen(eq=False)
class IndexUpdateRef:
    """`x.at[index]`."""

    array: Array
    index: Index = field(repr=False)

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
        """`x[index]`; with `mode="fill"`, what is out of bounds is `fill_value`: NaN, or the dtype's extreme, unless
        given.

        >>> from tracefx.numpy import arange
        >>> arange(3).at[np.array([0, 5])].get(mode="fill", fill_value=-1).tolist()
        [0, -1]
        """
        given = UpdateOptions("get", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        if mode is None and wrap_negative_indices:
            return getitem(self.array, self.index)
        how = GatherScatterMode.CLIP if mode is None else given.gather_mode
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
            mode=how,
            fill_value=fill_value,
        )
        return structural.reshape(out, target.shape)

    def set(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x` with `values` at the index, as after `x[index] = values` in NumPy.

        Raises what `x[index]` raises, and ValueError where `values` does not broadcast; so do all other updates.

        >>> from tracefx.numpy import zeros
        >>> zeros(4).at[1:3].set(np.array([1.0, 2.0])).tolist()
        [0.0, 1.0, 2.0, 0.0]
        """
        how = UpdateOptions("set", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return self._apply_update(Scatter, _second_argument, values, how)

    def add(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x` with `values` added at the index.

        >>> from tracefx.numpy import zeros
        >>> zeros(3).at[[0, 0, 2]].add(1.0).tolist()
        [2.0, 0.0, 1.0]
        """
        how = UpdateOptions("add", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return self._apply_update(ScatterAdd, elementwise.add, values, how)

    def subtract(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x` with `values` subtracted at the index.

        >>> from tracefx.numpy import zeros
        >>> zeros(3).at[[0, 0, 2]].subtract(1.0).tolist()
        [-2.0, 0.0, -1.0]
        """
        how = UpdateOptions("subtract", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return self._apply_update(ScatterSub, arithmetic.sub, values, how)

    def multiply(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x` multiplied by `values` at the index. Derivatives by `values` are faster where no place is named twice: if
        the indices are known, or `unique_indices=True` promises it.

        >>> from tracefx.numpy import ones
        >>> ones(3).at[[0, 0, 2]].multiply(3.0).tolist()
        [9.0, 1.0, 3.0]
        """
        how = UpdateOptions("multiply", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return self._apply_update(ScatterMul, arithmetic.mul, values, how)

    mul = multiply

    def divide(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x` divided by `values` at the index, all of it in a float or complex dtype.

        >>> from tracefx.numpy import ones
        >>> ones(3).at[0].divide(4.0).tolist()
        [0.25, 1.0, 1.0]
        """
        how = UpdateOptions("divide", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return true_divide(self.array, self._scatter_factors(values, how))

    def power(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x` to the power `values` at the index.

        >>> from tracefx.numpy import arange
        >>> arange(4).at[2:].power(2).tolist()
        [0, 1, 4, 9]
        """
        how = UpdateOptions("power", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return power(self.array, self._scatter_factors(values, how))

    def min(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x`, at the index the least of it and `values`.

        >>> from tracefx.numpy import arange
        >>> arange(4).at[1:].min(2).tolist()
        [0, 1, 2, 2]
        """
        how = UpdateOptions("min", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return self._apply_update(ScatterMin, arithmetic.min, values, how)

    def max(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x`, at the index the greatest of it and `values`.

        >>> from tracefx.numpy import arange
        >>> arange(4).at[:2].max(2).tolist()
        [2, 2, 2, 3]
        """
        how = UpdateOptions("max", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return self._apply_update(ScatterMax, arithmetic.max, values, how)

    def apply(
        self,
        func: Callable[[Array], ArrayLike],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x` with `func`, a function that works element by element, applied at the index: as often as it is named.

        >>> from tracefx.numpy import arange
        >>> arange(3).at[[1, 2, 2]].apply(lambda y: y * 10).tolist()
        [0, 10, 200]
        """
        x, how = self.array, UpdateOptions("apply", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        mask = traced_mask(x, self.index)
        if mask is not None:
            new = convert_operand(func(x), x.aval.dtype, x.aval.weak_type, "apply: what func gives")
            return broadcast_select(mask.full_mask, new, x)
        target = _update_target(x, self.index, how.wrap)
        if 0 in target.shape:
            return x
        prim = target.scatter(Scatter, how)

        def retyped_func(old: Array) -> ArrayLike:
            return convert_operand(func(old), x.aval.dtype, x.aval.weak_type, "apply: what func gives")

        if not target.columns:
            return as_array(retyped_func(x))
        out = apply_at_indices(prim, target.array, as_value(target.vectors()), retyped_func, target.sizes)
        return structural.reshape(out, x.aval.shape)

    def _scatter_factors(self, values: ArrayLike, how: UpdateOptions) -> Array:
        """`values` at the index, multiplied where places repeat, and 1 elsewhere."""
        ones = IndexUpdateRef(ones_like(self.array), self.index)
        return ones._apply_update(ScatterMul, arithmetic.mul, values, how)

    def _apply_update(
        self,
        operation: type[ScatterOperation],
        everywhere: Callable[[Value, Value], Array],
        values: ArrayLike,
        how: UpdateOptions,
    ) -> Array:
        """The update by a scatter, or by an operation on all of `x` where the index names all of it once."""
        name, own = how.name, self.array.aval
        dtype, weak = promote([(own.dtype, own.weak_type), dtype_and_weak_type(values, f"{name}: values")])
        given = convert_operand(values, dtype, weak, f"{name}: values")
        if how.wrap and type(self.array) is ConcreteArray and dtype == own.dtype and evaluating():
            found = _update_by_numpy(self.array, self.index, operation, given)
            if found is not None:
                return found
        mask = traced_mask(self.array, self.index)
        if mask is not None:
            x = as_array(convert_dtype(self.array, dtype, weak))
            new = everywhere(x, mask.broadcast_values(name, given))
            return as_array(convert_dtype(broadcast_select(mask.full_mask, new, x), own.dtype, own.weak_type))
        target = _update_target(self.array, self.index, how.wrap)
        prim = target.scatter(operation, how)
        if broadcast_operand_shapes(name, given.aval.shape, target.shape) != target.shape:
            raise ValueError(f"{name}: values {given.aval} do not fit what the index names, of shape {target.shape}")
        if 0 in target.shape:
            return self.array
        updates = structural.reshape(structural.broadcast_to(given, target.shape), target.sizes)
        x = as_array(convert_dtype(target.array, dtype, weak))
        out = bind1(prim, x, target.vectors(), updates) if target.columns else everywhere(x, updates)
        return structural.reshape(convert_dtype(out, own.dtype, own.weak_type), own.shape)


_UFUNCS: Final[Mapping[type[ScatterOperation], np.ufunc | None]] = MappingProxyType(
    {Scatter: None, ScatterAdd: np.add, ScatterSub: np.subtract, ScatterMul: np.multiply}
)


def _update_by_numpy(
    x: ConcreteArray, index: Index, operation: type[ScatterOperation], values: Value
) -> ConcreteArray | None:
    """The update by NumPy; None where it refuses it, as all out of bounds, or may understand it otherwise."""
    places, dtype = as_numpy_index(index), x.aval.dtype
    if places is None or operation not in _UFUNCS or dtype.kind not in "iufc" or not isinstance(values, _KNOWN):
        return None
    out, new = np.array(x.numpy()), to_numpy(values)
    try:
        old = out[places]
        if new.ndim > old.ndim:  # which NumPy takes if they have size 1
            return None
        call_kernel(_write_in_place, out, places, old, new, _UFUNCS[operation])
    except (IndexError, TypeError, ValueError):
        return None
    return ConcreteArray(x.aval, out)


_KNOWN: Final = (ConcreteArray, Literal)


def _write_in_place(out: NDArray, places: tuple[Any, ...], old: NDArray, new: NDArray, ufunc: np.ufunc | None) -> None:
    if ufunc is None:
        out[places] = new
    elif old.base is out:  # a window, in which nothing is named twice
        ufunc(old, new, old)
    else:
        ufunc.at(out, places, new)


def _second_argument(old: Value, new: Value) -> Array:
    return as_array(new)


@final
@frozen(eq=False)
class UpdateTarget:
    """Where an update goes: `x` as the index sees it, and of what the index names the shape, the shape without new
    axes, which axes are windows into `x`, the axes of `x` of which they are not, and for each axis of `x` that isn't
    whole the indices along it (those of a window's first element). `unique` if nothing is named twice for sure."""

    array: Array
    shape: Shape
    sizes: Shape
    windows: tuple[int, ...]
    inserted: tuple[int, ...]
    columns: Mapping[int, IndexArray]
    unique: bool

    def vectors(self) -> ArrayLike:
        return index_vectors(list(self.columns.values()))[0]

    def scatter(self, operation: Callable[..., S], how: UpdateOptions) -> S:
        """The operation that updates these places."""
        mode = how.scatter_mode
        numbers = ScatterDimensionNumbers(self.windows, self.inserted, tuple(self.columns))
        unique = how.unique or self.unique
        if operation is ScatterMul and not unique:  # whose derivative by the updates is simple then
            unique = _has_unique_indices(self, mode)
        return operation(numbers, how.is_sorted or self.unique, unique, mode)


def _update_target(x: Array, index: Index, wrap: bool) -> UpdateTarget:
    parts, x, ellipsis = parse_index(x, index, clamp=False, wrap=wrap)
    axes = [part for part in parts if part is not None]
    arrays = {axis: part.indices for axis, part in enumerate(axes) if isinstance(part, AdvancedIndex)}
    named = broadcast_operand_shapes("indexing", *[tuple(indices.shape) for indices in arrays.values()])
    slices = [(axis, part) for axis, part in enumerate(axes) if isinstance(part, SliceIndex)]
    full: list[int] = []
    sizes: list[int] = []
    windows: list[int] = []
    inserted = set(arrays)
    columns: dict[int, tuple[int, IndexArray]] = {}  # by axis of `x`: indices, and the place in `sizes` after them
    for item in result_layout(parts, ellipsis):
        if item == "new":
            full.append(1)
            continue
        if item == "indexed":
            own = named
            columns |= {axis: (len(sizes) + len(named), indices) for axis, indices in arrays.items()}
        else:
            axis, window = slices.pop(0)
            line = np.arange(window.start, window.stop, window.step, dtype=np.int32)
            own = line.shape
            if window.step == 1 and not window.reverse:
                windows.append(len(sizes))
                if own[0] != x.aval.shape[axis]:
                    columns[axis] = len(sizes) + 1, np.asarray(window.start, np.int32)
            else:
                inserted.add(axis)
                columns[axis] = len(sizes) + 1, line[::-1] if window.reverse else line
        full += own
        sizes += own

    def spread(end: int, indices: IndexArray) -> IndexArray:
        """With an axis of size 1 for each later axis of the index vectors."""
        later = len([i for i in range(end, len(sizes)) if i not in windows])
        return structural.reshape(indices, (*indices.shape, *[1] * later)) if later and indices.ndim else indices

    found = {axis: spread(end, indices) for axis, (end, indices) in columns.items()}
    unique = all(not indices.ndim and not isinstance(indices, Array) for indices in arrays.values())
    return UpdateTarget(x, tuple(full), tuple(sizes), tuple(windows), tuple(sorted(inserted)), found, unique)


def _has_unique_indices(target: UpdateTarget, mode: GatherScatterMode) -> bool:
    """Whether all indices are known, and no place is named twice."""
    columns: list[NDArray] = []
    for axis, indices in target.columns.items():
        if not isinstance(indices, np.ndarray | ConcreteArray):
            return False
        known, size = np.asarray(indices), target.array.aval.shape[axis]
        columns.append(known.clip(0, size - 1) if mode is GatherScatterMode.CLIP else known)
    vectors = np.stack(np.broadcast_arrays(*columns), -1).reshape(-1, len(columns))
    return len(np.unique(vectors, axis=0)) == len(vectors)


def at(x: Array, /) -> IndexUpdateHelper:
    """`x.at`, whose `[index]` names a part of `x` to update.

    >>> from tracefx.numpy import arange
    >>> at(arange(3))[1:].add(10).tolist()
    [0, 11, 12]
    """
    return IndexUpdateHelper(x)
