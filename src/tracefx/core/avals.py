"""Abstract values: what is known of an array without its numbers."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.dtypes import DType

Shape = tuple[int, ...]


@final
@frozen(cache_hash=True, order=False)
class ShapedArray:
    """The type of an array: its shape, its dtype, and whether that dtype gives way to another (`weak_type`).

    >>> import numpy as np
    >>> ShapedArray((2, 3), np.dtype("float32"))
    f32[2,3]
    """

    shape: Shape
    dtype: DType
    weak_type: bool = field(default=False)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for n in self.shape:
            size *= n
        return size

    @property
    def nbytes(self) -> int:
        return -(-self.size * dtypes.itemsize_bits(self.dtype) // 8)

    def update(self, *, shape: Shape | None = None, dtype: DType | None = None) -> ShapedArray:
        """The same type but for the given fields."""
        return ShapedArray(
            self.shape if shape is None else shape, self.dtype if dtype is None else dtype, self.weak_type
        )

    def strong(self) -> ShapedArray:
        return evolve(self, weak_type=False) if self.weak_type else self

    def tangent(self) -> ShapedArray:
        """The type of tangents at a value of this type: `float0` where no derivative exists."""
        dtype = dtypes.tangent_dtype(self.dtype)
        return self if dtype is self.dtype else ShapedArray(self.shape, dtype, False)

    def with_axis(self, size: int, axis: int) -> ShapedArray:
        """This type with one more axis of `size` at position `axis`."""
        return self.update(shape=(*self.shape[:axis], size, *self.shape[axis:]))

    def without_axis(self, axis: int) -> ShapedArray:
        return self.update(shape=(*self.shape[:axis], *self.shape[axis + 1 :]))

    @override
    def __str__(self) -> str:
        return f"{dtypes.short_name(self.dtype)}[{','.join(map(str, self.shape))}]"

    @override
    def __repr__(self) -> str:
        return f"{self}*" if self.weak_type else str(self)


@functools.lru_cache(maxsize=4096)
def shared(aval: ShapedArray) -> ShapedArray:
    """The first of all equal types: comparing types that are shared is comparing pointers."""
    return aval


def show_avals(avals: Iterable[ShapedArray]) -> str:
    """Types as a list to read, e.g. `f32[3], i32[]`."""
    return ", ".join(map(str, avals)) or "nothing"
