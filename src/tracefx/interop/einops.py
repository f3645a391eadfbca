"""Makes the functions of `einops` take arrays and tracers of tracefx: import this module before the first call.

>>> import einops
>>> import tracefx as fx
>>> import tracefx.interop.einops
>>> fx.jit(lambda x: einops.einsum(x, x, "i j, k j -> i k"))(fx.numpy.ones((2, 3)))
Array([[3., 3.],
       [3., 3.]], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard, final

from einops._backends import AbstractBackend
from typing_extensions import override

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, NDArray


@final
class EinopsBackend(AbstractBackend):
    """The operations of einops on arrays of tracefx. einops finds it among the subclasses of its base class."""

    framework_name = "tracefx"

    @override
    def is_appropriate_type(self, tensor: object) -> TypeGuard[Array]:
        return isinstance(tensor, Array)

    @override
    def from_numpy(self, x: NDArray) -> Array:
        return fnp.asarray(x)

    @override
    def to_numpy(self, x: Array) -> NDArray:
        return x.__array__()

    @override
    def arange(self, start: int, stop: int) -> Array:
        return fnp.arange(start, stop)

    @override
    def stack_on_zeroth_dimension(self, tensors: Sequence[Array]) -> Array:
        return fnp.stack(tensors)

    @override
    def tile(self, x: Array, repeats: Sequence[int]) -> Array:
        return fnp.tile(x, repeats)

    @override
    def concat(self, tensors: Sequence[Array], axis: int) -> Array:
        return fnp.concatenate(tensors, axis=axis)

    @override
    def add_axis(self, x: Array, new_position: int) -> Array:
        return fnp.expand_dims(x, new_position)

    @override
    def is_float_type(self, x: Array) -> bool:
        return fnp.issubdtype(x.dtype, fnp.floating)

    @override
    def einsum(self, pattern: str, *x: ArrayLike) -> Array:
        return fnp.einsum(pattern, *x)
