"""Scalars written in the program itself."""

from __future__ import annotations

from typing import TypeAlias, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.equality import StrictlyEqual
from tracefx.core.kernels import quietly

Scalar: TypeAlias = bool | int | float | complex


def _as_array(val: Scalar, dtype: dtypes.DType) -> dtypes.NDArray:
    return np.asarray(val, dtype)


@final
@frozen(eq=False)
class Literal(StrictlyEqual):
    """A scalar constant of a program with its type, both a value and an atom of jaxprs.

    Compared by type and by the bytes of its dtype: `-0.0` is not `0.0`, and a NaN equals itself.
    """

    val: Scalar
    aval: ShapedArray

    def __attrs_post_init__(self) -> None:
        if type(self.val) is int and not 0 <= self.val <= 1:  # 0 and 1 are of every dtype
            self.numpy()  # an OverflowError tells who wrote a number that its dtype can't hold

    def numpy(self) -> dtypes.NDArray:
        return quietly(_as_array, self.val, self.aval.dtype)

    @override
    def __eq__(self, other: object) -> bool:
        return type(other) is Literal and self.aval == other.aval and self._bits() == other._bits()

    @override
    def __hash__(self) -> int:
        return hash((self.aval, self._bits()))

    def _bits(self) -> bytes:
        return self.numpy().tobytes()

    @override
    def __str__(self) -> str:
        val = self.val
        if self.aval.dtype.kind == "b":
            val = bool(val)
        return f"{val}:{self.aval}"
