"""How arrays are shown: as text, with NumPy's options."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import ArrayLike
from tracefx.core.handler import as_array
from tracefx.core.values import to_numpy
from tracefx.numpy.operand_promotion import as_operand


def get_printoptions() -> dict[str, Any]:
    """NumPy's options for showing arrays, which hold here too.

    >>> get_printoptions()["precision"]
    8
    """
    return dict(np.get_printoptions())


def set_printoptions(*args: Any, **kwargs: Any) -> None:
    """Change NumPy's options for showing arrays: `precision`, `threshold`, `linewidth` and the like."""
    np.set_printoptions(*args, **kwargs)


def printoptions(*args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
    """NumPy's options changed in a `with` block.

    >>> with printoptions(precision=2):
    ...     print(np.ones(1) / 3)
    [0.33]
    """
    return np.printoptions(*args, **kwargs)


def array_repr(
    arr: ArrayLike, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """An array as it is shown by itself, in lines of a width, with so many decimals, small numbers as 0 if wished.

    >>> array_repr(np.ones(2) / 3, precision=2)
    'Array([0.33, 0.33], dtype=float32)'
    """
    x = as_operand(arr, "array_repr: arr")
    if dtypes.is_key(x.aval.dtype):  # NumPy would show the record that holds the words
        return repr(as_array(x))
    numbers = to_numpy(x)
    # The words `array` and `Array` are equally long, so the lines stay aligned.
    return np.array_repr(numbers, max_line_width, precision, suppress_small).replace("array", "Array", 1)


def array_str(
    a: ArrayLike, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The numbers of an array as text.

    >>> array_str(np.ones(2) / 3, precision=2)
    '[0.33 0.33]'
    """
    x = as_operand(a, "array_str: a")
    if dtypes.is_key(x.aval.dtype):
        return str(as_array(x))
    return np.array_str(to_numpy(x), max_line_width, precision, suppress_small)
