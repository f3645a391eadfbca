"""Masks that are traced, as indices of updates: how many elements they name is open, but not which.

So one number, or numbers for the other axes, can be written where the mask is true; a number for each of the elements
named can't.
"""

from __future__ import annotations

from typing import final

from attrs import frozen

from tracefx.core import dtypes
from tracefx.core.array import Array, Index
from tracefx.core.values import ConcreteArray, Value
from tracefx.numpy.operand_promotion import broadcast_operand_shapes
from tracefx.ops import structural


@final
@frozen(eq=False)
class TracedMask:
    """`everywhere` is the mask for each element of an array; it has the axes from `axis` to before `end` of it."""

    full_mask: Array
    axis: int
    end: int

    def broadcast_values(self, name: str, values: Value) -> Array:
        """The values for each element of the array. Along the axis of the elements named there must be one."""
        whole = self.full_mask.aval.shape
        after = len(whole) - self.end
        shape = values.aval.shape
        place = len(shape) - after - 1  # of the axis of the elements that the mask names
        if place >= 0:
            if shape[place] != 1:
                raise ValueError(
                    f"{name}: values {values.aval} have an element for each that a mask names, but the mask is traced, "
                    f"so that their number isn't known; use where(mask, new, old), with an element for each of the mask"
                )
            shape = (*shape[:place], *(1,) * (self.end - self.axis), *shape[place + 1 :])
        if len(shape) > len(whole) or broadcast_operand_shapes(name, shape, whole) != whole:
            raise ValueError(f"{name}: values {values.aval} do not fit what a mask names of an array of shape {whole}")
        return structural.broadcast_to(structural.reshape(values, shape), whole)


def traced_mask(x: Array, index: Index) -> TracedMask | None:
    """The mask, if an index is one that is traced, with nothing beside it but whole axes."""
    parts = index if isinstance(index, tuple) else (index,)
    masks = [part for part in parts if is_traced_mask(part)]
    if len(masks) != 1:
        return None
    mask = masks[0]
    assert isinstance(mask, Array)
    others = [part for part in parts if part is not mask]
    if any(part is not Ellipsis and not (isinstance(part, slice) and part == slice(None)) for part in others):
        return None
    ellipses = sum([part is Ellipsis for part in others])
    ndim, own = x.aval.ndim, mask.aval.ndim
    free = ndim - own - (len(others) - ellipses)
    if ellipses > 1 or free < 0:
        return None  # which is refused where indices are read
    before = parts[: next(i for i, part in enumerate(parts) if part is mask)]
    start = sum([free if part is Ellipsis else 1 for part in before])
    end = start + own
    if x.aval.shape[start:end] != mask.aval.shape:
        raise IndexError(
            f"a mask of shape {mask.aval.shape} selects from axes of sizes {x.aval.shape[start:end]} at axis {start}"
        )
    return TracedMask(structural.broadcast_in_dim(mask, x.aval.shape, range(start, end)), start, end)


def is_traced_mask(part: object) -> bool:
    if not isinstance(part, Array) or type(part) is ConcreteArray:
        return False
    return dtypes.is_bool(part.aval.dtype) and part.aval.ndim > 0
