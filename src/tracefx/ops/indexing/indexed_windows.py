"""`IndexedWindows`, the geometry that `gather` and scatters share, and `GatherScatterMode`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, unique
from typing import final

import numpy as np
from attrs import frozen

from tracefx.core import DType, NDArray, Scalar, Shape, ShapedArray, dtypes
from tracefx.core.avals import Dimensions
from tracefx.dimensions.symbolic_dimensions import has_symbolic_dims
from tracefx.lowering import Builder, IrValue, MlirText
from tracefx.ops import stablehlo
from tracefx.ops.monoids import AND


@unique
class GatherScatterMode(Enum):
    """What happens to windows that are not entirely within the operand."""

    CLIP = 0
    """They are moved to the nearest position within it."""
    FILL_OR_DROP = 1
    """Reads return a fill value; writes are dropped."""
    PROMISE_IN_BOUNDS = 2
    """The caller promises that there are none; otherwise the result is unspecified."""
    ONE_HOT = 3
    """Reads out of bounds return zero. Only `tracefx.numpy.take_along_axis` supports it, as "one_hot"."""

    @staticmethod
    def from_any(s: GatherScatterMode | str | None) -> GatherScatterMode:
        """Returns the mode with the given name. None means `FILL_OR_DROP`.

        Args:
            s: A mode, its name in lower case ("fill" and "drop" for `FILL_OR_DROP`), or None.

        Raises:
            ValueError: There is no such mode.

        >>> GatherScatterMode.from_any("clip"), GatherScatterMode.from_any(None)
        (<GatherScatterMode.CLIP: 0>, <GatherScatterMode.FILL_OR_DROP: 1>)
        """
        if s is None:
            return GatherScatterMode.FILL_OR_DROP
        if s == "one_hot" or s is GatherScatterMode.ONE_HOT:
            return GatherScatterMode.ONE_HOT
        return canonicalize_mode("GatherScatterMode.from_any", s)


def canonicalize_mode(name: str, mode: Enum | str) -> GatherScatterMode:
    """Returns the mode that a `mode` argument means; `name` is the function's."""
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
    """Windows of given sizes into an operand, at start indices.

    The last axis of the indices holds vectors of starts along the operand axes `index_map`; the other axes enumerate
    windows. Operand axis `operand_batch[i]` is paired with axis `index_batch[i]` of the indices. The axes in
    `operand_batch` and `collapsed`, of window size 1, are dropped from the shape of windows.
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
        """The operand axes that windows have."""
        return [d for d in range(len(self.operand)) if d not in self.dropped]

    @property
    def limits(self) -> list[int]:
        """For each entry of an index vector, the last start of a window within the operand."""
        return [self.operand[d] - self.sizes[d] for d in self.index_map]

    def check(self, name: str, what: str, indices: ShapedArray) -> None:
        """Raises ValueError unless the indices are integers, TypeError unless the fields are consistent with them."""
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
                raise TypeError(f"{name}: {field} {axes} must be distinct and between 0 and {bound - 1}")
        if list(self.collapsed) != sorted(self.collapsed) or list(self.operand_batch) != sorted(self.operand_batch):
            raise TypeError(
                f"{name}: collapsed or inserted axes {self.collapsed} and operand batching axes "
                f"{self.operand_batch} must be increasing"
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
        """Returns which windows are within the operand."""
        return np.asarray(((indices >= 0) & (indices <= np.asarray(self.limits, np.int64))).all(-1))

    def clipped(self, indices: NDArray) -> NDArray:
        """Returns the indices, clipped so that all windows are within the operand."""
        return np.clip(indices, 0, np.asarray(self.limits, np.int64))

    def index_arrays(self, indices: NDArray, axes: Sequence[int]) -> list[NDArray]:
        """Returns index arrays for the operand axes `axes`. Their axes enumerate windows, then kept ones of `axes`."""
        moving = [d for d in axes if d not in self.dropped]
        count = indices.shape[:-1]
        out = []
        for d in axes:
            index: NDArray = np.zeros((1,) * (len(count) + len(moving)), np.int64)
            if d in self.index_map:
                starts = indices[..., self.index_map.index(d)]
                index = starts.reshape(count + (1,) * len(moving))
            if d in self.operand_batch:
                along = self.index_batch[self.operand_batch.index(d)]
                sizes = [n if i == along else 1 for i, n in enumerate(count)]
                index = np.arange(count[along]).reshape(*sizes, *[1] * len(moving))
            if d in moving:
                sizes = [1] * len(count) + [self.sizes[d] if m == d else 1 for m in moving]
                index = index + np.arange(self.sizes[d]).reshape(sizes)
            out.append(index)
        return out

    # ------------------------------------------------------------------ in StableHLO

    def emit_limits(self, builder: Builder, indices: IrValue) -> IrValue:
        """Emits the limits, broadcast to the shape of the indices."""
        top = int(dtypes.iinfo(indices.aval.dtype).max)
        if has_symbolic_dims(self.limits):
            scalar, one = [ShapedArray(shape, indices.aval.dtype) for shape in ((), (1,))]
            sizes = [builder.emit("stablehlo.reshape", [builder.dimension(n, scalar)], [one])[0] for n in self.limits]
            vector = ShapedArray((len(sizes),), indices.aval.dtype)
            (limits,) = builder.emit("stablehlo.concatenate", sizes, [vector], {"dimension": 0})
        else:
            limits = builder.constant(np.asarray([min(n, top) for n in self.limits], indices.aval.dtype))
        return stablehlo.emit_broadcast(builder, limits, indices.aval.shape, (indices.aval.ndim - 1,))

    def emit_inside(self, builder: Builder, indices: IrValue) -> IrValue:
        """Emits which windows are within the operand."""
        zero = stablehlo.emit_full(builder, 0, indices.aval)
        above = stablehlo.emit_compare(builder, "GE", indices, zero)
        below = stablehlo.emit_compare(builder, "LE", indices, self.emit_limits(builder, indices))
        (both,) = builder.emit("stablehlo.and", [above, below], [above.aval])
        return AND.emit_reduce(builder, both, (indices.aval.ndim - 1,))

    def emit_clipped(self, builder: Builder, indices: IrValue) -> IrValue:
        """Emits the indices, clipped so that all windows are within the operand."""
        zero = stablehlo.emit_full(builder, 0, indices.aval)
        operands = [zero, indices, self.emit_limits(builder, indices)]
        return builder.emit("stablehlo.clamp", operands, [indices.aval])[0]


def as_indices(x: NDArray) -> NDArray:
    """Returns integers as int64; unsigned ones beyond its range saturate, so they remain out of bounds."""
    if x.dtype == np.uint64:
        return np.minimum(x, np.uint64(2**63 - 1)).astype(np.int64)
    return x.astype(np.int64)


def shift_axes(axes: Dimensions, by: int = 1) -> Dimensions:
    """Returns the axes plus `by`."""
    return tuple([d + by for d in axes])


def window_order(offset: Dimensions, ndim: int) -> list[int]:
    """Returns the axes of a result: first those that enumerate windows, then those within a window."""
    return [*[i for i in range(ndim) if i not in offset], *offset]


def check_offset(name: str, argument: str, offset: Dimensions, ndim: int) -> None:
    """Raises TypeError unless `offset` are increasing axes of an array of rank `ndim`."""
    if list(offset) != sorted(set(offset)) or any(not 0 <= d < ndim for d in offset):
        raise TypeError(f"{name}: {argument} {offset} must be increasing axes of an array of rank {ndim}")


def dimension_numbers_text(kind: str, indices: ShapedArray, **axes: Dimensions) -> MlirText:
    """Returns the StableHLO attribute with the dimension numbers of a gather or scatter."""
    parts = [f"{name} = {list(value)}" for name, value in axes.items() if value]
    return MlirText(f"#stablehlo.{kind}<{', '.join([*parts, f'index_vector_dim = {indices.ndim - 1}'])}>")


def default_fill(dtype: DType) -> Scalar:
    """Returns the fill value that XLA programs use for out-of-bounds reads of this dtype."""
    if dtypes.is_inexact(dtype):
        return float("nan")
    if dtypes.is_bool(dtype):
        return True
    if dtypes.is_key(dtype):
        return 2**32 - 1  # the greatest word, like other unsigned dtypes
    return int(dtypes.iinfo(dtype).min if dtypes.is_signed(dtype) else dtypes.iinfo(dtype).max)
