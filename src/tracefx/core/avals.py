"""Abstract values: what is known of an array without its numbers."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final, TypeAlias, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.dtypes import DType
from tracefx.core.fast_init import slot_setter

Shape = tuple[int, ...]
Axes: TypeAlias = frozenset[str]
"""Axes of a mesh."""
NOWHERE: Final[Axes] = frozenset()


@final
@frozen(init=False, order=False, hash=False)
class ShapedArray:
    """The type of an array: its shape, its dtype, and whether that dtype gives way to another (`weak_type`).

    >>> import numpy as np
    >>> ShapedArray((2, 3), np.dtype("float32"))
    f32[2,3]
    """

    shape: Shape
    dtype: DType
    weak_type: bool = field(default=False)
    _hash: int | None = field(default=None, init=False, eq=False, repr=False)
    _vma: Axes = field(init=False, eq=False, repr=False)  # a slot that most types leave empty

    def __init__(self, shape: Shape, dtype: DType, weak_type: bool = False) -> None:
        _set_shape(self, shape)
        _set_dtype(self, dtype)
        _set_weak_type(self, weak_type)
        _set_hash(self, None)

    @override
    def __hash__(self) -> int:
        """Types are looked up far more often than made."""
        found = self._hash
        if found is None:
            found = hash((self.shape, self.dtype, self.weak_type))
            _set_hash(self, found)
        return found

    @override
    def __reduce__(self) -> tuple[type[ShapedArray], tuple[Shape, DType, bool]]:
        return ShapedArray, (self.shape, self.dtype, self.weak_type)

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
    def vma(self) -> Axes:
        """The axes of a mesh along which the value may differ from device to device, if `typeof` was asked."""
        return getattr(self, "_vma", NOWHERE)

    def varying(self, axes: Axes) -> ShapedArray:
        """The same type, equal to this one, that tells of these axes."""
        if not axes:
            return self
        told = ShapedArray(self.shape, self.dtype, self.weak_type)
        _set_vma(told, axes)
        return told

    @property
    def nbytes(self) -> int:
        return -(-self.size * dtypes.itemsize_bits(self.dtype) // 8)

    def update(self, *, shape: Shape | None = None, dtype: DType | None = None) -> ShapedArray:
        """The same type but for the given fields."""
        return ShapedArray(
            self.shape if shape is None else shape, self.dtype if dtype is None else dtype, self.weak_type
        )

    def strong(self) -> ShapedArray:
        return ShapedArray(self.shape, self.dtype) if self.weak_type else self

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
        text = f"{dtypes.short_name(self.dtype)}[{','.join(map(str, self.shape))}]"
        if not self.vma:
            return text
        names = ",".join(sorted(self.vma))
        return f"{text}{{V:{names}}}" if len(self.vma) == 1 else f"{text}{{V:({names})}}"

    @override
    def __repr__(self) -> str:
        return f"{self}*" if self.weak_type else str(self)


_set_shape, _set_dtype, _set_weak_type, _set_hash, _set_vma = [
    slot_setter(ShapedArray, name) for name in ("shape", "dtype", "weak_type", "_hash", "_vma")
]


@functools.lru_cache(maxsize=4096)
def intern_aval(aval: ShapedArray) -> ShapedArray:
    """The first of all equal types: comparing types that are shared is comparing pointers."""
    return aval


def show_avals(avals: Iterable[ShapedArray]) -> str:
    """Types as a list to read, e.g. `f32[3], i32[]`."""
    return ", ".join(map(str, avals)) or "nothing"
