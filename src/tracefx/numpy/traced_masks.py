"""Traced masks as indices of updates: the number of elements that they select is unknown.

So values can be written if they are the same for all selected elements (they may differ along other axes), but not if
there is one for each selected element.
"""

from __future__ import annotations

from typing import TypeGuard, final

from attrs import frozen

from tracefx.core import Array, ConcreteArray, Value, dtypes
from tracefx.core.array import Index
from tracefx.errors import TracedMaskError
from tracefx.numpy.operand_promotion import require_broadcastable
from tracefx.ops import structural


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
