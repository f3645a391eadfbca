"""Text representations of arrays, with NumPy's print options."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tracefx.core import ArrayLike, dtypes, to_numpy
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import as_operand


def get_printoptions() -> dict[str, Any]:
    """Returns NumPy's print options, which apply to tracefx arrays too.

    Returns:
        The options by name.

    >>> get_printoptions()["precision"]
    8
    """
    return dict(np.get_printoptions())


def set_printoptions(*args: Any, **kwargs: Any) -> None:
    """Sets NumPy's print options, which apply to tracefx arrays too.

    Args:
        *args: The options by position, as for `numpy.set_printoptions`.
        **kwargs: The options by name: `precision`, `threshold`, `linewidth` and the like.

    >>> set_printoptions(precision=8)
    """
    np.set_printoptions(*args, **kwargs)


def printoptions(*args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
    """Returns a context manager that sets NumPy's print options in a `with` block.

    Args:
        *args: The options by position, as for `numpy.set_printoptions`.
        **kwargs: The options by name: `precision`, `threshold`, `linewidth` and the like.

    Returns:
        The context manager.

    >>> with printoptions(precision=2):
    ...     print(np.ones(1) / 3)
    [0.33]
    """
    return np.printoptions(*args, **kwargs)


def array_repr(
    arr: ArrayLike, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """Returns the `repr` of an array.

    Args:
        arr: A concrete array.
        max_line_width: The maximal length of lines; None means the print options.
        precision: The number of decimals; None means the print options.
        suppress_small: Whether to print tiny numbers as 0; None means the print options.

    Returns:
        The text.

    >>> array_repr(np.ones(2) / 3, precision=2)
    'Array([0.33, 0.33], dtype=float32)'
    """
    x = as_operand(arr, "array_repr: arr")
    if dtypes.is_key(x.aval.dtype):  # NumPy would show the record of words
        return repr(as_array(x))
    numbers = to_numpy(x)
    # `array` and `Array` are equally long, so the lines stay aligned.
    return np.array_repr(numbers, max_line_width, precision, suppress_small).replace("array", "Array", 1)


def array_str(
    a: ArrayLike, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """Returns the `str` of an array.

    Args:
        a: A concrete array.
        max_line_width: The maximal length of lines; None means the print options.
        precision: The number of decimals; None means the print options.
        suppress_small: Whether to print tiny numbers as 0; None means the print options.

    Returns:
        The text.

    >>> array_str(np.ones(2) / 3, precision=2)
    '[0.33 0.33]'
    """
    x = as_operand(a, "array_str: a")
    if dtypes.is_key(x.aval.dtype):
        return str(as_array(x))
    return np.array_str(to_numpy(x), max_line_width, precision, suppress_small)
