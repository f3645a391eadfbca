"""Scalars written in the program itself."""

from __future__ import annotations

from typing import TypeAlias, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray

Scalar: TypeAlias = bool | int | float | complex


@final
@frozen
class Literal:
    """A scalar constant of a program with its type, both a value and an atom of jaxprs.

    Compared by type and by the bytes of its dtype: `-0.0` is not `0.0`, and a NaN equals itself.
    """

    val: Scalar = field(eq=False)
    aval: ShapedArray
    _bits: bytes = field(init=False, repr=False)

    @_bits.default
    def _(self) -> bytes:
        return self.numpy().tobytes()

    def numpy(self) -> dtypes.NDArray:
        return np.asarray(self.val, self.aval.dtype)

    @override
    def __str__(self) -> str:
        val = self.val
        if self.aval.dtype.kind == "b":
            val = bool(val)
        return f"{val}:{self.aval}"
