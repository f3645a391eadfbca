"""Where `gather` and the scatters find their windows: what both have in common, in NumPy and in StableHLO."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, unique
from typing import final

import numpy as np
from attrs import frozen

from tracefx.core import dtypes
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo


@unique
class GatherScatterMode(Enum):
    """What becomes of windows that are not all within the operand."""

    CLIP = 0
    """They are moved to the nearest place within it."""
    FILL_OR_DROP = 1
    """Read, they are filled with a constant; written, they are left out."""
    PROMISE_IN_BOUNDS = 2
    """There are none, says the caller; what happens with one is left open."""
    ONE_HOT = 3
    """What is read out of bounds is zero. `tracefx.numpy.take_along_axis` alone has it, by its name, "one_hot"."""

    @staticmethod
    def from_any(s: GatherScatterMode | str | None) -> GatherScatterMode:
        """The mode that a name means, and None: that of filling and dropping. ValueError for names of none.

        >>> GatherScatterMode.from_any("clip"), GatherScatterMode.from_any(None)
        (<GatherScatterMode.CLIP: 0>, <GatherScatterMode.FILL_OR_DROP: 1>)
        """
        if s is None:
            return GatherScatterMode.FILL_OR_DROP
        if s == "one_hot" or s is GatherScatterMode.ONE_HOT:
            return GatherScatterMode.ONE_HOT
        return canonicalize_mode("GatherScatterMode.from_any", s)


def canonicalize_mode(name: str, mode: Enum | str) -> GatherScatterMode:
    if isinstance(mode, GatherScatterMode) and mode is not GatherScatterMode.ONE_HOT:
        return mode
    match mode:
        case "fill" | "drop":
            return GatherScatterMode.FILL_OR_DROP
        case "clip":
            return GatherScatterMode.CLIP
        case "promise_in_bounds":
            return GatherScatterMode.PROMISE_IN_BOUNDS
        case _:
            raise ValueError(
                f"{name}: mode must be 'clip', 'fill', 'drop', 'promise_in_bounds' or a GatherScatterMode, got {mode!r}"
            )


@final
@frozen
class IndexedWindows:
    """Windows into an array: how large each is, and where the indices say it starts.

    The last axis of the indices is a vector of starts for the operand's axes `index_map`; the other axes enumerate
    windows. Operand axis `operand_batch[i]` goes along with axis `index_batch[i]` of the indices. The axes in
    `operand_batch` and `collapsed`, of window size 1, are left out of the windows' shape.
    """

    operand: Shape
    sizes: Shape
    collapsed: tuple[int, ...]
    index_map: tuple[int, ...]
    operand_batch: tuple[int, ...]
    index_batch: tuple[int, ...]

    @property
    def dropped(self) -> tuple[int, ...]:
        return (*self.collapsed, *self.operand_batch)

    @property
    def kept(self) -> list[int]:
        """The operand's axes that windows have."""
        return [d for d in range(len(self.operand)) if d not in self.dropped]

    @property
    def limits(self) -> list[int]:
        """The last start, for each entry of an index vector, from which a window is within the operand."""
        return [self.operand[d] - self.sizes[d] for d in self.index_map]

    def check(self, name: str, what: str, indices: ShapedArray) -> None:
        """`TypeError` unless the fields fit each other and the indices, `ValueError` unless these are integers."""
        ndim = len(self.operand)
        if not dtypes.is_integer(indices.dtype):
            raise ValueError(f"{name}: indices must be integers, got {indices}")
        if not indices.ndim or indices.shape[-1] != len(self.index_map):
            raise TypeError(
                f"{name}: the last axis of the indices must have one entry for each operand axis that {what} names, "
                f"got indices {indices} and axes {self.index_map}"
            )
        for field, axes, bound in (
            ("collapsed or inserted axes", self.collapsed, ndim),
            ("index map", self.index_map, ndim),
            ("operand batching axes", self.operand_batch, ndim),
            ("indices batching axes", self.index_batch, indices.ndim - 1),
        ):
            if any(not 0 <= d < bound for d in axes) or len(set(axes)) != len(axes):
                raise TypeError(f"{name}: {field} {axes} must be different and between 0 and {bound - 1}")
        if list(self.collapsed) != sorted(self.collapsed) or list(self.operand_batch) != sorted(self.operand_batch):
            raise TypeError(
                f"{name}: collapsed or inserted axes {self.collapsed} and operand batching axes "
                f"{self.operand_batch} must be in order"
            )
        if {*self.operand_batch} & {*self.collapsed, *self.index_map}:
            raise TypeError(
                f"{name}: operand batching axes {self.operand_batch} must be neither collapsed nor in the index map"
            )
        if len(self.operand_batch) != len(self.index_batch) or any(
            self.operand[d] != indices.shape[i] for d, i in zip(self.operand_batch, self.index_batch, strict=True)
        ):
            raise TypeError(
                f"{name}: operand batching axes {self.operand_batch} of {self.operand} and indices batching axes "
                f"{self.index_batch} of {indices} must have equal sizes"
            )
        for d, (n, size) in enumerate(zip(self.operand, self.sizes, strict=True)):
            if not 0 <= size <= n or (d in self.dropped and size > 1):
                bound = min(n, 1) if d in self.dropped else n
                raise TypeError(f"{name}: axis {d} of a window must have a size from 0 to {bound}, got {self.sizes}")

    # ------------------------------------------------------------------ in NumPy

    def inside(self, indices: NDArray) -> NDArray:
        """Which windows are within the operand."""
        return np.asarray(((indices >= 0) & (indices <= np.asarray(self.limits, np.int64))).all(-1))

    def clipped(self, indices: NDArray) -> NDArray:
        return np.clip(indices, 0, np.asarray(self.limits, np.int64))

    def index_arrays(self, indices: NDArray, axes: Sequence[int]) -> list[NDArray]:
        """Index arrays for the given operand axes; their shape is that of the windows' numbers, then of `axes` kept."""
        moving = [d for d in axes if d not in self.dropped]
        count = indices.shape[:-1]
        out = []
        for d in axes:
            place: NDArray = np.zeros((1,) * (len(count) + len(moving)), np.int64)
            if d in self.index_map:
                starts = indices[..., self.index_map.index(d)]
                place = starts.reshape(count + (1,) * len(moving))
            if d in self.operand_batch:
                along = self.index_batch[self.operand_batch.index(d)]
                sizes = [n if i == along else 1 for i, n in enumerate(count)]
                place = np.arange(count[along]).reshape(*sizes, *[1] * len(moving))
            if d in moving:
                sizes = [1] * len(count) + [self.sizes[d] if m == d else 1 for m in moving]
                place = place + np.arange(self.sizes[d]).reshape(sizes)
            out.append(place)
        return out

    # ------------------------------------------------------------------ in StableHLO

    def emit_limits(self, builder: Builder, indices: IrValue) -> IrValue:
        """The limits, as an array of the indices' shape."""
        top = int(dtypes.iinfo(indices.aval.dtype).max)
        limits = builder.constant(np.asarray([min(n, top) for n in self.limits], indices.aval.dtype))
        return stablehlo.emit_broadcast(builder, limits, indices.aval.shape, (indices.aval.ndim - 1,))

    def emit_inside(self, builder: Builder, indices: IrValue) -> IrValue:
        """Which windows are within the operand."""
        zero = stablehlo.emit_full(builder, 0, indices.aval)
        above = stablehlo.emit_compare(builder, "GE", indices, zero)
        below = stablehlo.emit_compare(builder, "LE", indices, self.emit_limits(builder, indices))
        (both,) = builder.emit("stablehlo.and", [above, below], [above.aval])
        return stablehlo.emit_reduce(builder, "stablehlo.and", both, True, (indices.aval.ndim - 1,))

    def emit_clipped(self, builder: Builder, indices: IrValue) -> IrValue:
        zero = stablehlo.emit_full(builder, 0, indices.aval)
        operands = [zero, indices, self.emit_limits(builder, indices)]
        return builder.emit("stablehlo.clamp", operands, [indices.aval])[0]


def as_indices(x: NDArray) -> NDArray:
    """Integers of any dtype as 64-bit ones; what is too large for those stays out of every bound."""
    if x.dtype == np.uint64:
        return np.minimum(x, np.uint64(2**63 - 1)).astype(np.int64)
    return x.astype(np.int64)
