"""The primitive `dimension_value`: an axis size as an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, DType, NDArray, ShapedArray, Value, dtypes
from tracefx.core.handler import bind1
from tracefx.core.primitive import MappedAxis
from tracefx.lowering import Builder, IrValue
from tracefx.ops.operation import Operation


@final
@frozen(eq=False)
class DimensionValue(Operation):
    """An axis size as a weakly typed scalar. In a program with symbolic dimensions it is known when that is called.

    Args:
        size: The axis size.
        dtype: The dtype of the result, an integer dtype.

    `-> i32[]`. Bound by `numpy.asarray` of a symbolic dimension, and by its arithmetic with arrays.

    >>> from tracefx import bind, dtypes, ops
    >>> bind(ops.DimensionValue(3, dtypes.result_type("int32")))
    [Array(3, dtype=int32, weak_type=True)]
    """

    name = "dimension_value"
    arity = 0
    size: int
    dtype: DType

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        if not dtypes.is_integer(self.dtype):
            raise TypeError(f"dimension_value: dtype must be an integer dtype, got {dtypes.name(self.dtype)}")
        return ShapedArray((), self.dtype, True)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return np.asarray(self.size.__index__(), self.dtype)

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        return bind1(self), None  # without operands there is no batch axis

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        return builder.dimension(self.size, out)


def dimension_as_array(size: int) -> Array:
    """Returns an axis size as an array of the default integer dtype."""
    return bind1(DimensionValue(size, dtypes.default_int()))
