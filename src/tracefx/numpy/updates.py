"""Updates at an index, `x.at[index].add(y)`: new arrays that differ from `x` where the index says.

An index is read as in `x[index]`, but what is out of bounds is left out. Places named several times get all of their
updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
from attrs import field, frozen

from tracefx.core.array import Array, ArrayLike, Index
from tracefx.core.avals import Shape
from tracefx.numpy.indexing import IndexArray, Positions, Window, getitem, index_vectors, layout_of, read_index
from tracefx.numpy.promoting import broadcast_shapes, to_type
from tracefx.ops import basis, elementwise
from tracefx.ops.indexing import ScatterDimensionNumbers, scatter_add
from tracefx.ops.windows import GatherScatterMode


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

    def get(self) -> Array:
        """`x[index]`."""
        return getitem(self.array, self.index)

    def add(self, values: ArrayLike) -> Array:
        """`x` with `values`, broadcast to the shape of `x[index]` and converted to the dtype of `x`, added there.

        Raises what `x[index]` raises, and ValueError where `values` does not broadcast.

        >>> from tracefx.numpy import zeros
        >>> zeros(3).at[[0, 0, 2]].add(1.0).tolist()
        [2.0, 0.0, 1.0]
        """
        x = self.array
        target = _target(x, self.index)
        given = to_type(values, x.aval.dtype, x.aval.weak_type, "add: values")
        if broadcast_shapes("add", given.aval.shape, target.shape) != target.shape:
            raise ValueError(f"add: values {given.aval} do not fit what the index names, of shape {target.shape}")
        updates = basis.reshape(basis.broadcast_to(given, target.shape), target.sizes)
        if not target.columns:
            return basis.reshape(elementwise.add(target.array, updates), x.aval.shape)
        vectors, _ = index_vectors(list(target.columns.values()))
        axes = tuple(target.columns)
        numbers = ScatterDimensionNumbers(target.windows, sorted(axes), axes)
        out = scatter_add(target.array, vectors, updates, numbers, mode=GatherScatterMode.FILL_OR_DROP)
        return basis.reshape(out, x.aval.shape)


@final
@frozen(eq=False)
class Target:
    """Where an update goes: `x` as the index sees it, and of what the index names the shape, the shape without new
    axes, which axes are whole axes of `x`, and for each other axis of `x` the indices along it."""

    array: Array
    shape: Shape
    sizes: Shape
    windows: tuple[int, ...]
    columns: Mapping[int, IndexArray]


def _target(x: Array, index: Index) -> Target:
    parts, x, ellipsis = read_index(x, index, clamp=False)
    axes = [part for part in parts if part is not None]
    arrays = {axis: part.indices for axis, part in enumerate(axes) if isinstance(part, Positions)}
    named = broadcast_shapes("indexing", *[tuple(indices.shape) for indices in arrays.values()])
    slices = [(axis, part) for axis, part in enumerate(axes) if isinstance(part, Window)]
    full: list[int] = []
    sizes: list[int] = []
    windows: list[int] = []
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
            if own[0] == x.aval.shape[axis] and not window.reverse:
                windows.append(len(sizes))
            else:
                columns[axis] = len(sizes) + 1, line[::-1] if window.reverse else line
        full += own
        sizes += own

    def spread(end: int, indices: IndexArray) -> IndexArray:
        """With an axis of size 1 for each later axis of the index vectors."""
        later = len([i for i in range(end, len(sizes)) if i not in windows])
        return basis.reshape(indices, (*indices.shape, *[1] * later)) if later else indices

    found = {axis: spread(end, indices) for axis, (end, indices) in columns.items()}
    return Target(x, tuple(full), tuple(sizes), tuple(windows), found)


def at(x: Array, /) -> At:
    """`x.at`, whose `[index]` names a part of `x` to update.

    >>> from tracefx.numpy import arange
    >>> at(arange(3))[1:].add(10).tolist()
    [0, 11, 12]
    """
    return At(x)
