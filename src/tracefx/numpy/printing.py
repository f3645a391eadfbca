"""How arrays are shown: as text, with NumPy's options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tracefx.core.array import ArrayLike
from tracefx.core.values import to_numpy
from tracefx.numpy.promoting import operand

get_printoptions: Final = np.get_printoptions
set_printoptions: Final = np.set_printoptions
printoptions: Final[Callable[..., Any]] = np.printoptions


def array_repr(
    arr: ArrayLike, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """An array as it is shown by itself, in lines of a width, with so many decimals, small numbers as 0 if wished.

    >>> array_repr(np.ones(2) / 3, precision=2)
    'Array([0.33, 0.33], dtype=float32)'
    """
    numbers = to_numpy(operand(arr, "array_repr: arr"))
    # The words `array` and `Array` are equally long, so the lines stay aligned.
    return np.array_repr(numbers, max_line_width, precision, suppress_small).replace("array", "Array", 1)


def array_str(
    a: ArrayLike, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The numbers of an array as text.

    >>> array_str(np.ones(2) / 3, precision=2)
    '[0.33 0.33]'
    """
    return np.array_str(to_numpy(operand(a, "array_str: a")), max_line_width, precision, suppress_small)
