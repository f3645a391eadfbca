"""Promotion of arguments to arrays of one float dtype and one shape, and of results back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from tracefx.control.special.formula import compute_dtype
from tracefx.core import Array, ArrayLike, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import convert_dtype, promote_args_inexact
from tracefx.ops.structural import broadcast_to
from tracefx.pytrees.trees import map as tree_map

R = TypeVar("R")

EULER_GAMMA: Final = 0.5772156649015328606
"""Euler's constant."""


def promote_real(name: str, *args: ArrayLike) -> list[Array]:
    """Promotes arguments to one float dtype and broadcasts them to one shape.

    Raises:
        TypeError: if an argument is complex.
    """
    values = promote_args_inexact(name, *args)
    if dtypes.is_complex(values[0].aval.dtype):
        raise TypeError(f"{name} is not defined for complex numbers, got {values[0].aval}")
    return [as_array(v) for v in _broadcast_together(values)]


def _broadcast_together(values: list[Value]) -> list[Value]:
    shape = max((v.aval.shape for v in values), key=len)
    return [broadcast_to(v, shape) if v.aval.shape != shape else v for v in values]


def call_promoted(name: str, f: Callable[..., R], *args: ArrayLike) -> R:
    """Calls `f` with promoted arguments of at least 32 bits, and converts the results to the promoted dtype."""
    values = promote_real(name, *args)
    dtype, weak = values[0].aval.dtype, values[0].aval.weak_type
    wide = compute_dtype(dtype)
    out: R = tree_map(
        lambda x: as_array(convert_dtype(x, dtype, weak)), f(*[as_array(convert_dtype(v, wide)) for v in values])
    )
    return out
