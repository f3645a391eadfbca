"""Functions that NumPy has and XLA takes many operations for: of numbers that are there, they are NumPy's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import evaluating
from tracefx.core.kernels import quietly
from tracefx.core.literal import Literal
from tracefx.core.values import ConcreteArray, Value

FLOATS: Final = frozenset({dtypes.float32, dtypes.float64})
INTEGERS: Final = frozenset(
    {
        *(dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
        *(dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    }
)
NUMBERS: Final = FLOATS | INTEGERS
ALL: Final = NUMBERS | {dtypes.bool_}


def numpys(
    kernel: Callable[..., Any], *values: Value, among: frozenset[DType] = FLOATS, weak: bool | None = None
) -> Array | None:
    """`kernel` of the numbers of values; None where they are traced, or one is not of these dtypes. The result has the
    weak type of the first value, unless `weak` says.

    The kernel gives what the compiled operations do, which is why dtypes are let in by name: NumPy has no fast
    functions for others, or rounds differently.
    """
    found = _called(kernel, values, among)
    return None if found is None else _array(found, values[0].aval.weak_type if weak is None else weak)


def numpys_pair(kernel: Callable[..., Any], *values: Value) -> tuple[Array, Array] | None:
    """`numpys` of a function with two results, of which the first has the weak type of the first value."""
    found = _called(kernel, values, FLOATS)
    return None if found is None else (_array(found[0], values[0].aval.weak_type), _array(found[1], False))


def _called(kernel: Callable[..., Any], values: tuple[Value, ...], among: frozenset[DType]) -> Any:
    if not evaluating():
        return None
    for v in values:
        if (type(v) is not ConcreteArray and type(v) is not Literal) or v.aval.dtype not in among:
            return None
    if len(values) == 1:  # written out, as every call counts
        return quietly(kernel, values[0].numpy())  # type: ignore[union-attr]  # found to have numbers above
    return quietly(kernel, *[v.numpy() for v in values])  # type: ignore[union-attr]  # as above


def _array(x: Any, weak: bool) -> ConcreteArray:
    numbers: NDArray = x if type(x) is np.ndarray else np.asarray(x)
    return ConcreteArray(_type(numbers.shape, numbers.dtype, weak), numbers)


_type: Final = functools.lru_cache(maxsize=4096)(ShapedArray)  # finding a type takes half as long as making it
