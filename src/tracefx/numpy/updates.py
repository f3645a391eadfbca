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
from tracefx.core.kernels import quietly
from tracefx.core.literal import Literal, Scalar
from tracefx.core.promotion import promote
from tracefx.core.values import ConcreteArray, Value, as_value, to_numpy
from tracefx.lax.applying import applied_at
from tracefx.numpy.creation import ones_like
from tracefx.numpy.indexing import IndexArray, Positions, Window, getitem, index_vectors, layout_of, numpys, read_index
from tracefx.numpy.promoting import broadcast_shapes, dtype_of, retyped, to_type
from tracefx.numpy.traced_masks import traced_mask
from tracefx.numpy.ufuncs import choose, power, true_divide
from tracefx.ops import arithmetic, basis, elementwise
from tracefx.ops.indexing import GatherDimensionNumbers, ScatterAdd, ScatterDimensionNumbers, Scattering, gather
from tracefx.ops.scattering import Scatter, ScatterMax, ScatterMin, ScatterMul, ScatterSub
from tracefx.ops.windows import GatherScatterMode, mode_of

S = TypeVar("S", bound=Scattering)


@final
@frozen
class How:
    """The options of an update that errors call `name`."""

    name: str
    is_sorted: bool
    unique: bool
    mode: UpdateMode
    wrap: bool

    def __attrs_post_init__(self) -> None:
        if self.mode is not None:
            mode_of(self.name, self.mode)  # or it is refused

    @property
    def gather_mode(self) -> GatherScatterMode:
        assert self.mode is not None
        return mode_of(self.name, self.mode)

    @property
    def scatter_mode(self) -> GatherScatterMode:
        return GatherScatterMode.FILL_OR_DROP if self.mode is None else mode_of(self.name, self.mode)


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
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x[index]`; with `mode="fill"`, what is out of bounds is `fill_value`: NaN, or the dtype's extreme, unless
        given.

        >>> from tracefx.numpy import arange
        >>> arange(3).at[np.array([0, 5])].get(mode="fill", fill_value=-1).tolist()
        [0, -1]
        """
        given = How("get", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        if mode is None and wrap_negative_indices:
            return getitem(self.array, self.index)
        how = GatherScatterMode.CLIP if mode is None else given.gather_mode
        target = _target(self.array, self.index, wrap_negative_indices)
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
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x` with `values` at the index, as after `x[index] = values` in NumPy.

        Raises what `x[index]` raises, and ValueError where `values` does not broadcast; so do all other updates.

        >>> from tracefx.numpy import zeros
        >>> zeros(4).at[1:3].set(np.array([1.0, 2.0])).tolist()
        [0.0, 1.0, 2.0, 0.0]
        """
        how = How("set", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return self._merged(Scatter, _second, values, how)

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
        how = How("add", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return self._merged(ScatterAdd, elementwise.add, values, how)

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
        how = How("subtract", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return self._merged(ScatterSub, arithmetic.sub, values, how)

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
        how = How("multiply", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return self._merged(ScatterMul, arithmetic.mul, values, how)

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
        how = How("divide", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return true_divide(self.array, self._factors(values, how))

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
        how = How("power", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return power(self.array, self._factors(values, how))

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
        how = How("min", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return self._merged(ScatterMin, arithmetic.min, values, how)

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
        how = How("max", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        return self._merged(ScatterMax, arithmetic.max, values, how)

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
        x, how = self.array, How("apply", indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        mask = traced_mask(x, self.index)
        if mask is not None:
            new = to_type(func(x), x.aval.dtype, x.aval.weak_type, "apply: what func gives")
            return choose(mask.everywhere, new, x)
        target = _target(x, self.index, how.wrap)
        if 0 in target.shape:
            return x
        prim = target.scatter(Scatter, how)

        def retyped_func(old: Array) -> ArrayLike:
            return to_type(func(old), x.aval.dtype, x.aval.weak_type, "apply: what func gives")

        if not target.columns:
            return as_array(retyped_func(x))
        out = applied_at(prim, target.array, as_value(target.vectors()), retyped_func, target.sizes)
        return basis.reshape(out, x.aval.shape)

    def _factors(self, values: ArrayLike, how: How) -> Array:
        """`values` at the index, multiplied where places repeat, and 1 elsewhere."""
        ones = Updated(ones_like(self.array), self.index)
        return ones._merged(ScatterMul, arithmetic.mul, values, how)

    def _merged(
        self, operation: type[Scattering], everywhere: Callable[[Value, Value], Array], values: ArrayLike, how: How
    ) -> Array:
        """The update by a scatter, or by an operation on all of `x` where the index names all of it once."""
        name, own = how.name, self.array.aval
        dtype, weak = promote([(own.dtype, own.weak_type), dtype_of(values, f"{name}: values")])
        given = to_type(values, dtype, weak, f"{name}: values")
        if how.wrap and type(self.array) is ConcreteArray and dtype == own.dtype and evaluating():
            found = _evaluated(self.array, self.index, operation, given)
            if found is not None:
                return found
        mask = traced_mask(self.array, self.index)
        if mask is not None:
            x = as_array(retyped(self.array, dtype, weak))
            new = everywhere(x, mask.spread(name, given))
            return as_array(retyped(choose(mask.everywhere, new, x), own.dtype, own.weak_type))
        target = _target(self.array, self.index, how.wrap)
        prim = target.scatter(operation, how)
        if broadcast_shapes(name, given.aval.shape, target.shape) != target.shape:
            raise ValueError(f"{name}: values {given.aval} do not fit what the index names, of shape {target.shape}")
        if 0 in target.shape:
            return self.array
        updates = basis.reshape(basis.broadcast_to(given, target.shape), target.sizes)
        x = as_array(retyped(target.array, dtype, weak))
        out = bind1(prim, x, target.vectors(), updates) if target.columns else everywhere(x, updates)
        return basis.reshape(retyped(out, own.dtype, own.weak_type), own.shape)


_UFUNCS: Final[Mapping[type[Scattering], np.ufunc | None]] = MappingProxyType(
    {Scatter: None, ScatterAdd: np.add, ScatterSub: np.subtract, ScatterMul: np.multiply}
)


def _evaluated(x: ConcreteArray, index: Index, operation: type[Scattering], values: Value) -> ConcreteArray | None:
    """The update by NumPy; None where it refuses it, as all out of bounds, or may understand it otherwise."""
    places, dtype = numpys(index), x.aval.dtype
    if places is None or operation not in _UFUNCS or dtype.kind not in "iufc" or not isinstance(values, _KNOWN):
        return None
    out, new = np.array(x.numpy()), to_numpy(values)
    try:
        old = out[places]
        if new.ndim > old.ndim:  # which NumPy takes if they have size 1
            return None
        quietly(_write, out, places, old, new, _UFUNCS[operation])
    except (IndexError, TypeError, ValueError):
        return None
    return ConcreteArray(x.aval, out)


_KNOWN: Final = (ConcreteArray, Literal)


def _write(out: NDArray, places: tuple[Any, ...], old: NDArray, new: NDArray, ufunc: np.ufunc | None) -> None:
    if ufunc is None:
        out[places] = new
    elif old.base is out:  # a window, in which nothing is named twice
        ufunc(old, new, old)
    else:
        ufunc.at(out, places, new)


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

    def scatter(self, operation: Callable[..., S], how: How) -> S:
        """The operation that updates these places."""
        mode = how.scatter_mode
        numbers = ScatterDimensionNumbers(self.windows, self.inserted, tuple(self.columns))
        unique = how.unique or self.unique
        if operation is ScatterMul and not unique:  # whose derivative by the updates is simple then
            unique = _named_once(self, mode)
        return operation(numbers, how.is_sorted or self.unique, unique, mode)


def _target(x: Array, index: Index, wrap: bool) -> Target:
    parts, x, ellipsis = read_index(x, index, clamp=False, wrap=wrap)
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
