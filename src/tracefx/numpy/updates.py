"""Updates at an index, `x.at[index].set(y)`: new arrays that differ from `x` where the index says.

An index is read as in `x[index]`, but what is out of bounds is left out (`mode="clip"`: moved to the nearest end).
Places named several times get all of their updates, one after another; of several `set` there, one wins, and which one
is left open. Values are broadcast to the shape of `x[index]`; the result has the dtype of `x`, the update itself is
computed in the dtype in which `x` and the values meet.

`unique_indices=True` promises that no place is named twice, `indices_are_sorted=True` that index arrays ascend; a
promise that isn't kept leaves the result open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

import numpy as np
from attrs import field, frozen

from tracefx.core.array import Array, ArrayLike, Index, UpdateMode
from tracefx.core.avals import Shape
from tracefx.core.dtypes import NDArray
from tracefx.core.errors import ConcretizationError
from tracefx.core.handler import as_array, bind1
from tracefx.core.literal import Scalar
from tracefx.core.promotion import promote
from tracefx.core.values import ConcreteArray, Value
from tracefx.numpy.creation import ones_like, zeros
from tracefx.numpy.indexing import IndexArray, Positions, Window, getitem, index_vectors, layout_of, read_index
from tracefx.numpy.promoting import broadcast_shapes, dtype_of, retyped, to_type
from tracefx.numpy.ufuncs import choose, power, true_divide
from tracefx.ops import arithmetic, basis, comparison, elementwise
from tracefx.ops.indexing import GatherDimensionNumbers, ScatterAdd, ScatterDimensionNumbers, Scattering, gather
from tracefx.ops.scattering import Scatter, ScatterMax, ScatterMin, ScatterMul
from tracefx.ops.windows import GatherScatterMode, mode_of


@final
@frozen(eq=False)
class At:
    """`x.at`."""

    array: Array

    def __getitem__(self, index: Index) -> Updated:
        return Updated(self.array, index)


@final
@frozen(eq=False)
class Updated:
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
    ) -> Array:
        """`x[index]`; with `mode="fill"`, what is out of bounds is `fill_value`: NaN, or the dtype's extreme, unless
        given.

        >>> from tracefx.numpy import arange
        >>> arange(3).at[np.array([0, 5])].get(mode="fill", fill_value=-1).tolist()
        [0, -1]
        """
        if mode is None:
            return getitem(self.array, self.index)
        how = mode_of("get", mode)
        target = _target(self.array, self.index)
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
        return basis.reshape(out, target.shape)

    def set(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
    ) -> Array:
        """`x` with `values` at the index, as after `x[index] = values` in NumPy.

        Raises what `x[index]` raises, and ValueError where `values` does not broadcast; so do all other updates.

        >>> from tracefx.numpy import zeros
        >>> zeros(4).at[1:3].set(np.array([1.0, 2.0])).tolist()
        [0.0, 1.0, 2.0, 0.0]
        """
        return self._merged("set", Scatter, _second, values, indices_are_sorted, unique_indices, mode)

    def add(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
    ) -> Array:
        """`x` with `values` added at the index.

        >>> from tracefx.numpy import zeros
        >>> zeros(3).at[[0, 0, 2]].add(1.0).tolist()
        [2.0, 0.0, 1.0]
        """
        return self._merged("add", ScatterAdd, elementwise.add, values, indices_are_sorted, unique_indices, mode)

    def subtract(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
    ) -> Array:
        """`x` with `values` subtracted at the index.

        >>> from tracefx.numpy import zeros
        >>> zeros(3).at[[0, 0, 2]].subtract(1.0).tolist()
        [-2.0, 0.0, -1.0]
        """
        own = self.array.aval
        dtype, weak = promote([(own.dtype, own.weak_type), dtype_of(values, "subtract: values")])
        negative = arithmetic.neg(to_type(values, dtype, weak))
        return self._merged("subtract", ScatterAdd, elementwise.add, negative, indices_are_sorted, unique_indices, mode)

    def multiply(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
    ) -> Array:
        """`x` multiplied by `values` at the index. Derivatives by `values` need indices that are known and name no
        place twice, or the promise `unique_indices=True`.

        >>> from tracefx.numpy import ones
        >>> ones(3).at[[0, 0, 2]].multiply(3.0).tolist()
        [9.0, 1.0, 3.0]
        """
        return self._merged("multiply", ScatterMul, arithmetic.mul, values, indices_are_sorted, unique_indices, mode)

    mul = multiply

    def divide(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
    ) -> Array:
        """`x` divided by `values` at the index, all of it in a float or complex dtype.

        >>> from tracefx.numpy import ones
        >>> ones(3).at[0].divide(4.0).tolist()
        [0.25, 1.0, 1.0]
        """
        return true_divide(self.array, self._factors(values, indices_are_sorted, unique_indices, mode))

    def power(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
    ) -> Array:
        """`x` to the power `values` at the index.

        >>> from tracefx.numpy import arange
        >>> arange(4).at[2:].power(2).tolist()
        [0, 1, 4, 9]
        """
        return power(self.array, self._factors(values, indices_are_sorted, unique_indices, mode))

    def min(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
    ) -> Array:
        """`x`, at the index the least of it and `values`.

        >>> from tracefx.numpy import arange
        >>> arange(4).at[1:].min(2).tolist()
        [0, 1, 2, 2]
        """
        return self._merged("min", ScatterMin, arithmetic.min, values, indices_are_sorted, unique_indices, mode)

    def max(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
    ) -> Array:
        """`x`, at the index the greatest of it and `values`.

        >>> from tracefx.numpy import arange
        >>> arange(4).at[:2].max(2).tolist()
        [2, 2, 2, 3]
        """
        return self._merged("max", ScatterMax, arithmetic.max, values, indices_are_sorted, unique_indices, mode)

    def apply(
        self,
        func: Callable[[Array], ArrayLike],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
    ) -> Array:
        """`x` with `func`, a function that works element by element, applied at the index: as often as it is named.

        TypeError where that depends on index arrays that are traced, unless `unique_indices=True`.

        >>> from tracefx.numpy import arange
        >>> arange(3).at[[1, 2, 2]].apply(lambda y: y * 10).tolist()
        [0, 10, 200]
        """
        x = self.array
        target = _target(x, self.index)
        flags = indices_are_sorted, unique_indices or target.unique
        how = GatherScatterMode.FILL_OR_DROP if mode is None else mode_of("apply", mode)

        def there(x: Array) -> Array:
            return Updated(x, self.index).get(indices_are_sorted=flags[0], unique_indices=flags[1], mode=how)

        def put(x: Array, values: ArrayLike) -> Array:
            return Updated(x, self.index).set(values, indices_are_sorted=flags[0], unique_indices=flags[1], mode=how)

        if flags[1] or 0 in target.shape:
            return put(x, func(there(x)))
        named = Updated(zeros(x.aval.shape, "int32"), self.index).add(1, mode=how)
        try:
            times = int(named.concrete(ConcretizationError).max())
        except ConcretizationError as error:
            raise TypeError(
                "apply: how often each place is named depends on an index array that is traced; promise "
                "unique_indices=True if no place is named twice, or write x.at[index].set(func(x[index]))"
            ) from error
        count = Updated(named, self.index).get(mode=how)
        for i in range(times):
            old = there(x)
            new = to_type(func(old), old.aval.dtype, old.aval.weak_type, "apply: what func gives")
            x = put(x, choose(comparison.gt(count, i), new, old))
        return x

    def _factors(self, values: ArrayLike, indices_are_sorted: bool, unique_indices: bool, mode: UpdateMode) -> Array:
        """`values` at the index, multiplied where places repeat, and 1 elsewhere."""
        return Updated(ones_like(self.array), self.index).multiply(
            values, indices_are_sorted=indices_are_sorted, unique_indices=unique_indices, mode=mode
        )

    def _merged(
        self,
        name: str,
        operation: type[Scattering],
        everywhere: Callable[[Value, Value], Array],
        values: ArrayLike,
        indices_are_sorted: bool,
        unique_indices: bool,
        mode: UpdateMode,
    ) -> Array:
        """The update by a scatter, or by an operation on all of `x` where the index names all of it once."""
        own = self.array.aval
        target = _target(self.array, self.index)
        how = GatherScatterMode.FILL_OR_DROP if mode is None else mode_of(name, mode)
        dtype, weak = promote([(own.dtype, own.weak_type), dtype_of(values, f"{name}: values")])
        given = to_type(values, dtype, weak, f"{name}: values")
        if broadcast_shapes(name, given.aval.shape, target.shape) != target.shape:
            raise ValueError(f"{name}: values {given.aval} do not fit what the index names, of shape {target.shape}")
        if 0 in target.shape:
            return self.array
        updates = basis.reshape(basis.broadcast_to(given, target.shape), target.sizes)
        x = as_array(retyped(target.array, dtype, weak))
        if target.columns:
            numbers = ScatterDimensionNumbers(target.windows, target.inserted, tuple(target.columns))
            is_sorted, unique = indices_are_sorted or target.unique, unique_indices or target.unique
            if operation is ScatterMul and not unique:  # which has a derivative by `values` only then
                unique = _named_once(target, how)
            out = bind1(operation(numbers, is_sorted, unique, how), x, target.vectors(), updates)
        else:
            out = everywhere(x, updates)
        return basis.reshape(retyped(out, own.dtype, own.weak_type), own.shape)


def _second(old: Value, new: Value) -> Array:
    return as_array(new)


@final
@frozen(eq=False)
class Target:
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


def _target(x: Array, index: Index) -> Target:
    parts, x, ellipsis = read_index(x, index, clamp=False)
    axes = [part for part in parts if part is not None]
    arrays = {axis: part.indices for axis, part in enumerate(axes) if isinstance(part, Positions)}
    named = broadcast_shapes("indexing", *[tuple(indices.shape) for indices in arrays.values()])
    slices = [(axis, part) for axis, part in enumerate(axes) if isinstance(part, Window)]
    full: list[int] = []
    sizes: list[int] = []
    windows: list[int] = []
    inserted = set(arrays)
    columns: dict[int, tuple[int, IndexArray]] = {}  # by axis of `x`: indices, and the place in `sizes` after them
    for item in layout_of(parts, ellipsis):
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
        return basis.reshape(indices, (*indices.shape, *[1] * later)) if later and indices.ndim else indices

    found = {axis: spread(end, indices) for axis, (end, indices) in columns.items()}
    unique = all(not indices.ndim and not isinstance(indices, Array) for indices in arrays.values())
    return Target(x, tuple(full), tuple(sizes), tuple(windows), tuple(sorted(inserted)), found, unique)


def _named_once(target: Target, mode: GatherScatterMode) -> bool:
    """Whether all indices are known, and no place is named twice."""
    columns: list[NDArray] = []
    for axis, indices in target.columns.items():
        if not isinstance(indices, np.ndarray | ConcreteArray):
            return False
        known, size = np.asarray(indices), target.array.aval.shape[axis]
        columns.append(known.clip(0, size - 1) if mode is GatherScatterMode.CLIP else known)
    vectors = np.stack(np.broadcast_arrays(*columns), -1).reshape(-1, len(columns))
    return len(np.unique(vectors, axis=0)) == len(vectors)


def at(x: Array, /) -> At:
    """`x.at`, whose `[index]` names a part of `x` to update.

    >>> from tracefx.numpy import arange
    >>> at(arange(3))[1:].add(10).tolist()
    [0, 11, 12]
    """
    return At(x)
